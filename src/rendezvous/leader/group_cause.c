/* Why a group stops: which failure came first, whether it is one at all or part of a node's loss,
 * and when that is certain; and what failures and losses cost (muster-rendezvous(7), "Budgets"). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "rendezvous/leader/group_priv.h"

/* In one stop; later ones are reported when the cause is settled. */
#define BETTER_AT_ONCE_MAX 8
/* Excluded hosts that are kept. */
#define HOSTS_MAX 256
#define BACKOFF_STEPS_MAX 5 /* 32 times */

bool group_shows_cause(const struct group *g) {
    return g->cause.state == CAUSE_SURE || g->cause.state == CAUSE_CHARGED;
}

bool group_cause_is_pending(const struct group *g) {
    return g->cause.state == CAUSE_IN_DOUBT || g->cause.state == CAUSE_SURE;
}

/* If the times of two differ by less than their error, the failure that explains most counts as
 * the first. */
bool group_add_cause(struct group *g, const struct failure *f, int64_t at_ns, uint64_t error_ns) {
    struct cause *c = &g->cause;
    if (c->state != CAUSE_NONE) {
        uint64_t sum = MAX2(error_ns + c->error_ns, (uint64_t)FAILURE_ECHO_NS);
        int64_t later = at_ns - c->at_ns;
        bool undecided = later <= (int64_t)sum && -later <= (int64_t)sum;
        int more_noise = failure_noise(f) - failure_noise(&c->failure);
        if (undecided && more_noise != 0 ? more_noise > 0 : later >= 0)
            return false;
    } else {
        c->state = CAUSE_SURE;
    }
    c->failure = *f;
    c->at_ns = at_ns;
    c->error_ns = error_ns;
    return true;
}

bool group_add_failure(struct group *g, const struct node *n, const struct failure *f) {
    uint64_t error_ns;
    int64_t at_ns = node_clock_ours(&n->clock, f->at_ns, &error_ns);
    if (n->info.incarnation == g->config.leader_incarnation) {
        at_ns = (int64_t)f->at_ns;
        error_ns = 0;
    }
    return group_add_cause(g, f, at_ns, error_ns);
}

/* If the job has only one node, no other can continue after its loss. But the failure that explains
 * another one may arrive a little later. */
bool group_cause_may_be_loss(const struct group *g) {
    const struct failure *f = &g->cause.failure;
    return failure_noise(f) > 0 || (g->roster.n > 1 && failure_may_end_node(f));
}

bool group_cause_is_loss_of(const struct group *g, uint64_t incarnation, bool outlived) {
    const struct failure *f = &g->cause.failure;
    if (g->cause.state != CAUSE_IN_DOUBT)
        return false; /* a reported cause does not change */
    if (failure_may_end_node(f))
        return f->incarnation == incarnation;
    return failure_noise(f) > 0 && !outlived;
}

void group_make_cause_sure(struct group *g) {
    g->cause.state = CAUSE_SURE;
    g->cause.better_waits = false;
    g->reason[0] = '\0';
}

/* An earlier report is corrected at once. If nothing was reported, there is time. */
void group_better_cause(struct group *g) {
    struct cause *c = &g->cause;
    if (c->state == CAUSE_IN_DOUBT && !group_cause_may_be_loss(g))
        group_make_cause_sure(g);
    if (c->state != CAUSE_IN_DOUBT && c->settle_ns != TIME_NEVER &&
        ++c->n_better <= BETTER_AT_ONCE_MAX)
        group_notify_members(g);
    else
        c->better_waits = true;
}

bool group_outlived_failure(const struct group *g, const struct node *n) {
    return node_is(n, TALLY_STOPPED) || n->info.incarnation == g->config.leader_incarnation ||
           n->contact_ns > g->stopping.since_ns + g->config.settle_ns;
}

static bool all_outlived(const struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (!group_outlived_failure(g, g->formation.members[i]))
            return false;
    return true;
}

/* If workers were killed, their agent may be next. If it reported that all had stopped, the job can
 * start them again; a job that would end because of it waits longer. */
bool group_cause_is_certain(const struct group *g) {
    const struct failure *f = &g->cause.failure;
    const struct node *n = roster_find(&g->roster, f->incarnation);
    if (!failure_may_end_node(f))
        return failure_noise(f) == 0 || all_outlived(g);
    if (n == NULL || !n->is_member)
        return true;
    bool waited = g->now_ns >= g->stopping.since_ns + g->config.settle_ns;
    return node_is(n, TALLY_STOPPED) && (!group_budget_spent(g) || (n->connected && waited));
}

