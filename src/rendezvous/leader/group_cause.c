/* Which failure came first: times of different nodes brought to one clock; within the error of
 * that, what explains most goes first. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* An offset is never known better than this: scheduling alone costs as much. */
#define CLOCK_ERROR_MIN_NS (2 * NS_PER_MS)
/* Clocks drift apart by less than one part in this many: an old measurement is worth less. */
#define CLOCK_DRIFT_PART UINT64_C(2000)
/* Better causes of one stop that are told at once; what follows is told when it is settled. */
#define RETELL_MAX 8
/* Before the first measured round trip. */
#define CLOCK_ERROR_UNKNOWN_NS (100 * NS_PER_MS)

void group_node_name(const struct node *n, char out[RDZV_HOST_MAX]) {
    if (n->is_member && n->place.host_index > 0)
        (void)snprintf(out, RDZV_HOST_MAX, "%.110s-%u", n->info.host, n->place.host_index + 1);
    else
        (void)snprintf(out, RDZV_HOST_MAX, "%s", n->info.host);
}

void group_unusable_text(const struct node *n, char out[RDZV_REASON_MAX]) {
    char name[RDZV_HOST_MAX];
    group_node_name(n, name);
    (void)snprintf(out, RDZV_REASON_MAX, "node %s can't take part any more: %.1800s", name,
                   n->report.unusable);
}

/* A round trip is over when the node has the LEASE: its next RENEW tells how long it took, and
 * which LEASE it means. The leader's clock was read somewhere within it; take the middle. (A RENEW
 * alone says little: it may have lain in a socket while the leader slept.) */
void group_note_clock(struct group *g, struct node *n, const struct renew *renew) {
    if (renew->rtt_ns != 0 && renew->leader_clock_ns != 0 &&
        renew->leader_clock_ns == n->answered_ns) {
        uint64_t error = MAX2(renew->rtt_ns / 2, CLOCK_ERROR_MIN_NS);
        uint64_t aged = n->error_ns + (g->now_ns - n->offset_at_ns) / CLOCK_DRIFT_PART;
        if (!n->offset_known || error <= aged + aged / 4) {
            n->offset_ns =
                (int64_t)n->answered_ns - (int64_t)n->asked_ns - (int64_t)(renew->rtt_ns / 2);
            n->error_ns = error;
            n->offset_at_ns = g->now_ns;
            n->offset_known = true;
        }
    } else if (!n->offset_known) {
        n->offset_ns = (int64_t)g->now_ns - (int64_t)renew->clock_ns; /* better than nothing */
    }
    n->asked_ns = renew->clock_ns;
    n->answered_ns = g->now_ns;
}

bool group_note_failure(struct group *g, const struct node *n, const struct failure *failure) {
    int64_t at = (int64_t)failure->at_ns + n->offset_ns;
    uint64_t error = n->offset_known ? n->error_ns : CLOCK_ERROR_UNKNOWN_NS;
    if (n->info.incarnation == g->config.leader_incarnation) {
        at = (int64_t)failure->at_ns;
        error = 0;
    }
    if (g->has_cause) {
        uint64_t sum = MAX2(error + g->cause_error_ns, (uint64_t)FAILURE_ECHO_NS);
        int64_t later = at - g->cause_at_ns;
        bool undecided = later <= (int64_t)sum && -later <= (int64_t)sum;
        int more_noise = failure_noise(failure) - failure_noise(&g->cause);
        if (undecided && more_noise != 0 ? more_noise > 0 : later >= 0)
            return false;
    }
    g->has_cause = true;
    g->cause = *failure;
    g->cause_at_ns = at;
    g->cause_error_ns = error;
    return true;
}

/* ---- a failure, or a loss ---- */

static bool has_stopped_now(const struct node *n) {
    return (n->tallied & 1u << TALLY_STOPPED) != 0;
}

bool group_outlived_failure(const struct group *g, const struct node *n) {
    return has_stopped_now(n) || n->info.incarnation == g->config.leader_incarnation ||
           n->heard_ns > g->stop_since_ns + g->config.settle_ns;
}

/* Where there is one node, its loss leaves nobody to go on; but what explains a failure may be
 * heard a little later. */
bool group_cause_in_doubt(const struct group *g) {
    return failure_noise(&g->cause) > 0 || (g->n_nodes > 1 && failure_may_end_node(&g->cause));
}

/* Workers were killed, and their agent may be next. That it said that all had stopped lets the job
 * start them again; a job that would end for it waits longer. */
static bool killed_alone(const struct group *g, bool budget_spent) {
    const struct node *n = group_find(g, g->cause.incarnation);
    if (n == NULL || !n->is_member)
        return true;
    if (!has_stopped_now(n))
        return false;
    return !budget_spent || (n->connected && g->now_ns >= g->stop_since_ns + g->config.settle_ns);
}

bool group_cause_is_certain(const struct group *g, bool budget_spent) {
    if (failure_may_end_node(&g->cause))
        return killed_alone(g, budget_spent);
    if (failure_noise(&g->cause) == 0 || g->tally[TALLY_STOPPED] == g->n_members)
        return true;
    for (size_t i = 0; i < g->n_members; i++)
        if (!group_outlived_failure(g, g->members[i]))
            return false;
    return true;
}

bool group_cause_is_loss_of(const struct group *g, uint64_t incarnation, bool outlived) {
    if (failure_may_end_node(&g->cause))
        return g->cause.incarnation == incarnation;
    return failure_noise(&g->cause) > 0 && !outlived;
}

/* What was said of it before is put right; while nothing was said, there is time. */
void group_better_cause(struct group *g) {
    if (g->cause_withheld && !group_cause_in_doubt(g))
        group_cause_settled(g);
    if (!g->cause_withheld && g->settle_deadline_ns != TIME_NEVER && ++g->retold <= RETELL_MAX)
        group_tell_members(g);
    else
        g->cause_retold = true;
}

/* ---- in words ---- */

static void what_happened(const struct failure *f, char *out, size_t len) {
    switch (f->kind) {
    case FAILURE_EXIT: (void)snprintf(out, len, "exit code %d", f->code); break;
    case FAILURE_SIGNAL: (void)snprintf(out, len, "signal %d", f->code); break;
    case FAILURE_OOM: (void)snprintf(out, len, "out of memory"); break;
    case FAILURE_SPAWN: (void)snprintf(out, len, "could not be started"); break;
    case FAILURE_NODE: (void)snprintf(out, len, "the node could not go on"); break;
    case FAILURE_NONE:
    case FAILURE_KIND_COUNT: assert_not_reached();
    }
}

void group_cause_text(const struct group *g, char *out, size_t len) {
    const struct failure *f = &g->cause;
    char what[64];
    what_happened(f, what, sizeof what);
    size_t end = strnlen(f->text, sizeof f->text);
    while (end > 0 && f->text[end - 1] == '\n')
        end--;
    const char *last = f->text + end;
    while (last > f->text && last[-1] != '\n')
        last--;
    (void)snprintf(out, len, "rank %u failed: %s%s%.*s", f->rank, what, end > 0 ? ": " : "",
                   (int)MIN2((size_t)(f->text + end - last), (size_t)300), last);
}
