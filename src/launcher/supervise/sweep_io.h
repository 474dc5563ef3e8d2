/* Ending every process below this one: all, as the last act of a guardian or of an agent whose
 * guardian died (sweep_all), or in single passes of a running agent (sweep_walk_*).
 *
 * This process is a subreaper, so processes that lose their parent become its children. The tree is
 * read from /proc/PID/task/TID/children (proc(5); Linux 3.5 with CONFIG_PROC_CHILDREN, else PPid of
 * every process), killed, reaped, and read again until nothing is left. Own children are killed by
 * pid, which no other process has before they are reaped; deeper ones by a pidfd whose parent is
 * checked after it was opened (without pidfds when they have become children). Without /proc,
 * sweep_pass() and sweep_all() ask the kernel for each pid; a walk finds nothing.
 *
 * sweep_all() uses only async-signal-safe calls and no heap. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/util.h"

/* Features that are not used, as on an older kernel; for tests. Bits. */
enum { SWEEP_WITHOUT_CHILDREN_FILE = 1, SWEEP_WITHOUT_PIDFD = 2 };

/* Helpers of the agent that sweeps spare, and that are not waited for at the end, in a page that
 * the guardian shares: a disk can block them, and no other agent needs what they hold. All calls
 * are async-signal-safe and take NULL. */
#define SPARE_MAX 8 /* of more that live, the last ones */

struct spare { /* 0: none */
    atomic_int pids[SPARE_MAX];
    atomic_uint n;
};

/* Adds a helper, or one of its own, in the place of one that has ended. Its process name begins
 * with SPARE_NAMES: another process that gets its pid later has another name. */
#define SPARE_NAMES "muster-"
void spare_add(struct spare *s, pid_t pid);
/* Whether one whose name begins so still exists. */
bool spare_lives(struct spare *s, const char *name);
/* Kills those that are children of this process, and waits for them for at most `ns`. */
void spare_end(struct spare *s, uint64_t ns);

/* Called for each process that a pass has found. own: a child of this process. Returns the signal
 * to send (SIGCONT follows SIGTERM); 0: only counted; SWEEP_SPARE: not counted either, like all
 * below it. */
#define SWEEP_SPARE (-1)
typedef int sweep_seen_fn(void *arg, pid_t pid, bool own);

/* What is spared: these children and all processes below them. */
struct sweep_except {
    struct spare *spare; /* NULL: none. Borrowed */
    pid_t also;          /* 0: none */
    sweep_seen_fn *seen; /* NULL: all get SIGKILL; in sweep_all() it must be async-signal-safe */
    /* The process was sent seen's signal, which is not 0. May be NULL */
    void (*sent)(void *arg, pid_t pid);
    void *arg;
    unsigned without; /* SWEEP_WITHOUT_* */
};

/* What one pass has found. */
struct sweep_result {
    uint32_t alive;   /* processes that were still there */
    uint32_t zombies; /* own children that have ended and wait to be reaped */
    pid_t unkillable; /* one that refused SIGKILL (EPERM), or 0 */
    pid_t example;    /* the first of the living, or 0 */
    pid_t zombie;     /* one of those, or 0: if it stays, its tracer holds it */
};

/* One pass over all processes below this one: SIGKILL to all except `except`. Reaps nothing. */
void sweep_pass(const struct sweep_except *except, struct sweep_result *ret);

/* The same below another process (a frozen agent), which is spared. */
void sweep_pass_below(pid_t top, const struct sweep_except *except, struct sweep_result *ret);

/* A pass in pieces, for a process with an event loop. Children may be reaped between the pieces. */
struct sweep_walk;
struct sweep_walk *sweep_walk_new(void);
void sweep_walk_free(struct sweep_walk *w); /* takes NULL */
/* Abandons a pass that is not over. */
void sweep_walk_begin(struct sweep_walk *w, const struct sweep_except *except);
/* Continues until until_ns (CLOCK_MONOTONIC), with at least one process. True: the pass is over. */
_must_use_ bool sweep_walk_go_on(struct sweep_walk *w, uint64_t until_ns, struct sweep_result *ret);

/* Called once for a process that still exists after `unkillable_ns`. Async-signal-safe. */
typedef void sweep_stuck_fn(void *arg, pid_t pid);

/* Kills and reaps until only `except` is left below this process. SIGCHLD must be blocked, because
 * this waits for it. Does not return while a process can't be killed. */
void sweep_all(const struct sweep_except *except, uint64_t unkillable_ns, sweep_stuck_fn *on_stuck,
               void *arg);

/* The value of a variable of its environment, as far as it fits. False: not set, or not known. */
bool sweep_read_variable(pid_t pid, const char *name, char *out, size_t size);

/* The parent of a process; 0: the process is gone, or it can't be read. */
pid_t sweep_parent(pid_t pid);
/* Whether its name in /proc/PID/comm begins so. */
bool sweep_is_named(pid_t pid, const char *begin);
/* Whether it is a zombie or gone. False without /proc. */
bool sweep_has_ended(pid_t pid);
/* Whether it lives, in another session than the caller. Async-signal-safe. setsid(2) */
bool sweep_is_detached(pid_t pid);

/* Which of the processes that a pass has found to name in a message; 0: it found none. */
pid_t sweep_stuck_one(const struct sweep_result *r);
/* For messages: "process 123, python3 train.py (state t, traced by process 45, gdb)", "process 123,
 * (python3) (it has ended, and is held by its tracer, process 45, gdb)"; "process 123" if it can't
 * be read. ptrace(2): one that ends can't be reaped until its tracer has waited for it or has
 * ended. */
#define SWEEP_NAME_MAX 352
/* Only "process 123, python3 train.py". */
void sweep_name(pid_t pid, char out[SWEEP_NAME_MAX]);
void sweep_describe(pid_t pid, char out[SWEEP_NAME_MAX]);
