/* The members of a group, as the leader's watchdog numbers them: nodes in rank order. Pure. */
#pragma once

#include "base/util.h"
#include "rendezvous/leader/group.h"

struct hang_node {
    uint64_t incarnation;
    uint32_t first_rank, nproc;
    char name[RDZV_HOST_MAX]; /* in messages: "b", and "b-2" for the second agent of that host */
};

struct hang_group { /* zeroed: none */
    struct generation generation;
    uint32_t n_nodes, world_size;
    struct hang_node *nodes; /* owned, [n_nodes] */
    uint32_t *node_of;       /* owned, [world_size]: of each rank, its node's number */
};

/* The members of the present group. False, and *ret is empty: there are none, or more than
 * HANG_RANKS_MAX ranks. */
_must_use_ bool hang_group_read(const struct group *g, struct hang_group *ret);
/* The same of these nodes; their first_rank is filled in. Copied. */
_must_use_ bool hang_group_make(struct generation generation, const struct hang_node *nodes,
                                size_t n, struct hang_group *ret);
void hang_group_copy(const struct hang_group *from, struct hang_group *ret);
void hang_group_fini(struct hang_group *g); /* *g is empty then */
/* The number of this node; n_nodes: it is not a member. */
uint32_t hang_group_find(const struct hang_group *g, uint64_t incarnation);
