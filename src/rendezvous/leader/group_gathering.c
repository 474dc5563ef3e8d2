/* GATHERING lasts until there are enough candidates, and nothing of the last group can still be
 * running. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

void group_enter_gathering(struct group *g) {
    group_close_store(g);
    formation_end(&g->formation);
    g->running.since_ns = 0;
    group_move(g, GROUP_GATHERING);
    g->gathering.since_ns = g->now_ns;
    g->gathering.enough_since_ns = TIME_NEVER;
    formation_recount_all(&g->formation, &g->roster);
    g->gathering.idle_unsent = true;
}

/* There are enough candidates. A group can be formed, unless it has to wait for a time or the
 * arbiter. */
static bool may_form(struct group *g) {
    return g->now_ns >= g->gathering.not_before_ns && !group_somebody_unresolved(g) &&
           group_has_epoch_to_form(g) && group_is_confirmed(g) && group_successors_settled(g);
}

/* All are here who can be members. */
static bool is_full(const struct group *g) {
    uint32_t most = g->gathering.expected > 0 ? g->gathering.expected : UINT32_MAX;
    size_t full = formation_size(&g->config, most);
    return full > 0 && formation_size(&g->config, g->roster.tally[TALLY_CANDIDATE]) >= full;
}

uint64_t group_gather_deadline(const struct group *g) {
    uint64_t t;
    if (g->gathering.enough_since_ns == TIME_NEVER) {
        if (!g->formation.started_once)
            return g->gathering.since_ns + g->config.rdzv.join_timeout_ns;
        return group_somebody_unresolved(g)
                   ? TIME_NEVER
                   : MAX2(g->gathering.since_ns + g->config.rdzv.regroup_wait_ns,
                          group_patient_until(g));
    }
    if (group_somebody_unresolved(g))
        return TIME_NEVER;
    if (is_full(g))
        t = 0; /* it need not wait for other nodes */
    else if (!g->formation.formed_once)
        t = g->gathering.enough_since_ns + g->config.rdzv.last_call_ns;
    else
        t = g->gathering.lost_somebody ? g->gathering.since_ns + g->config.rdzv.regroup_wait_ns : 0;
    return MAX2(t, g->gathering.not_before_ns);
}

static void form(struct group *g) {
    formation_choose(&g->formation, &g->roster, &g->config, g->leadership.epoch,
                     g->policy.restarts_used, g->policy.losses);
    if (g->incident.detected_ns != 0 && g->incident.stopped_ns == 0)
        /* the workers stopped because the last leader was lost */
        g->incident.stopped_ns = g->now_ns;
    g->running.grow_asked = false;
    g->gathering.n_left = 0;
    cause_forget(&g->cause);
    g->stopping.after = AFTER_STOP_GATHERING;
    g->forming.sent = false;
    g->reason[0] = '\0';
    g->forming.store_wanted = true;
    g->forming.deadline_ns = TIME_NEVER;
    group_move(g, GROUP_FORMING);
    group_name_successors(g);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (!n->is_member)
            group_notify(g, n); /* a spare */
    struct group_effect *e = group_emit(g, GROUP_EFFECT_STORE_OPEN, 0);
    e->generation = g->formation.generation;
    e->n_nodes = (uint32_t)g->formation.n_members;
}

static void give_up_gathering(struct group *g, size_t candidates) {
    char text[RDZV_REASON_MAX];
    if (g->formation.started_once && group_misses_who_left(g)) {
        group_close_interrupted(g);
        return;
    }
    if (g->formation.started_once) {
        (void)snprintf(text, sizeof text, "%zu of at least %u nodes left%s%s", candidates, g->need,
                       g->gathering.last_lost[0] != '\0' ? "; lost: " : "", g->gathering.last_lost);
    } else {
        struct rdzv_status s = {0};
        roster_status(&g->roster, &g->config, &s);
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        for (uint32_t i = 0; i < s.n_names; i++)
            strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", s.names[i]);
        _cleanup_(strbuf_fini) struct strbuf advice = {0};
        if (g->gathering.refused_why[0] != '\0')
            strbuf_printf(&advice, "node %s was refused: %s", g->gathering.refused_host,
                          g->gathering.refused_why);
        else
            strbuf_add(&advice, "start the missing ones, or wait longer: "
                                "--rdzv-conf=join_timeout=S (timeout=S with static)");
        (void)snprintf(text, sizeof text,
                       "only %zu of at least %u nodes came within %.0f s%s%.800s%s; %.1000s",
                       candidates, g->need,
                       (double)g->config.rdzv.join_timeout_ns / (double)NS_PER_S,
                       names.len > 0 ? " (here: " : "", strbuf_text(&names),
                       names.len > 0 ? ")" : "", strbuf_text(&advice));
        group_interrupted(g); /* the job has not begun: with more nodes it still can */
    }
    group_close_failed(g, text);
}

/* All nodes of the last leader's group report that it had finished: it is not run again. */
static bool was_finished_before(const struct group *g) {
    return g->formation.n_old_members > 0 &&
           g->roster.tally[TALLY_OLD_FINISHED] == g->formation.n_old_members;
}

void group_advance_gathering(struct group *g) {
    if (group_is_leaving(g))
        return; /* the next leader forms the group */
    size_t candidates = g->roster.tally[TALLY_CANDIDATE];
    bool enough = formation_size(&g->config, candidates) > 0;
    if (was_finished_before(g)) {
        g->outcome = OUTCOME_SUCCESS;
        group_enter_closed(g);
        return;
    }
    if (policy_losses_spent(&g->policy, &g->config)) {
        char text[128];
        (void)snprintf(text, sizeof text, "%u nodes were lost, and --max-node-losses is %u",
                       g->policy.losses, g->config.rdzv.max_node_losses);
        group_close_failed(g, text);
        return;
    }
    if (!enough)
        g->gathering.enough_since_ns = TIME_NEVER;
    else if (g->gathering.enough_since_ns == TIME_NEVER)
        g->gathering.enough_since_ns = g->now_ns;

    bool due = g->now_ns >= group_gather_deadline(g);
    if (is_full(g) || (enough && due)) {
        if (may_form(g))
            form(g);
        return;
    }
    if (!enough && due &&
        (!g->formation.started_once || g->roster.tally[TALLY_HOPEFUL] < g->need ||
         g->config.rdzv.regroup_wait_ns > 0))
        give_up_gathering(g, candidates);
}
