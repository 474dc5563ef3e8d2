/* SplitMix64: the same numbers from the same seed everywhere. Sebastiano Vigna's public domain
 * constants, https://prng.di.unimi.it/splitmix64.c */
#pragma once

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *r) {
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 <= result < n; n is tiny compared with 2^64, and so is the bias. */
static inline unsigned random_below(struct random *r, unsigned n) {
    return (unsigned)(random_next(r) % n);
}

/* -1 <= result < 1 */
static inline float random_signed(struct random *r) {
    return (float)(random_next(r) >> 40) * 0x1p-23f - 1.0f;
}
