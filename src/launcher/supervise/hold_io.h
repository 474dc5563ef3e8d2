/* Stops the workers of a node whose lease has ended while its agent did not run, and continues
 * them. Guardian and agent both do it, from one page that they share:
 *
 *     guardian, lease over:  hold_pass(&page, agent, true, except)     the workers are stopped
 *     agent, awake again:    hold_pass(…, true, …)                     as long as it asks
 *                            hold_pass(&page, agent, false, except)    the lease is back
 *
 * Workers are all processes below the agent that run in another session than the agent. So its
 * helpers run on. A process that was already stopped when the hold began was stopped by another
 * program, and is not continued. All calls are async-signal-safe. */
#pragma once

#include <stdatomic.h>

#include "launcher/supervise/sweep_io.h"

/* So many processes that another program has stopped are remembered. */
#define HOLD_FOREIGN_MAX 256

enum hold_phase {
    HOLD_NONE = 0,
    HOLD_BEGINS, /* the first pass is under way: it finds which processes are stopped already */
    HOLD_LASTS,
};

struct hold_page { /* 0: nothing is held */
    atomic_int phase;
    atomic_int foreign[HOLD_FOREIGN_MAX];
};

/* stop: sends SIGSTOP to all workers; repeated calls stop new processes, and those that another
 * program has continued. Else sends SIGCONT to all that it has stopped. */
void hold_pass(struct hold_page *page, pid_t agent, bool stop, const struct sweep_except *except);
