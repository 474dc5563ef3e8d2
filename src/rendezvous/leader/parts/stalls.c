#include "rendezvous/leader/parts/stalls.h"

#include <stdio.h>

/* The limit of groups without progress in a row. A group does not count if the job was smaller than
 * ever after it, because that can't go on for ever. */
#define STALLS_MAX 8
/* Losses often come together: after this many such groups, the next one has to wait. */
#define STALLS_FREE 2
#define PAUSE_STEPS_MAX 4 /* 16 times */

/* How long a group has to run to count as progress. The event that ends it may be noticed this much
 * later. */
static uint64_t soon_ns(const struct group_config *c) {
    return c->rdzv.crash_loop_ns + c->rdzv.lease_ns + c->rdzv.margin_ns;
}

bool stalls_go_on(const struct stalls *s, const struct group_config *c, uint64_t started_ns,
                  uint64_t now_ns) {
    return s->in_a_row > 0 && (started_ns == 0 || now_ns - started_ns < soon_ns(c));
}

uint64_t stalls_count(struct stalls *s, const struct group_config *c, const struct group_end *end) {
    bool ran = end->started_ns != 0 && end->stopped_ns - end->started_ns >= soon_ns(c);
    if (ran)
        s->in_a_row = s->counted = 0;
    if (ran || end->worker_failed || end->wished || c->rdzv.crash_loop_ns == 0)
        return 0;
    if (s->in_a_row++ > 0 && end->nodes_left < s->fewest)
        s->fewest = end->nodes_left;
    else if (s->counted++ == 0)
        s->fewest = end->nodes_left;
    if (s->counted >= STALLS_MAX)
        return TIME_NEVER;
    if (s->in_a_row <= STALLS_FREE)
        return 0;
    return c->rdzv.crash_loop_ns / 2
           << MIN2(s->in_a_row - STALLS_FREE - 1, (uint32_t)PAUSE_STEPS_MAX);
}

void stalls_pause_text(const struct stalls *s, const struct group_config *c, uint64_t pause_ns,
                       char *out, size_t size) {
    (void)snprintf(out, size,
                   "%u groups in a row ended before they had run for %g s, although no worker "
                   "failed: the next one waits %g s",
                   s->in_a_row, (double)soon_ns(c) / 1e9, (double)pause_ns / 1e9);
}

void stalls_end_text(const struct stalls *s, const struct group_config *c, const char *why,
                     char *out, size_t size) {
    (void)snprintf(out, size,
                   "no group lasts: the last %u ended before they had run for %g s, although no "
                   "worker failed, the last one because %s; remove that cause, or give "
                   "--crash-loop=0 to keep trying",
                   s->in_a_row, (double)soon_ns(c) / 1e9, why);
}
