#include "rendezvous/leader/parts/programs.h"

#include <stdio.h>
#include <string.h>

#define ADVICE                                                                                     \
    "give each job an --rdzv-id and an endpoint of its own; nodes that run something else in one " \
    "job need another --role"

static struct role_program *of_role(const struct programs *p, const char *role) {
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->roles[i].role, role) == 0)
            return &p->roles[i];
    return NULL;
}

static struct role_program *add_role(struct programs *p, const char *role,
                                     const struct rdzv_program *its) {
    if (p->n == GROUP_ROLES_MAX)
        return NULL;
    p->roles = xrealloc(p->roles, (p->n + 1) * sizeof *p->roles);
    struct role_program *r = &p->roles[p->n++];
    *r = (struct role_program){.program = *its};
    (void)snprintf(r->role, sizeof r->role, "%s", role);
    return r;
}

void programs_init(struct programs *p, const struct group_config *config) {
    *p = (struct programs){.config = config};
    if (config->program.shown[0] != '\0')
        (void)add_role(p, config->role, &config->program);
}

void programs_fini(struct programs *p) {
    free(p->roles);
    *p = (struct programs){0};
}

/* Some jobs give each node its own arguments (--node_rank=$SLURM_NODEID); that is visible before
 * this leader's first group. A node that comes later with other arguments, when all nodes had the
 * same, belongs to another job; so does one for which the job has no room. */
static bool may_have_own_args(enum job_stage stage, const struct role_program *r) {
    return r->differ || stage == JOB_WITHOUT_GROUP || (stage == JOB_WITH_ROOM && r->n_alike < 2);
}

bool programs_refuse(const struct programs *p, enum job_stage stage, const char *role,
                     const struct rdzv_program *its, char *why, size_t size) {
    const struct role_program *r = of_role(p, role);
    const struct rdzv_program *own = &p->config->program, *ours = r != NULL ? &r->program : own;
    const char *what = NULL;
    bool alike = strcmp(its->shown, ours->shown) == 0;
    if (its->shown[0] == '\0')
        return false;
    if (r == NULL) /* the first of its role */
        what = NULL;
    else if (its->name != ours->name)
        what = alike ? "run in another way (with or without --no-python)" : "another program";
    else if (its->args != ours->args && !may_have_own_args(stage, r))
        what = "the same program with other arguments";
    if (what != NULL) {
        (void)snprintf(why, size, "it was started with '%s', and the job there runs '%s', %s: %s",
                       its->shown, ours->shown, what, ADVICE);
        return true;
    }
    if (its->max_restarts == p->config->rdzv.max_restarts || own->shown[0] == '\0')
        return false;
    (void)snprintf(why, size,
                   "it was started with '%s' and --max-restarts=%u, and the job there runs '%s' "
                   "with --max-restarts=%u: give all nodes of a job the same, and each job an "
                   "--rdzv-id and an endpoint of its own",
                   its->shown, its->max_restarts, ours->shown, p->config->rdzv.max_restarts);
    return true;
}

bool programs_add(struct programs *p, const char *role, const char *node,
                  const struct rdzv_program *its, char *text, size_t size) {
    struct role_program *r = of_role(p, role);
    if (its->shown[0] == '\0')
        return false;
    if (r == NULL)
        r = add_role(p, role, its);
    if (r == NULL || its->name != r->program.name)
        return false;
    if (its->args == r->program.args) {
        r->n_alike++;
        return false;
    }
    if (r->differ)
        return false;
    r->differ = true;
    char both[2 * sizeof its->shown + 64];
    if (strcmp(its->shown, r->program.shown) == 0)
        (void)snprintf(both, sizeof both, "'%s' on both, what '...' stands for differs",
                       its->shown);
    else
        (void)snprintf(both, sizeof both, "'%s', not '%s'", its->shown, r->program.shown);
    (void)snprintf(text, size,
                   "node %s was started with other arguments than this job's first node (%s); "
                   "that is allowed, but if these are two jobs, give each an --rdzv-id of "
                   "its own",
                   node, both);
    return true;
}
