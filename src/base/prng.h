/* SplitMix64, for simulation, jitter and names; never for secrets. The constants: Steele, Lea,
 * Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
#pragma once

#include <stdint.h>

struct prng {
    uint64_t state; /* initially the seed */
};

uint64_t prng_next(struct prng *p);
/* 0 … below-1, with a bias too small to matter here; 0 if below is 0. */
uint64_t prng_below(struct prng *p, uint64_t below);
