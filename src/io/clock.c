#include "io/clock.h"

#include <sys/random.h>
#include <time.h>

#include "base/util.h"

static uint64_t now_of(clockid_t id) {
    struct timespec ts;
    int r = clock_gettime(id, &ts);
    assert(r == 0);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void) { return now_of(CLOCK_MONOTONIC); }

uint64_t clock_wall_ns(void) { return now_of(CLOCK_REALTIME); }

int64_t clock_wall_offset_ns(void) { return (int64_t)clock_wall_ns() - (int64_t)clock_now_ns(); }

uint64_t random_u64(void) {
    uint64_t v;
    ssize_t n = getrandom(&v, sizeof v, 0);
    assert(n == (ssize_t)sizeof v); /* up to 256 bytes are never incomplete: getrandom(2) */
    return v;
}
