/* The named successors, and their states (muster-rendezvous(7), "Changing the successors"). A wrong
 * change of the list could let two agents lead: a named successor may claim the next epoch, until
 * it is surely gone, or until this leader has claimed that epoch. */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

enum successor_state {
    SUCCESSOR_THERE = 1,
    SUCCESSOR_GONE,     /* surely, and before it can have claimed: may be dropped */
    SUCCESSOR_DOUBTFUL, /* may claim the next epoch at any time */
};

struct succession_plan {
    struct successors named;
    enum successor_state states[RDZV_SUCCESSORS_MAX];
    uint64_t clock_ns; /* our newest clock that the first has echoed, or the naming */
    uint64_t check_ns; /* a silent one is not checked again before */
};

/* Replaces the named successors, their epoch and their order. */
void plan_adopt(struct succession_plan *p, const struct successors *s, uint64_t now_ns);
/* A node was removed from the job. surely: it can't have claimed before, and never will. */
void plan_lose(struct succession_plan *p, uint64_t incarnation, bool surely);
/* True: the first successor has echoed our clock. */
bool plan_echo(struct succession_plan *p, uint64_t incarnation, const struct echo *echo,
               uint64_t now_ns);

enum plan_due {
    PLAN_NOTHING = 0,
    PLAN_NAME_ANEW,  /* the first is gone for good */
    PLAN_ASK_OTHERS, /* it is silent: if enough others are not, it may be dropped */
};
/* Called while leases depend on the first successor. */
enum plan_due plan_check(struct succession_plan *p, const struct group_config *c, uint64_t now_ns);
uint64_t plan_deadline(const struct succession_plan *p, const struct group_config *c,
                       uint64_t now_ns);
