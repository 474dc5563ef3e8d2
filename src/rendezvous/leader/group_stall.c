/* Groups that end soon after their start, or before it, though no worker failed: a lease that runs
 * out, a node that is lost, a FORM that is refused. Each costs nothing; so they are counted, or a
 * job of which every group ends like that would be started again for ever. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* In a row; those after which the job was smaller than ever do not count, as there is an end to
 * that. */
#define STALLS_MAX 8
/* A misfortune seldom comes alone: after so many the next group has to wait. */
#define STALLS_FREE 2
#define PAUSE_STEPS_MAX 4 /* 16 times */

/* How long a group has to run to have got somewhere. What ends it may be noticed so much later. */
static uint64_t soon_ns(const struct group *g) {
    return g->config.crash_loop_ns + g->config.lease_ns + g->config.margin_ns;
}

bool group_is_stalling(const struct group *g) {
    return g->stalls > 0 && (g->started_ns == 0 || g->now_ns - g->started_ns < soon_ns(g));
}

static void pause_before_next(struct group *g) {
    char text[160];
    if (g->stalls <= STALLS_FREE)
        return;
    uint64_t pause_ns = g->config.crash_loop_ns / 2
                        << MIN2(g->stalls - STALLS_FREE - 1, (uint32_t)PAUSE_STEPS_MAX);
    g->not_before_ns = MAX2(g->not_before_ns, g->now_ns + pause_ns);
    (void)snprintf(text, sizeof text,
                   "%u groups in a row ended before they had run for %g s, though no worker "
                   "failed: the next one waits %g s",
                   g->stalls, (double)soon_ns(g) / 1e9, (double)pause_ns / 1e9);
    group_incident(g, text);
}

static void give_up(struct group *g) {
    char why[RDZV_REASON_MAX / 2];
    if (g->reason[0] == '\0' && g->has_cause)
        group_cause_text(g, why, sizeof why);
    else
        (void)snprintf(why, sizeof why, "%.1000s", g->reason);
    (void)snprintf(g->reason, sizeof g->reason,
                   "no group lasts: the last %u ended before they had run for %g s, though no "
                   "worker failed, the last one because %s; remove that cause, or give "
                   "--crash-loop=0 to keep trying",
                   g->stalls, (double)soon_ns(g) / 1e9, why);
}

bool group_note_stall(struct group *g, bool worker_failed) {
    bool ran = g->started_ns != 0 && g->stop_since_ns - g->started_ns >= soon_ns(g);
    if (ran)
        g->stalls = g->stalls_counted = 0;
    if (ran || worker_failed || g->stop_wished || g->config.crash_loop_ns == 0)
        return true;
    size_t left = g->tally[TALLY_HOPEFUL];
    if (g->stalls++ > 0 && left < g->stalls_least)
        g->stalls_least = left;
    else if (g->stalls_counted++ == 0)
        g->stalls_least = left;
    if (g->stalls_counted >= STALLS_MAX) {
        give_up(g);
        return false;
    }
    pause_before_next(g);
    return true;
}
