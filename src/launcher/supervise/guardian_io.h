/* The guardian: the process a user started becomes the parent of the agent, and stays, with almost
 * no state and no libraries, to ensure that no process outlives the agent.
 *
 *     user ─┬─ guardian (foreground process group; subreaper)
 *           │    └─ agent (own process group; subreaper) ─┬─ worker (own session) ─ …
 *           │                                             └─ …
 *
 * What ends whom:
 *
 *     agent dies        the guardian kills and reaps until nothing is left, closes the listener
 *                       (the witness of muster-rendezvous(7)) and exits with the agent's status;
 *                       it raises a death by signal again on itself, without a core
 *     guardian dies     the agent gets a real-time signal (PR_SET_PDEATHSIG) whose handler kills
 *                       and reaps all below it; then the agent dies
 *     agent is frozen   250 ms after the lease's end the guardian stops (SIGSTOP) all workers, and
 *                       again every 100 ms; after 6 times it kills all below the agent, and again
 *                       until the lease is moved; it spares the agent. Time in which the guardian
 *                       was frozen, too, does not count
 *     both are killed   only with containment: a keeper (a third, even smaller process in its own
 *                       session) ends the rest and closes the listener last
 *
 * The log writer is killed too, but not waited for longer than GUARDIAN_SPARED_NS. Any other
 * process that can't be killed is reported once on standard error; the guardian waits for it with
 * the listener open, so that other nodes don't declare this one gone.
 *
 * Terminal: ^Z (SIGTSTP) stops the guardian, for the shell to see, but nothing else. SIGTTIN and
 * SIGTTOU are ignored in both. SIGHUP and SIGTSTP stay ignored if this process was started with
 * them ignored (nohup). Every other signal that can be caught is forwarded to the agent, SIGCONT
 * after those that end it. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "launcher/ends/tree_signals.h"
#include "launcher/job/job.h"

/* The name of its cgroup: this prefix and its pid. */
#define GUARDIAN_CGROUP_PREFIX "muster-"

/* From the lease's end until the guardian acts (muster-rendezvous(7), "Leases"). */
#define GUARDIAN_LATE_NS (250 * NS_PER_MS)
#define GUARDIAN_HOLDS 6 /* so often it stops the workers before it kills them */
#define GUARDIAN_REPEAT_NS (100 * NS_PER_MS)
#define GUARDIAN_UNKILLABLE_NS (5 * NS_PER_S) /* after its kill a process counts as unkillable */
#define GUARDIAN_SPARED_NS (1 * NS_PER_S)     /* for the end of one on which nothing depends */

struct guardian_config {
    int listener_fd;          /* kept open, closed last; -1: none. The agent has its own copy */
    enum job_contain contain; /* AUTO: a cgroup if one was delegated to us, else none */
    /* Erases, in the guardian, what only the agent may have. NULL: nothing */
    void (*on_split)(void *arg);
    void *arg;
};

struct guardian_link {
    pid_t guardian;       /* what getppid() must return: 0 in a pid namespace of our own */
    int lease_fd;         /* timerfd, shared with the guardian */
    int cgroup_parent_fd; /* has the cgroups of guardians; -1: none contains this agent */
    struct guardian_shared *shared;
};
#define GUARDIAN_LINK_INIT \
    { .lease_fd = -1, .cgroup_parent_fd = -1 }

/* Splits this process, before it has a loop or a library. Returns 0 in the agent; the parent
 * becomes the guardian and never returns. On an error (negative errno, text) nothing was split. The
 * agent has its old signal mask and SIG_DFL for SIGCHLD, leads a process group, is a subreaper. */
_must_use_ int guardian_fork(const struct guardian_config *config, struct guardian_link *ret,
                             struct err *err);

/* The lease's end on CLOCK_MONOTONIC; TIME_NEVER: no lease, nothing runs. One system call. If the
 * guardian has just stopped the workers, they are continued, except during guardian_hold(). */
void guardian_lease(struct guardian_link *link, uint64_t end_ns);
/* The agent stops the workers, because its lease ended while it did not run. Repeated calls stop
 * new processes. Ends with guardian_resume(), or with guardian_lease(TIME_NEVER). */
void guardian_hold(struct guardian_link *link);
/* The workers have a lease again: continues those that were stopped. */
void guardian_resume(struct guardian_link *link);

/* How often the guardian has killed all below the agent as the lease was over; counted before. */
uint32_t guardian_fences(const struct guardian_link *link);

/* How a signal of this number has come to the agent since the last call. ALONE: the guardian has it
 * from the kernel: it was typed (^C), or the terminal has gone; only its group has got it. */
enum tree_copy guardian_how_came(struct guardian_link *link, int signo);

/* Helpers that no sweep kills, and for which the end does not wait; NULL: none. Borrowed. */
struct spare *guardian_spared(const struct guardian_link *link);

/* When the agent exits, processes in other sessions live on; not in a pid namespace. */
void guardian_leave(struct guardian_link *link);
