/* What the files of a worker group share. Private to these files.
 *   worker_io.c        carries out the machine's updates; the end of workers and of the group
 *   worker_start_io.c  starts workers, some per turn of the loop
 *   worker_warm_io.c   workers that were taken from the pool of warm ones
 *   worker_sweep_io.c  kills processes below the agent, some per turn of the loop
 *   worker_left_io.c   what becomes of a process that a worker left
 *   worker_detached_io.c  those in sessions of their own */
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
    uint64_t sent; /* bit N: signal N was sent */
    /* its standard output and error, if they are pipes or terminals; else ino 0 */
    struct worker_stream {
        dev_t dev;
        ino_t ino;
    } streams[2];
    char *program, *cwd; /* for the text of a failed start */
    char *marker;        /* WORKER_MARKER=… */
    int cgroup_fd;       /* -1: none */
    char cgroup_name[48];
    struct worker_warm *warm; /* it was taken from the pool, and has not begun yet; else NULL */
    bool was_warm;            /* it was taken from the pool */
    struct err start_err;     /* code != 0: it never ran */
    bool ended;               /* also true if it will never be started */
    bool group_asked;         /* SIGTERM was sent to its process group when it ended */
    bool orphans;             /* it has ended before others, and can have left orphans: */
    bool asked;               /* they have got SIGTERM, */
    uint64_t term_ns, left_until_ns; /* which is due then; and when they get SIGKILL */
    bool looked_for;                 /* the current walk looks for them */
    bool met;                        /* the current walk has found some */
    uint32_t quiet_passes;           /* passes in a row that found none */
};

/* Listening sockets whose ports the next group can need. */
#define WORKER_PORTS_MAX 64
struct worker_ports {
    bool known; /* read in this pass */
    uint32_t n;
    ino_t inodes[WORKER_PORTS_MAX];
};

/* The kind of walk that is running. */
enum worker_walk {
    WORKER_WALK_NONE = 0,
    WORKER_WALK_ORPHANS, /* what ended workers left */
    WORKER_WALK_ALL,     /* everything but helpers */
};

struct worker_group {
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *timer;        /* the machine's deadline */
    struct loop_timer *orphan_timer; /* the next walk over orphans */
    uint64_t orphan_wait_ns;
    struct worker_group_machine machine;
    struct worker_group_config config; /* a copy; borrows nothing */
    struct worker_group_ops ops;
    void *arg;
    char *oom_file;
    uint64_t oom_before;
    uint32_t waiting_before; /* processes of the pool that had ended by then */
    int report_fd;           /* read end: which starts failed */
    int report_write_fd;     /* open until all are started */
    uint64_t chance;         /* the random part of the markers */
    uint32_t n_tried;        /* workers that were started, could not be started, or will not be */
    int signal_no;           /* the signal that is being sent, */
    bool signal_wakes;       /* whether SIGCONT follows, */
    uint32_t signal_at;      /* and the next worker to get it */
    bool held;               /* the signal of a stop waits: */
    int held_no;             /* which one; 0: none yet, */
    uint64_t had_ns; /* and workers that were started before this time have got it already */
    struct sweep_walk *walk;
    enum worker_walk walk_kind;
    enum worker_pass pass; /* what it does */
    struct idmap asked;    /* by pid: processes that got SIGTERM, or were named when killed */
    uint64_t term_ticks;   /* when the last pass began that sent SIGTERM; as proc_stat.start */
    uint32_t blocking;     /* found by the walk: they must end before another group starts */
    uint32_t n_killed;     /* found by the walk, to be reported: */
    struct strbuf killed;  /* the first of them */
    struct worker_ports ports;
    bool walk_answers;        /* the machine waits for the walk */
    bool orphans_again;       /* more workers have ended since the walk began */
    struct sweep_result last; /* result of the last finished walk over all processes */
    unsigned busy;            /* depth of callbacks */
    unsigned n_put_off;       /* deferred calls: the last one frees a doomed group's memory */
    bool start_due, failures_due, walk_due, signal_due, remove_due; /* which of them */
    bool stopped;     /* a stop or a kill was requested */
    bool ended_badly; /* a worker has failed, or never ran */
    bool left;        /* those that are kept are not killed at the end */
    pid_t kept[WORKER_NAMED_MAX];
    uint32_t n_kept;              /* as found by the last walk over all processes */
    pid_t told[WORKER_NAMED_MAX]; /* sessions of which on_detached was told */
    pid_t told_pid;               /* the last process that it named; 0: none */
    uint32_t n_told;              /* WORKER_NAMED_MAX + 1: and that there are more */
    uint32_t remove_at;           /* after disposal: the worker whose cgroup is removed next */
    bool doomed, disposed;
    uint32_t n;
    struct worker workers[];
};

