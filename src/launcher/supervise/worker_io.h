/* The workers of one generation on this node, as processes. worker.h makes the decisions.
 *
 * Children that the reaper watches, other than these workers, are helpers: all sweeps spare them
 * and what is below them. All other processes below the agent belong to the generation.
 *
 * A stop's signal goes to the workers' own processes. When a worker has ended, what it left gets
 * SIGTERM and SIGCONT: its process group, and the orphans with its WORKER_MARKER. When all have
 * ended, everything else gets them, too, and the rest of the grace until SIGKILL, which is logged.
 *
 * The group is gone (worker_group_gone()) when only processes are left that can end beside another
 * group: they have a marker, and hold no GPU and no TCP port that a program can have chosen. It is
 * over when none is left.
 *
 * Processes in a session of their own, which is not a worker's, are called detached. As long as all
 * workers that have ended did so with 0 and none was asked to stop, those that are ended are
 * logged, up to WORKER_NAMED_MAX; or, with leave_detached, kept: neither ended nor waited for. They
 * have WORKER_SETTLE_NS to detach. A stop, a kill and worker_group_free() end those that are kept,
 * too, unless they were left before. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "io/process/child.h"
#include "io/process/reaper.h"
#include "launcher/warm/warm_pool_io.h"
#include "launcher/worker/worker.h"

#define WORKER_SETTLE_NS (1 * NS_PER_S) /* see above */

/* In each worker's environment: <generation>.<index>.<16 random hex digits>. */
#define WORKER_MARKER "MUSTER_WORKER_ID"

/* How a worker ended. */
struct worker_exit {
    struct child_status status;
    uint64_t ran_ns; /* since its start */
    bool oom;        /* the kernel killed one of our processes for lack of memory while it ran */
    bool sent_by_us; /* it ended after a stop: by a signal that we sent, or with any exit status */
};

struct worker_group_config {
    uint64_t generation;  /* for the marker */
    const char *oom_file; /* cgroup_oom_file(); NULL: OOM is never reported. Borrowed */
    struct spare *spare;  /* helpers that no sweep kills (sweep_io.h); NULL: none. Borrowed */
    bool leave_detached;
    uint64_t grace_ns;      /* of what is left by workers that were not stopped */
    uint32_t first_rank;    /* for messages */
    uint16_t store_port;    /* that workers may listen on; 0: none */
    uint64_t nofile_soft;   /* the workers' soft RLIMIT_NOFILE; 0: the agent's own */
    struct warm_pool *warm; /* borrowed; NULL: all workers start cold */
    unsigned without;       /* CHILD_WITHOUT_*; tests */
};

struct worker_group;

/* All except `make` and `made` are called from the loop, or from worker_group_stop() and _kill(),
 * and may call these two and worker_group_free(). */
struct worker_group_ops {
    /* Describes worker `index`, right before its start: argv, envp with this WORKER_MARKER,
     * standard streams, CPUs and memory, borrowed until `made`. < 0, with a sentence: neither it
     * nor a later one is started; on_spawn_failed reports it, the others count as ended. */
    int (*make)(void *arg, uint32_t index, const char *marker, struct child_spec *ret,
                struct err *err);
    /* The worker was cloned, or could not be: what `make` returned is no longer needed. */
    void (*made)(void *arg, uint32_t index);
    void (*on_exit)(void *arg, uint32_t index, const struct worker_exit *how);
    /* Worker `index` never ran; it counts as ended. err->code: errno, text: step and program. */
    void (*on_spawn_failed)(void *arg, uint32_t index, const struct err *err);
    /* Every worker is gone, and every descendant that another group can't run beside. Called again
     * if those that are kept are ended later. */
    void (*on_all_gone)(void *arg);
    /* Called once, if a process, with this name and state, has survived SIGKILL for 5 s. */
    void (*on_unkillable)(void *arg, pid_t pid, const char *text);
    /* Those below may be NULL. After on_all_gone: all descendants are gone but those kept. */
    void (*on_over)(void *arg);
    /* Called once: a process has been given time for WORKER_PATIENCE_NS, and has so much left.
     * blocks: another group can't start before it has ended. */
    void (*on_waiting)(void *arg, pid_t pid, uint64_t rest_ns, bool blocks);
    /* Whether this value of WORKER_MARKER is of another group that is not over. */
    bool (*is_of_other)(void *arg, const char *marker);
};
#define WORKER_NAMED_MAX 8

/* Starts n >= 1 workers, some now, the others in the loop's next turns. Those that are not started
 * before a stop count as ended, without a callback. */
void worker_group_start(struct loop *loop, struct child_reaper *reaper, uint32_t n,
                        const struct worker_group_config *config,
                        const struct worker_group_ops *ops, void *arg, struct worker_group **ret);
/* Sends signo and SIGCONT to each worker, some in the loop's next turns, and SIGKILL to all when
 * the grace is over. If it is called again, an earlier end of the grace wins. */
void worker_group_stop(struct worker_group *g, int signo, uint64_t grace_ns);
/* From now on the signal of a stop waits, because workers may have got this signal from elsewhere.
 * A worker that ends meanwhile counts as stopped. The grace runs, and SIGKILL does not wait. */
void worker_group_hold(struct worker_group *g, int signo);
/* Workers that were started before had_ns have got the signal from elsewhere, and need it no more;
 * 0: none has. A stop's signal that waits, or that comes later, is sent to the others. */
void worker_group_release(struct worker_group *g, uint64_t had_ns);
/* Sends signo to the process of each worker that runs and was started before before_ns; one that
 * dies of it was not stopped by us. Returns how many got it. */
uint32_t worker_group_signal(struct worker_group *g, int signo, uint64_t before_ns);
/* Sends SIGKILL now, to the workers and all processes below them. If these have all ended by then,
 * on_all_gone and on_over are called before it returns. */
void worker_group_kill(struct worker_group *g);
/* Frees the group; processes that are left get SIGKILL, but are not waited for. Takes NULL. */
void worker_group_free(struct worker_group *g);

/* How many processes are kept, not counting those below them; 0 before the group is gone. */
uint32_t worker_group_kept(const struct worker_group *g);
/* Logs which of those that are kept continue; worker_group_free() spares them. False: none are. */
bool worker_group_leave_kept(struct worker_group *g);

/* How many workers have not ended, including those that are not started yet. */
uint32_t worker_group_alive(const struct worker_group *g);
bool worker_group_gone(const struct worker_group *g);
bool worker_group_over(const struct worker_group *g);
/* Whether this value of WORKER_MARKER is of one of its workers. */
bool worker_group_owns(const struct worker_group *g, const char *marker);
/* 0 if it never ran or has been reaped. */
pid_t worker_group_pid(const struct worker_group *g, uint32_t index);
/* Whether this process is a running worker, or below one; which. */
bool worker_group_holds(const struct worker_group *g, pid_t pid, uint32_t *ret_index);
