/* A set of ranks, as in "--rank 0-3,7". Pure. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define RANK_SET_MAX 256 /* ranges */

struct rank_set {
    struct {
        uint32_t from, to;
    } ranges[RANK_SET_MAX];
    uint32_t n; /* 0: every rank */
};

/* -EINVAL with a sentence. */
_must_use_ int rank_set_parse(const char *text, struct rank_set *ret, struct err *err);
bool rank_set_has(const struct rank_set *set, uint32_t rank);
/* Whether it is one rank alone. */
bool rank_set_is_one(const struct rank_set *set);
