/* A worker group. Private to worker_io.c and worker_sweep_io.c. */
#pragma once

#include "base/idmap.h"
#include "base/text/strbuf.h"
#include "launcher/supervise/sweep_io.h"
#include "launcher/supervise/worker_io.h"

struct worker {
    struct worker_group *group;
    uint32_t index;
    struct child_watch *watch; /* NULL: never cloned, or not yet */
    pid_t session;             /* its pid, also after its end; 0: never cloned */
    uint64_t started_ns;
    uint64_t sent;            /* bit N: signal N was sent */
    char *marker;             /* the value of WORKER_MARKER */
    struct worker_warm *warm; /* it was taken from the pool, and has not begun yet; else NULL */
    bool was_warm;            /* it was taken from the pool */
    struct err start_err;     /* code != 0: it never ran */
    bool ended;               /* also true if it will never be started */
    bool group_asked;         /* SIGTERM was sent to its process group when it ended */
};

struct worker_group {
    bool doomed; /* freed by its owner, in a callback */
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *timer; /* the machine's deadline */
    struct worker_group_machine machine;
    struct worker_group_config config;
    struct worker_group_ops ops;
    void *arg;
    int64_t oom_before; /* oom_kills_around() */
    uint64_t chance;    /* the random part of the markers */
    uint32_t n_tried;   /* workers that were started, could not be started, or will not be */
    int signal_no;      /* the signal that is being sent, */
    uint32_t signal_at; /* and the next worker to get it */
    bool signals;       /* it gets it in a later turn */
    bool held;          /* the signal of a stop waits: */
    int held_no;        /* which one; 0: none yet, */
    uint64_t had_ns;    /* and workers that were started before this time have got it already */
    struct sweep_walk *walk;
    bool walks;               /* it is not over */
    enum worker_pass pass;    /* what it does */
    struct idmap asked;       /* by pid: got SIGTERM, or was named; by session: it was named */
    uint64_t term_ticks;      /* when the last pass began that sent SIGTERM; as proc_stat.start */
    bool of_ended;            /* it covers only orphans of workers that have ended */
    uint32_t blocking;        /* found by the walk: they must end before another group starts */
    uint32_t undecided;       /* the same: in the middle of exec or of exit */
    uint32_t n_killed;        /* found by the walk, to be reported: */
    struct strbuf killed;     /* the first of them */
    struct idmap ports;       /* inodes of sockets that listen on ports the next group can need */
    bool ports_known;         /* in this pass */
    bool walk_answers;        /* the machine waits for the walk */
    struct sweep_result last; /* of the last walk that is over */
    unsigned busy;            /* depth of callbacks */
    bool unwell; /* a stop or a kill was requested, or a worker has failed or never ran */
    bool left;   /* those that are kept are not killed at the end */
    pid_t kept[WORKER_NAMED_MAX];
    uint32_t n_kept;  /* as found by the last walk */
    pid_t named_pid;  /* the last detached process that was named; 0: none */
    uint32_t n_named; /* sessions; WORKER_NAMED_MAX + 1: and that there are more */
    uint32_t n;
    struct worker workers[];
};

/* ---- worker_io.c ---- */

void worker_step(struct worker_group *g, const struct worker_event *event);
/* Defers fn(g) until others had their turn, once, unless the group is freed. */
void worker_put_off(struct worker_group *g, enum loop_priority prio, loop_defer_fn *fn);

/* ---- worker_sweep_io.c ---- */

/* Whether detached processes are kept. */
bool worker_keeps(const struct worker_group *g);
/* A stop or a kill: nothing is kept any more. */
void worker_keep_no_more(struct worker_group *g);
/* answer: begins a new pass, and sends WORKER_EVENT_SWEPT when it is over. */
void worker_sweep_all(struct worker_group *g, enum worker_pass pass, bool answer);
/* Kills all at once, because there is no later turn in which to continue. */
void worker_sweep_now(struct worker_group *g);
/* Sends SIGTERM to its process group; it is a zombie. */
void worker_ask_process_group(struct worker *w, pid_t zombie);
/* What ended workers left outside of their process groups gets SIGTERM soon, while others run. */
void worker_ask_orphans(struct worker_group *g);
/* The next pass that is over logs the workers that live. */
void worker_name_killed(struct worker_group *g);
