#include "base/prng.h"

uint64_t prng_next(struct prng *p) {
    uint64_t z = (p->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t prng_below(struct prng *p, uint64_t below) {
    return below == 0 ? 0 : prng_next(p) % below;
}
