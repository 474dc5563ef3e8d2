/* SplitMix64, for simulation, jitter and names; never for secrets. The constants: Steele, Lea,
 * Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
#pragma once

#include <stdint.h>

struct prng {
    uint64_t state; /* initially the seed */
};

static inline uint64_t prng_next(struct prng *p) {
    uint64_t z = (p->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 … below-1, with a bias too small to matter here; 0 if below is 0. */
static inline uint64_t prng_below(struct prng *p, uint64_t below) {
    return below == 0 ? 0 : prng_next(p) % below;
}
