/* The all-reduce of examples/c-digits. The ranks are processes that meet through muster's store. */
#include "ring.h"

#include <math.h>

#include "../client/live_store.h"
#include "rig/unit.h"

#define LIMIT_MS 20000
#define SIZE_MAX_RANKS 5

static struct live_store server;

static void set_up(void) { server = live_store_start(); }
static void tear_down(void) { live_store_stop(&server); }
TestSuite(ring, .init = set_up, .fini = tear_down);

/* Small whole numbers: their sums are exact in any order. */
static float element(unsigned rank, size_t i) { return (float)((i * 7 + rank * 13) % 101) - 50; }

static int sum_and_compare(struct ring *r, size_t n) {
    float *v = calloc(n + 1, sizeof(*v));
    if (v == NULL)
        return 3;
    for (size_t i = 0; i < n; i++)
        v[i] = element(r->rank, i);
    v[n] = 4711; /* after the end */
    int bad = ring_sum(r, v, n) < 0 ? 4 : 0;
    for (size_t i = 0; i < n && !bad; i++) {
        float want = 0;
        for (unsigned rank = 0; rank < r->size; rank++)
            want += element(rank, i);
        bad = v[i] != want ? 5 : 0;
    }
    if (v[n] != 4711)
        bad = 6;
    free(v);
    return bad;
}

static int open_here(struct ring *r, unsigned rank, unsigned size, int timeout_ms) {
    struct muster_store *store = NULL;
    if (muster_store_connect("127.0.0.1", server.port, LIMIT_MS, &store) < 0)
        return 1;
    int bad = ring_open(r, store, rank, size, timeout_ms) < 0 ? 2 : 0;
    muster_store_close(store);
    return bad;
}

static int sum_rank(unsigned rank, unsigned size) {
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, 1000, 300001};
    struct ring r;
    int bad = open_here(&r, rank, size, LIMIT_MS);
    if (bad)
        return bad;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && !bad; i++)
        bad = sum_and_compare(&r, lengths[i]);
    ring_close(&r);
    return bad;
}

static void run_ranks(int (*what)(unsigned rank, unsigned size), unsigned size) {
    pid_t pids[SIZE_MAX_RANKS];
    for (unsigned rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        cr_assert_geq(pids[rank], 0);
        if (pids[rank] == 0)
            _exit(what(rank, size));
    }
    for (unsigned rank = 0; rank < size; rank++)
        cr_expect_eq(rig_status(pids[rank]), 0);
}

Test(ring, one_rank_has_its_own_sum) { run_ranks(sum_rank, 1); }
Test(ring, two_ranks_sum) { run_ranks(sum_rank, 2); }
Test(ring, three_ranks_sum) { run_ranks(sum_rank, 3); }
Test(ring, four_ranks_sum) { run_ranks(sum_rank, 4); }
Test(ring, five_ranks_sum) { run_ranks(sum_rank, 5); }

/* Numbers whose sum depends on the order: rank 0 publishes its bits, the others compare. */
static int same_bits(unsigned rank, unsigned size) {
    float v[257];
    struct ring r;
    struct muster_store *store = NULL;
    void *want = NULL;
    size_t len = 0;
    for (unsigned i = 0; i < 257; i++)
        v[i] = sinf((float)(i * (rank + 1))) * powf(10, (float)rank);
    int bad = open_here(&r, rank, size, LIMIT_MS);
    if (bad || ring_sum(&r, v, 257) < 0 || muster_store_connect("127.0.0.1", server.port, LIMIT_MS, &store) < 0)
        return bad ? bad : 4;
    if (rank == 0 && muster_store_set(store, "bits", v, sizeof(v)) < 0)
        return 5;
    if (muster_store_get(store, "bits", LIMIT_MS, &want, &len) < 0 || len != sizeof(v) || memcmp(want, v, len) != 0)
        return 6;
    free(want);
    muster_store_close(store);
    ring_close(&r);
    return 0;
}

Test(ring, all_ranks_end_with_the_same_bits) { run_ranks(same_bits, 4); }

/* Rank 1 ends after the first sum; the others must report it, and not wait for their time-out. */
static int lose_a_peer(unsigned rank, unsigned size) {
    struct ring r;
    float v[1000] = {0};
    int bad = open_here(&r, rank, size, LIMIT_MS);
    if (bad || ring_sum(&r, v, 1000) < 0)
        return bad ? bad : 4;
    if (rank == 1)
        return 0;
    bool failed = ring_sum(&r, v, 1000) < 0;
    ring_close(&r);
    return failed && strstr(r.error, "lost rank") != NULL ? 0 : 5;
}

Test(ring, a_lost_peer_is_an_error_for_all) { run_ranks(lose_a_peer, 4); }

/* Rank 1 is alive, but silent until the other has given up. */
static int silent_peer(unsigned rank, unsigned size) {
    struct ring r;
    float v[10] = {0};
    char byte;
    int bad = open_here(&r, rank, size, rank == 0 ? 60 : LIMIT_MS);
    if (bad)
        return bad;
    if (rank == 1) {
        while (read(r.prev, &byte, 1) > 0)
            continue;
        return 0;
    }
    bool failed = ring_sum(&r, v, 10) < 0;
    bool said = strstr(r.error, "silent for 60 ms") != NULL;
    ring_close(&r);
    return failed && said ? 0 : 5;
}

Test(ring, a_silent_peer_is_given_up) { run_ranks(silent_peer, 2); }
