/* Which nodes are admitted, and which are excluded. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static void refuse(struct group *g, uint64_t node, const char *text, bool for_now) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->for_now = for_now;
    group_set_reason(g, e, text);
}

/* The reason of the end, if too few nodes come. */
static void remember_refused(struct group *g, const char *host, const char *why) {
    (void)snprintf(g->gathering.refused_host, sizeof g->gathering.refused_host, "%s", host);
    (void)snprintf(g->gathering.refused_why, sizeof g->gathering.refused_why, "%s", why);
}

static enum job_stage stage_of(const struct group *g) {
    if (!g->formation.formed_here)
        return JOB_WITHOUT_GROUP;
    return g->roster.tally[TALLY_HOPEFUL] < g->config.rdzv.max_nodes ? JOB_WITH_ROOM : JOB_FULL;
}

struct node *group_admit(struct group *g, const struct node_info *info,
                         const struct rdzv_program *program) {
    bool for_now = false;
    char text[RDZV_REASON_MAX];
    const char *why = NULL;
    if (program != NULL &&
        programs_refuse(&g->programs, stage_of(g), info->role, program, text, sizeof text))
        why = text;
    else
        why = roster_refusal(&g->roster, &g->config, info, &for_now);
    if (why != NULL) {
        refuse(g, info->incarnation, why, for_now);
        remember_refused(g, info->host, why);
        return NULL;
    }
    if (strcmp(g->gathering.refused_host, info->host) == 0) /* it was started again */
        remember_refused(g, "", "");
    struct node *n = roster_add(&g->roster, info);
    if (g->roster.n <= GROUP_REACH_AT_ONCE)
        (void)group_emit(g, GROUP_EFFECT_REACH, info->incarnation);
    return n;
}

void group_add_program(struct group *g, const struct node *n, const struct rdzv_program *program) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
    node_name(n, name);
    if (program != NULL &&
        programs_add(&g->programs, n->info.role, name, program, text, sizeof text))
        group_notice(g, text);
}

void group_exclude(struct group *g, struct node *n, const char *why) {
    char name[RDZV_HOST_MAX], text[2 * RDZV_HOST_MAX + 64];
    node_name(n, name);
    n->report.excluded = true;
    (void)snprintf(n->report.excluded_why, sizeof n->report.excluded_why, "%s", why);
    policy_exclude_host(&g->policy, n->info.host);
    group_recount(g, n);
    (void)snprintf(text, sizeof text, "node %s is excluded: %s", name, why);
    group_notice(g, text);
    (void)group_add_to_timeline(g, TIMELINE_NODE_EXCLUDED, n, why);
    if (!n->is_member)
        group_notify(g, n);
}
