/* What the files of a worker group share. Private to these files.
 *   worker_io.c        obeys the machine; ends of workers and of the group
 *   worker_start_io.c  starts workers, some per turn of the loop
 *   worker_sweep_io.c  ends what is below, some per turn of the loop */
#pragma once

#include "launcher/supervise/sweep_io.h"
#include "launcher/supervise/worker_io.h"

struct worker {
    struct worker_group *group;
    uint32_t index;
    struct child_watch *watch; /* NULL: never cloned, or not yet */
    uint64_t started_ns;
    uint64_t sent;       /* bit N: we sent signal N */
    char *program, *cwd; /* for the text of a failed start */
    char *marker;        /* WORKER_MARKER=… */
    int cgroup_fd;       /* -1: none */
    char cgroup_name[48];
    struct err start_err;  /* code != 0: it never ran */
    bool ended;            /* also one that was not started and will not be */
    bool orphans;          /* it has ended, and may have left some */
    bool looked_for;       /* those, by the walk that is under way */
    bool met;              /* by it */
    uint32_t quiet_passes; /* in a row that met none */
};

/* What is under way below this process. */
enum worker_walk {
    WORKER_WALK_NONE = 0,
    WORKER_WALK_ORPHANS, /* what ended workers left */
    WORKER_WALK_ALL,     /* everything but helpers */
};

struct worker_group {
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *timer;        /* the machine's deadline */
    struct loop_timer *orphan_timer; /* the next look at what ended workers left */
    uint64_t orphan_wait_ns;
    struct worker_group_machine machine;
    struct worker_group_config config; /* borrows nothing */
    struct worker_group_ops ops;
    void *arg;
    char *oom_file;
    uint64_t oom_before;
    int report_fd;       /* read end: which starts failed */
    int report_write_fd; /* until all are started */
    uint64_t chance;     /* of the markers */
    uint32_t n_tried;    /* workers that were started, could not be, or will not be */
    int signal_no;       /* what is being sent, */
    bool signal_wakes;   /* with SIGCONT, */
    uint32_t signal_at;  /* and to whom next */
    struct sweep_walk *walk;
    enum worker_walk walk_kind;
    bool walk_answers;        /* the machine waits for it */
    bool orphans_again;       /* more workers have ended since it began */
    struct sweep_result last; /* of the last walk over all that ended */
    unsigned busy;            /* depth of callbacks */
    unsigned n_put_off;       /* calls that will come: they free a doomed group's memory */
    bool start_due, failures_due, walk_due, signal_due, remove_due; /* which of them */
    uint32_t remove_at; /* disposed: whose cgroup is removed next */
    bool doomed, disposed;
    uint32_t n;
    struct worker workers[];
};

/* ---- worker_io.c ---- */

void worker_step(struct worker_group *g, const struct worker_event *event);
/* Around calls of the owner's functions; leave: false: the group is gone. */
void worker_enter(struct worker_group *g);
_must_use_ bool worker_leave(struct worker_group *g);
/* fn(g) after others' turn, unless the group was freed; fn calls worker_arrived() first. */
void worker_put_off(struct worker_group *g, bool *due, enum loop_priority prio, loop_defer_fn *fn);
/* False: it is gone. */
_must_use_ bool worker_arrived(struct worker_group *g, bool *due);
/* A worker has ended (how), or never ran (NULL): reports it, and takes the next step. */
void worker_ended(struct worker *w, const struct worker_exit *how);
/* Takes the child. 0 or a negative errno. */
_must_use_ int worker_watch(struct worker *w, const struct child *child);

/* ---- worker_start_io.c ---- */

/* The first of them now, the others from the loop. */
void worker_start_some(struct worker_group *g);
/* Workers that were not started yet never will be; they count as ended, without a callback. */
void worker_start_no_more(struct worker_group *g);

/* ---- worker_sweep_io.c ---- */

/* SIGKILL to all below but helpers. answer: a new pass, and WORKER_EVENT_SWEPT when it is over. */
void worker_sweep_all(struct worker_group *g, bool answer);
/* All at once, since there is no later turn in which to continue. */
void worker_sweep_now(struct worker_group *g);
/* What this worker left, soon. */
void worker_sweep_orphans_of(struct worker *w);
/* What all that have ended left, unless something is under way. */
void worker_look_for_orphans(struct worker_group *g);
