/* Child processes: starts them, and reports why one could not run.
 *
 *     struct child_spec spec = CHILD_SPEC_INIT;
 *     spec.argv = argv; spec.setsid = true; spec.stdout_fd = pipe_w;
 *     r = child_spawn(&spec, &child, &err);                 waits for the exec
 *     … then io/process/reaper.h reports how it ended
 *
 * Until the exec a child shares the memory of this process, which waits meanwhile (CLONE_VFORK).
 * Without pidfds (CLONE_PIDFD, Linux 5.2) it is signalled by its pid. Between clone and exec the
 * child empties its signal mask, sets all signals to their default dispositions (but see
 * keep_nohup), and marks every descriptor above 2 close-on-exec (close_range, 5.11, or
 * /proc/self/fd).
 *
 * Single-threaded callers only. The caller's SIGCHLD must not be ignored. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Kernel features that are not used, as on an older kernel; for tests. Bits. */
enum {
    CHILD_WITHOUT_PIDFD = 2,
    CHILD_WITHOUT_CLOSE_RANGE = 4,
    CHILD_WITHOUT_PREFERRED_MANY = 16,
};

/* From where a child's memory is preferably allocated. set_mempolicy(2) */
enum child_memory {
    CHILD_MEMORY_DEFAULT = 0, /* by this process's own policy */
    CHILD_MEMORY_PREFER,      /* MPOL_PREFERRED_MANY (5.15), or MPOL_PREFERRED of the first node */
    CHILD_MEMORY_BIND,        /* MPOL_BIND: only from these nodes */
};

#define CHILD_KEEP_MAX 3
#define CHILD_IGNORED_MAX 2
struct child_spec {
    char *const *argv; /* argv[0]: a path if it contains '/', else searched in PATH of envp */
    char *const *envp; /* NULL: this process's own */
    const char *cwd;   /* NULL: this process's own */
    int stdin_fd, stdout_fd, stderr_fd; /* borrowed; -1: this process's own */
    bool setsid;                        /* a session and process group of its own */
    /* A process group of its own in this process's session. If this process is killed while the
     * child is stopped, the kernel sends the group SIGHUP and SIGCONT, as it has become orphaned
     * (POSIX, _exit(): only if its new parent is in another session) */
    bool own_group;
    int death_signal; /* PR_SET_PDEATHSIG; 0: none. Cleared by setuid programs: prctl(2) */
    bool keep_nohup;  /* SIGHUP stays ignored if this process ignores it: nohup(1) */
    int ignored[CHILD_IGNORED_MAX]; /* further signals that it ignores; 0: none */
    /* PR_SET_PTRACER: this process and its other children may read its memory, where Yama allows
     * that only to ancestors (ptrace_scope=1). Not inherited by its own children. prctl(2) */
    bool readable;
    uint64_t nofile_soft; /* soft RLIMIT_NOFILE; 0: this process's own */
    const void *cpuset;   /* mask of sched_setaffinity(2), cpuset_bytes long; NULL: unbound */
    size_t cpuset_bytes;
    enum child_memory memory;
    const void *memory_nodes; /* mask of set_mempolicy(2), of whole longs; unless DEFAULT */
    size_t memory_nodes_bytes;
    int keep_fds[CHILD_KEEP_MAX]; /* above 2: the child keeps them, by their numbers; 0: none */
    unsigned without;             /* CHILD_WITHOUT_* */
};
#define CHILD_SPEC_INIT \
    { .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1 }

/* A copy that owns its texts and masks, for child_spec_free(). The descriptors stay borrowed. */
_must_use_ struct child_spec *child_spec_copy(const struct child_spec *spec);
void child_spec_free(struct child_spec *copy); /* takes NULL */
/* Whether children of both differ in nothing but environment and descriptors. */
bool child_spec_alike(const struct child_spec *a, const struct child_spec *b);

struct child {
    pid_t pid;
    int pidfd; /* owned, close-on-exec; -1 without pidfds */
};
#define CHILD_INIT \
    { .pid = 0, .pidfd = -1 }
/* Closes the pidfd. Neither kills nor reaps. */
void child_fini(struct child *c);

/* Starts a child, and returns when the program runs, or with the error of the step that failed:
 * then the child has been reaped. -ENOENT, -EACCES: no such program (text: where it was searched
 * for). Others from the kernel. */
_must_use_ int child_spawn(const struct child_spec *spec, struct child *ret, struct err *err);

/* A pipe that children write to: both ends close-on-exec, the read end non-blocking. */
_must_use_ int child_pipe(int *ret_read, int *ret_write);

/* Signals the process only, and never a recycled pid. 0; -ESRCH: it has ended. */
_must_use_ int child_kill(const struct child *c, int signo);

/* The full path of the program that child_spawn() would run, malloc'ed. path: value of PATH, NULL
 * for the system's default (confstr). -ENOENT, -EACCES (found, but not executable). */
_must_use_ int child_find_program(const char *name, const char *path, char **ret);

/* 0: the file can be executed; -EACCES: not by us, or it is not a plain file; others of stat(2). */
_must_use_ int child_check_program(const char *path);

/* In a child of the caller's fork: resets or ignores each signal, unblocks all. Signal-safe. */
void child_reset_signals(const int *ignored, size_t n_ignored);
/* Whether this process ignores the signal. Async-signal-safe. */
bool child_is_ignored(int signo);
