/* What the hand-written schedules share: a whole run, and when things happened in it. */
#pragma once

#include <criterion/criterion.h>

#include "world.h"

#define S(x) ((uint64_t)((x)*1e9))
#define ANY WORLD_HOSTS_MAX

/* In seconds of virtual time; -1: it did not happen. */
static inline double when(const struct world *w, enum world_leader_file leader_file, uint32_t host, unsigned nth) {
    uint64_t at = world_when(w, leader_file, host, nth);
    return at == TIME_NEVER ? -1 : (double)at / 1e9;
}

#define assert_between(value, low, high)                                                                 \
    do {                                                                                                 \
        double v_ = (value);                                                                             \
        cr_assert(v_ >= (low) && v_ <= (high), "%s is %.6f, not in %.3f … %.3f", #value, v_, low, high); \
    } while (0)
