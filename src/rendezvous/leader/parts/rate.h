/* A rate limit. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct rate {
    uint64_t step_ns; /* between two, in the long run */
    uint64_t burst;   /* at once, after a rest */
};

/* When the next is allowed. If that is now or earlier, one is allowed now. spent_until_ns: how far
 * ahead of now the rate is spent. */
static inline uint64_t rate_ready(const struct rate *rate, uint64_t spent_until_ns) {
    uint64_t ahead_ns = (rate->burst - 1) * rate->step_ns;
    return spent_until_ns > ahead_ns ? spent_until_ns - ahead_ns : 0;
}

static inline bool rate_take(const struct rate *rate, uint64_t now_ns, uint64_t *spent_until_ns) {
    if (rate_ready(rate, *spent_until_ns) > now_ns)
        return false;
    *spent_until_ns = MAX2(*spent_until_ns, now_ns) + rate->step_ns;
    return true;
}
