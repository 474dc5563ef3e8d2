/* Which processes have got a signal that the agent got. Some senders signal one process, which must
 * pass the signal on: kill(1), a terminal, Kubernetes, Slurm with proctrack/cgroup. Others signal
 * every process of a job: Slurm with proctrack/linuxproc, systemd with KillMode=control-group.
 * Workers must get each signal once. Pure.
 *
 * The witness (witness_io.h) is placed as workers are: a signal that has reached it has reached
 * them. The agent's copies of a signal, one directly and one from its guardian, and the witness's
 * arrive in any order.
 *
 *     tree_signals_came(&t, signo, how, witnessed, now)   for each copy that the agent gets
 *     tree_signals_witnessed(&t, signo, at)               the witness has got it
 *     tree_signals_time(&t, now)                          when tree_signals_deadline() is over
 *
 * Each returns what is now known about a signal. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* How long an agent waits for its witness before it passes a signal on. Slurm signals all processes
 * in one loop. While a worker waits for its signal, nothing is lost but this time. */
#define TREE_WAIT_NS (200 * NS_PER_MS)
/* How much later the second copy of a signal that all processes have got may come. */
#define TREE_ECHO_NS (500 * NS_PER_MS)

#define TREE_SIGNALS_MAX 65 /* signal numbers are below it */

enum tree_answer {
    TREE_NOTHING = 1, /* nothing new: a second copy */
    TREE_WAIT,        /* a new signal; not known yet whether workers have got it */
    TREE_ALONE,       /* only the agent has got it: workers need it */
    TREE_ALL,         /* all processes that existed then have got it */
};

/* A copy of the agent's. */
enum tree_copy {
    TREE_COPY_DIRECT = 0,
    TREE_COPY_FORWARDED, /* by the guardian */
    TREE_COPY_ALONE,     /* no other process can have got it: it was typed at a terminal */
};

struct tree_news {
    enum tree_answer answer;
    int signo;
    uint64_t at_ns; /* ALONE: when it came here; ALL: when it came to the witness */
};

struct tree_signals {
    struct tree_signal {
        uint64_t came_ns; /* waited for since then; 0: it is not */
        uint64_t all_ns;  /* the witness's last copy, or the first one without it; 0: none */
        unsigned copies;  /* of that signal, the agent's own: bits 1 << how */
    } signals[TREE_SIGNALS_MAX];
};

/* A copy of the signal has come to the agent. Without a witness a new one is ALONE. */
struct tree_news tree_signals_came(struct tree_signals *t, int signo, enum tree_copy how,
                                   bool witnessed, uint64_t now_ns);
/* The witness has got the signal at this time. */
struct tree_news tree_signals_witnessed(struct tree_signals *t, int signo, uint64_t at_ns);
/* When tree_signals_time() is due; TIME_NEVER: nothing is waited for. */
uint64_t tree_signals_deadline(const struct tree_signals *t);
/* Returns one signal that the witness has not got in time, ALONE, until it returns NOTHING. */
struct tree_news tree_signals_time(struct tree_signals *t, uint64_t now_ns);
