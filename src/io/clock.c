#include "io/clock.h"

#include <errno.h>
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

/* This process can stand still between two looks, for which the offset would be wrong. */
int64_t clock_wall_offset_ns(void) {
    uint64_t shortest = TIME_NEVER;
    int64_t offset = 0;
    for (int i = 0; i < 5; i++) {
        uint64_t before = clock_now_ns(), wall = clock_wall_ns(), took = clock_now_ns() - before;
        if (took < shortest) {
            shortest = took;
            offset = (int64_t)(wall - before);
        }
    }
    return offset;
}

void random_bytes(void *out, size_t bytes) {
    ssize_t n;
    do
        n = getrandom(out, bytes, 0);
    while (n < 0 && errno == EINTR); /* while the kernel gathers its first ones */
    assert(n == (ssize_t)bytes);     /* up to 256 bytes are never incomplete: getrandom(2) */
}

uint64_t random_u64(void) {
    uint64_t v;
    random_bytes(&v, sizeof v);
    return v;
}
