/* ^Z at a terminal: what the shell sees stops, and the job goes on.
 *
 * The shell waits for the guardian, so the guardian must stop: the kernel reports no other process
 * to the shell. Before it stops, it starts a deputy, a copy of itself in a process group of its
 * own, which does the guardian's work until then:
 *
 *     lease over        the deputy kills what outlives it, as the guardian does
 *     agent dies        the deputy continues the guardian (SIGCONT), which ends everything
 *     guardian dies     the agent ends everything, as ever; the kernel kills the deputy
 *
 * The deputy exists only during a suspension, so jobs without ^Z don't pay for it. A signal to the
 * stopped guardian waits until it is continued, as for any stopped process. */
#pragma once

#include <sys/types.h>

struct suspend_config {
    pid_t agent;
    int lease_fd;                  /* readable when the lease is over */
    void (*begin)(void *arg);      /* in the deputy, first: closes what is only the guardian's */
    void (*lease_over)(void *arg); /* in the deputy, when lease_fd is readable */
    void *arg;
};

/* Stops this process as SIGTSTP does, until SIGCONT. The agent gets SIGTSTP when it has stopped.
 * All signals must be blocked. Returns at once if the kernel does not stop it, because no shell
 * could continue it (an orphaned process group), or if there can be no deputy. */
void suspend_self(const struct suspend_config *config);
