/* A job that is made by hand: steps of 10 ticks, 20 a second. Rank 2 loads data in 4 of them, for which the others wait;
 * then all ranks run forward for 2, backward for 3, and wait for the network for 1. */
#pragma once

#include "cli/profile/profile_view.h"

#define RIG_LATE 2
struct rig {
    struct profile profile;
    struct profile_findings findings;
    struct rank_set ranks;
    struct profile_view view;
};
void rig_setup(struct rig *g, uint32_t n_ranks, uint32_t n_ticks); /* n_ticks: a multiple of 10 */
void rig_fini(struct rig *g);

static struct rig rig;
static struct strbuf out;

static inline void setup(void) { rig_setup(&rig, 4, 200); }
static inline void teardown(void) {
    strbuf_fini(&out);
    rig_fini(&rig);
}