/* ---- worker_io.c ---- */

void worker_step(struct worker_group *g, const struct worker_event *event);
/* Call these before and after calls of the owner's functions. leave returns false if the group was
 * freed. */
void worker_enter(struct worker_group *g);
_must_use_ bool worker_leave(struct worker_group *g);
/* Defers fn(g) until others had their turn, unless the group is freed. fn must first call
 * worker_arrived(). */
void worker_put_off(struct worker_group *g, bool *due, enum loop_priority prio, loop_defer_fn *fn);
/* False: the group was freed. */
_must_use_ bool worker_arrived(struct worker_group *g, bool *due);
/* A worker has ended (how), or never ran (how is NULL): reports it, and continues. */
void worker_ended(struct worker *w, const struct worker_exit *how);
/* Takes ownership of the child. 0 or a negative errno. */
_must_use_ int worker_watch(struct worker *w, const struct child *child);
/* w->watch was another's. */
void worker_hand_over(struct worker *w);

/* ---- worker_start_io.c ---- */

/* Starts the first workers now, the others from the loop. */
void worker_start_some(struct worker_group *g);
/* Starts its process, or sets w->start_err. */
void worker_spawn(struct worker *w, const struct child_spec *spec);
/* Workers that were not started yet never will be; they count as ended, without a callback. */
void worker_start_no_more(struct worker_group *g);

/* ---- worker_warm_io.c ---- */

/* False: the pool has none for it. Else it was taken from there. */
_must_use_ bool worker_warm_start(struct worker *w, const struct child_spec *spec);
/* Its process has ended. True: it had not begun, and is started cold instead. */
_must_use_ bool worker_warm_ended(struct worker *w);
void worker_warm_free(struct worker *w);

/* ---- worker_detached_io.c ---- */

/* Whether a detached process is kept; if not, reports that it is going to be ended. */
bool worker_is_kept(struct worker_group *g, pid_t pid);
/* Whether detached processes are kept. */
bool worker_keeps(const struct worker_group *g);
/* A stop or a kill: nothing is kept any more. */
void worker_keep_no_more(struct worker_group *g);

/* ---- worker_sweep_io.c ---- */

/* One pass over all processes below except helpers and what other groups left. answer: begins a new
 * pass, and sends WORKER_EVENT_SWEPT when it is over. */
void worker_sweep_all(struct worker_group *g, enum worker_pass pass, bool answer);
/* Kills all at once, because there is no later turn in which to continue. */
void worker_sweep_now(struct worker_group *g);
/* Begins to end what this worker left. */
void worker_sweep_orphans_of(struct worker *w);
/* The next pass over what all ended workers left, unless a walk is running. */
void worker_find_orphans(struct worker_group *g);

/* ---- worker_left_io.c ---- */

/* A sweep_seen_fn: what the current pass does with a process. */
int worker_seen(void *group, pid_t pid, bool own);
void worker_sent(void *group, pid_t pid);
/* Its process group gets SIGTERM now; it is a zombie. */
void worker_ask_process_group(struct worker *w, pid_t zombie);
/* The workers that live are killed now: the next pass that is over logs them. */
void worker_name_killed(struct worker_group *g);
/* A pass begins; it is over: logs what it has killed. */
void worker_pass_begins(struct worker_group *g, enum worker_pass pass);
void worker_pass_over(struct worker_group *g);
