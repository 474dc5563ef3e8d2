/* Whether a node that comes runs this job's program, or is of another job with the same run id and
 * endpoint (muster-rendezvous(7), "Another job's nodes"). */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

#define ADVICE                                                                                     \
    "give each job an --rdzv-id and an endpoint of its own; nodes that run something else in one " \
    "job need another --role"

static struct role_program *of_role(const struct group *g, const char *role) {
    for (size_t i = 0; i < g->n_programs; i++)
        if (strcmp(g->programs[i].role, role) == 0)
            return &g->programs[i];
    return NULL;
}

static struct role_program *add_role(struct group *g, const char *role,
                                     const struct rdzv_program *its) {
    if (g->n_programs == GROUP_ROLES_MAX)
        return NULL;
    g->programs = xrealloc(g->programs, (g->n_programs + 1) * sizeof *g->programs);
    struct role_program *r = &g->programs[g->n_programs++];
    *r = (struct role_program){.program = *its};
    (void)snprintf(r->role, sizeof r->role, "%s", role);
    return r;
}

void group_add_own_program(struct group *g) {
    if (g->config.program.shown[0] != '\0')
        (void)add_role(g, g->config.role, &g->config.program);
}

/* Some jobs give each node its own arguments (--node_rank=$SLURM_NODEID); that is visible before
 * this leader's first group. A node that comes later with other arguments, when all nodes had the
 * same, belongs to another job; so does one for which the job has no room. */
static bool may_have_own_args(const struct group *g, const struct role_program *r) {
    bool has_room = g->roster.tally[TALLY_HOPEFUL] < g->config.rdzv.max_nodes;
    return r->differ || !g->formation.formed_here || (has_room && r->n_alike < 2);
}

bool group_refuses_program(const struct group *g, const char *role, const struct rdzv_program *its,
                           char why[RDZV_REASON_MAX]) {
    const struct role_program *r = of_role(g, role);
    const struct rdzv_program *own = &g->config.program, *ours = r != NULL ? &r->program : own;
    const char *what = NULL;
    if (its->shown[0] == '\0')
        return false;
    if (r == NULL) /* the first of its role */
        what = NULL;
    else if (its->name != ours->name)
        what = strcmp(its->shown, ours->shown) == 0
                   ? "run in another way (with or without --no-python)"
                   : "another program";
    else if (its->args != ours->args && !may_have_own_args(g, r))
        what = "the same program with other arguments";
    if (what != NULL) {
        (void)snprintf(why, RDZV_REASON_MAX,
                       "it was started with '%s', and the job there runs '%s', %s: %s", its->shown,
                       ours->shown, what, ADVICE);
        return true;
    }
    if (its->max_restarts == g->config.rdzv.max_restarts || own->shown[0] == '\0')
        return false;
    (void)snprintf(why, RDZV_REASON_MAX,
                   "it was started with '%s' and --max-restarts=%u, and the job there runs '%s' "
                   "with --max-restarts=%u: give all nodes of a job the same, and each job an "
                   "--rdzv-id and an endpoint of its own",
                   its->shown, its->max_restarts, ours->shown, g->config.rdzv.max_restarts);
    return true;
}

void group_add_program(struct group *g, const struct node *n, const struct rdzv_program *its) {
    struct role_program *r = of_role(g, n->info.role);
    if (its == NULL || its->shown[0] == '\0')
        return;
    if (r == NULL)
        r = add_role(g, n->info.role, its);
    if (r == NULL || its->name != r->program.name)
        return;
    if (its->args == r->program.args) {
        r->n_alike++;
        return;
    }
    if (r->differ)
        return;
    r->differ = true;
    char name[RDZV_HOST_MAX], both[2 * sizeof its->shown + 64], text[RDZV_REASON_MAX];
    node_name(n, name);
    if (strcmp(its->shown, r->program.shown) == 0)
        (void)snprintf(both, sizeof both, "'%s' on both, what '...' stands for differs",
                       its->shown);
    else
        (void)snprintf(both, sizeof both, "'%s', not '%s'", its->shown, r->program.shown);
    (void)snprintf(text, sizeof text,
                   "node %s was started with other arguments than this job's first node (%s); "
                   "that is allowed, but if these are two jobs, give each an --rdzv-id of its own",
                   name, both);
    group_notice(g, text);
}