/* ---- restarts, losses and crash loops ---- */

void group_keep_counters(struct group *g, uint32_t restarts_used, uint32_t losses) {
    g->policy.restarts_used = MAX2(g->policy.restarts_used, restarts_used);
    g->policy.losses = MAX2(g->policy.losses, losses);
}

bool group_losses_spent(const struct group *g) {
    return g->policy.losses > g->config.rdzv.max_node_losses;
}

bool group_budget_spent(const struct group *g) {
    return group_cause_is_pending(g) && g->policy.restarts_used >= g->config.rdzv.max_restarts;
}

/* A kill by a person or by the system does not show that the program is wrong. */
static bool is_own_fault(const struct failure *f) {
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_SPAWN: return true;
    case FAILURE_SIGNAL: /* SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS */
        return (f->code >= 4 && f->code <= 8) || f->code == 11 || f->code == 31;
    case FAILURE_NONE:
    case FAILURE_OOM:
    case FAILURE_NODE:
    case FAILURE_HANG:
    case FAILURE_KIND_COUNT: return false;
    }
    assert_not_reached();
}

/* Without numbers, which are ranks, addresses and times. 0: not early, or not the program's
 * fault. */
static uint64_t hash_failure(const struct group *g, const struct failure *f) {
    if (f->ran_ns >= g->config.rdzv.crash_loop_ns || !is_own_fault(f))
        return 0;
    uint64_t h = HASH_BEGIN ^ ((uint64_t)f->kind << 32 | (uint32_t)f->code);
    size_t end = strnlen(f->text, sizeof f->text), begin;
    while (end > 0 && isspace((unsigned char)f->text[end - 1]))
        end--;
    for (begin = end; begin > 0 && f->text[begin - 1] != '\n';)
        begin--;
    bool hex = false;
    for (size_t i = begin; i < end; i++) {
        unsigned char byte = (unsigned char)f->text[i];
        hex = hex ? isxdigit(byte) : byte == 'x' && i > begin && f->text[i - 1] == '0';
        if (!hex && !isdigit(byte))
            h = hash_bytes(h, &byte, 1);
    }
    return h == 0 ? 1 : h;
}

/* The others can continue without it. */
static bool is_dispensable(const struct group *g, const struct node *n) {
    if (n == NULL)
        return false;
    size_t costs = 1;
    if (roster_has_domains(&g->roster)) {
        bool breaks = n->domain != NULL && n->domain->tally[TALLY_HOPEFUL] % g->roster.unit == 0;
        costs = breaks ? g->roster.unit : 0;
    }
    return roster_usable(&g->roster, TALLY_HOPEFUL) >= g->need + costs;
}

bool group_is_crash_loop(const struct group *g) {
    const struct failure *f = &g->cause.failure;
    if (!group_cause_is_pending(g))
        return false;
    uint64_t hash = hash_failure(g, f);
    bool will_be_excluded = f->incarnation == g->policy.fail_node &&
                            g->config.rdzv.exclude_after > 0 &&
                            is_dispensable(g, roster_find(&g->roster, f->incarnation));
    return hash != 0 && hash == g->policy.last_hash && !will_be_excluded;
}

static void exclude_who_fails(struct group *g) {
    struct policy *p = &g->policy;
    uint64_t incarnation = g->cause.failure.incarnation;
    struct node *n = roster_find(&g->roster, incarnation);
    p->fail_count = incarnation == p->fail_node ? p->fail_count + 1 : 1;
    p->fail_node = incarnation;
    if (g->config.rdzv.exclude_after == 0 || p->fail_count < g->config.rdzv.exclude_after ||
        !is_dispensable(g, n))
        return;
    char why[RDZV_HOST_MAX];
    (void)snprintf(why, sizeof why, "its workers failed %u times in a row", p->fail_count);
    p->fail_count = 0;
    group_exclude(g, n, why);
}

/* The pause before the restart. */
static uint64_t backoff_ns(struct group *g) {
    struct policy *p = &g->policy;
    uint64_t step = g->config.rdzv.restart_backoff_ns;
    if (step == 0)
        return 0;
    /* After a long run the pause is the shortest again. */
    if (g->stopping.since_ns - g->running.since_ns > step << BACKOFF_STEPS_MAX)
        p->backoff_step = 0;
    uint64_t pause_ns = step << p->backoff_step;
    if (p->backoff_step < BACKOFF_STEPS_MAX)
        p->backoff_step++;
    return pause_ns;
}

