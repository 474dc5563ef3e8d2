/* Whether a node that comes runs this job's program, or belongs to another job that was given the
 * same run id and endpoint. */
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
                                     const struct rdzv_program *p) {
    if (g->n_programs == GROUP_ROLES_MAX)
        return NULL;
    g->programs = xrealloc(g->programs, (g->n_programs + 1) * sizeof *g->programs);
    struct role_program *r = &g->programs[g->n_programs++];
    *r = (struct role_program){.program = *p};
    (void)snprintf(r->role, sizeof r->role, "%s", role);
    return r;
}

void group_program_begin(struct group *g) {
    if (g->config.program.shown[0] != '\0')
        (void)add_role(g, g->config.role, &g->config.program);
}

/* Some jobs give each node arguments of its own (--node_rank=$SLURM_NODEID): that shows before this
 * leader's first group. One that comes later, to nodes that were all alike, is of another job; also
 * one that there is no room for. */
static bool may_have_own_args(const struct group *g, const struct role_program *r) {
    bool room = g->tally[TALLY_HOPEFUL] < g->config.max_nodes;
    return r->differ || !g->formed_here || (room && r->n_alike < 2);
}

bool group_runs_other_program(const struct group *g, const char *role, const struct rdzv_program *p,
                              char *why, size_t size) {
    const struct role_program *r = of_role(g, role);
    const struct rdzv_program *ours = r != NULL ? &r->program : &g->config.program;
    const char *what = NULL;
    bool alike = strcmp(p->shown, ours->shown) == 0;
    if (p->shown[0] == '\0')
        return false;
    if (r == NULL) /* the first of its role */
        what = NULL;
    else if (p->name != ours->name)
        what = alike ? "run in another way (with or without --no-python)" : "another program";
    else if (p->args != ours->args && !may_have_own_args(g, r))
        what = "the same program with other arguments";
    if (what != NULL) {
        (void)snprintf(why, size, "it was started with '%s', and the job there runs '%s', %s: %s",
                       p->shown, ours->shown, what, ADVICE);
        return true;
    }
    if (p->max_restarts == g->config.max_restarts || g->config.program.shown[0] == '\0')
        return false;
    (void)snprintf(why, size,
                   "it was started with '%s' and --max-restarts=%u, and the job there runs '%s' "
                   "with --max-restarts=%u: give all nodes of a job the same, and each job an "
                   "--rdzv-id and an endpoint of its own",
                   p->shown, p->max_restarts, ours->shown, g->config.max_restarts);
    return true;
}

void group_note_program(struct group *g, const struct node *n, const struct rdzv_program *p) {
    struct role_program *r = of_role(g, n->info.role);
    if (p->shown[0] == '\0')
        return;
    if (r == NULL)
        r = add_role(g, n->info.role, p);
    if (r == NULL || p->name != r->program.name)
        return;
    if (p->args == r->program.args) {
        r->n_alike++;
    } else if (!r->differ) {
        char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX], both[2 * sizeof p->shown + 64];
        group_node_name(n, name);
        r->differ = true;
        if (strcmp(p->shown, r->program.shown) == 0)
            (void)snprintf(both, sizeof both, "'%s' on both, what '...' stands for differs",
                           p->shown);
        else
            (void)snprintf(both, sizeof both, "'%s', not '%s'", p->shown, r->program.shown);
        (void)snprintf(text, sizeof text,
                       "node %s was started with other arguments than this job's first node (%s); "
                       "that is allowed, but if these are two jobs, give each an --rdzv-id of "
                       "its own",
                       name, both);
        group_incident(g, text);
    }
}
