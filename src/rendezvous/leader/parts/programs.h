/* Whether a node that comes runs this job's program, or is of another job with the same run id and
 * endpoint (muster-rendezvous(7), "Another job's nodes"). */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

/* Distinct --role names in one job. */
#define GROUP_ROLES_MAX 64

/* The program of the leader's own node, or of the first that came. */
struct role_program {
    char role[RDZV_ROLE_MAX];
    struct rdzv_program program;
    uint32_t n_alike; /* nodes that came with the same arguments */
    bool differ;      /* some came with arguments of their own */
};

struct programs {
    const struct group_config *config; /* borrowed */
    struct role_program *roles;
    size_t n; /* at most GROUP_ROLES_MAX */
};

/* It decides how a node with other arguments is treated. */
enum job_stage {
    JOB_WITHOUT_GROUP, /* this leader has formed none yet */
    JOB_WITH_ROOM,     /* it has, and there are fewer nodes than max */
    JOB_FULL,
};

void programs_init(struct programs *p, const struct group_config *config);
void programs_fini(struct programs *p);

/* True: the node is of another job; fills in why. */
_must_use_ bool programs_refuse(const struct programs *p, enum job_stage stage, const char *role,
                                const struct rdzv_program *its, char *why, size_t size);
/* True: it is the first of its role whose arguments differ; `text` is a sentence about it. */
_must_use_ bool programs_add(struct programs *p, const char *role, const char *node,
                             const struct rdzv_program *its, char *text, size_t size);
