/* Which nodes form the next group, and in which order, if all have a domain: whole units of nodes
 * of one domain (muster-rendezvous(7), "Groups"). */
#pragma once

#include "rendezvous/leader/parts/roster.h"

/* A node's place in the last group. */
struct old_place {
    uint64_t incarnation;
    uint64_t domain; /* domain_key() */
};

struct old_place old_place_of(const struct node *n);
/* Writes `wanted` nodes, a number of whole units that the candidates can fill: the nodes of this
 * tally. newcomers: those that have no old place, in their order. */
void units_choose(const struct roster *r, enum tally of, const struct old_place *old, size_t n_old,
                  struct node *const *newcomers, size_t n_new, size_t wanted, struct node **out);
