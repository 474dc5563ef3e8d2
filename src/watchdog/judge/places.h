/* How long workers have waited at a place of the program, and then gone on by themselves: a wait
 * there may be as long again. Pure. */
#pragma once

#include "base/util.h"

#define PLACES_MAX 256 /* of them, then the one with the shortest wait is forgotten */

struct places { /* zeroed: nothing is known */
    uint32_t n;
    struct {
        uint64_t place;
        uint64_t longest_ns;
    } known[PLACES_MAX];
};

/* A wait at this place has ended by itself. Place 0 is none. */
void places_learn(struct places *p, uint64_t place, uint64_t waited_ns);
/* The longest wait there; 0: none is known. */
uint64_t places_longest(const struct places *p, uint64_t place);