bool group_charge(struct group *g) {
    struct policy *p = &g->policy;
    const struct failure *f = &g->cause.failure;
    bool is_loop = group_is_crash_loop(g);
    g->cause.state = CAUSE_CHARGED;
    if (is_loop) {
        (void)snprintf(g->reason, sizeof g->reason,
                       "crash loop: the same failure within %g s of the start, twice in a row "
                       "(--crash-loop); %u of %u restarts were used",
                       (double)g->config.rdzv.crash_loop_ns / 1e9, p->restarts_used,
                       g->config.rdzv.max_restarts);
        return false;
    }
    p->restarts_used++;
    p->last_hash = hash_failure(g, f);
    if (f->kind != FAILURE_HANG || f->incarnation != 0)
        exclude_who_fails(g);
    group_form_not_before(g, g->now_ns + backoff_ns(g));
    return true;
}

bool group_host_is_excluded(const struct group *g, const char *host) {
    for (size_t i = 0; i < g->policy.n_hosts; i++)
        if (strcmp(g->policy.hosts[i], host) == 0)
            return true;
    return false;
}

void group_exclude_host(struct group *g, const char *host) {
    struct policy *p = &g->policy;
    if (group_host_is_excluded(g, host) || p->n_hosts == HOSTS_MAX)
        return;
    p->hosts = xrealloc(p->hosts, (p->n_hosts + 1) * sizeof *p->hosts);
    (void)snprintf(p->hosts[p->n_hosts++], RDZV_HOST_MAX, "%s", host);
}

/* ---- groups that end soon, though no worker failed ---- */

/* In a row. A group does not count if it leaves the job smaller than ever: that ends some time. */
#define STALLS_MAX 8
/* Losses often come together: after this many such groups, the next one has to wait. */
#define STALLS_FREE 2
#define PAUSE_STEPS_MAX 4 /* 16 times */

/* How long a group has to run to count as progress; what ends it is noticed later. */
static uint64_t soon_ns(const struct group *g) {
    return g->config.rdzv.crash_loop_ns + g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
}

bool group_is_stalling(const struct group *g) {
    return g->stalls.in_a_row > 0 &&
           (g->running.since_ns == 0 || g->now_ns - g->running.since_ns < soon_ns(g));
}

bool group_count_stall(struct group *g, bool worker_failed) {
    struct stalls *s = &g->stalls;
    uint64_t crash_loop_ns = g->config.rdzv.crash_loop_ns;
    size_t nodes_left = g->roster.tally[TALLY_HOPEFUL];
    bool ran = g->running.since_ns != 0 && g->stopping.since_ns - g->running.since_ns >= soon_ns(g);
    char text[RDZV_REASON_MAX / 2];
    if (ran)
        s->in_a_row = s->counted = 0;
    if (ran || worker_failed || g->stopping.wished || crash_loop_ns == 0)
        return true;
    if (s->in_a_row++ > 0 && nodes_left < s->fewest)
        s->fewest = nodes_left;
    else if (s->counted++ == 0)
        s->fewest = nodes_left;
    if (s->counted >= STALLS_MAX) {
        if (g->reason[0] == '\0' && g->cause.state != CAUSE_NONE)
            failure_copy_line(&g->cause.failure, "", text, sizeof text);
        else
            (void)snprintf(text, sizeof text, "%.1000s", g->reason);
        (void)snprintf(g->reason, sizeof g->reason,
                       "no group lasts: the last %u ended before they had run for %g s, although "
                       "no worker failed, the last one because %s; remove that cause, or give "
                       "--crash-loop=0 to keep trying",
                       s->in_a_row, (double)soon_ns(g) / 1e9, text);
        return false;
    }
    if (s->in_a_row <= STALLS_FREE)
        return true;
    uint32_t doublings = MIN2(s->in_a_row - STALLS_FREE - 1, (uint32_t)PAUSE_STEPS_MAX);
    uint64_t pause_ns = crash_loop_ns / 2 << doublings;
    group_form_not_before(g, g->now_ns + pause_ns);
    (void)snprintf(text, sizeof text,
                   "%u groups in a row ended before they had run for %g s, although no worker "
                   "failed: the next one waits %g s",
                   s->in_a_row, (double)soon_ns(g) / 1e9, (double)pause_ns / 1e9);
    group_notice(g, text);
    return true;
}
