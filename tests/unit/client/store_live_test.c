/* The client against muster's own server. */
#include "muster/store.h"

#include "live_store.h"
#include "rig/unit.h"

#define LIMIT_MS 20000

static struct live_store server;

static struct muster_store *connect_here(void) {
    struct muster_store *s = NULL;
    cr_assert_eq(muster_store_connect("127.0.0.1", server.port, LIMIT_MS, &s), 0, "%s", muster_store_error());
    return s;
}

static void set_up(void) { server = live_store_start(); }
static void tear_down(void) { live_store_stop(&server); }
TestSuite(client_store_live, .init = set_up, .fini = tear_down);

Test(client_store_live, a_number_that_is_none_closes_the_connection) {
    struct muster_store *s = connect_here();
    cr_assert_eq(muster_store_set(s, "junk", "junk", 4), 0);
    cr_assert_eq(muster_store_add(s, "junk", 1, NULL), -ECONNRESET, "%s", muster_store_error());
    cr_assert_eq(muster_store_add(s, "other", 1, NULL), -ENOTCONN);
    muster_store_close(s);
}

Test(client_store_live, a_trainer_without_standard_input_has_the_store_at_descriptor_0) {
    int taken = dup(STDIN_FILENO);
    (void)close(STDIN_FILENO);
    struct muster_store *s = connect_here();
    cr_assert_eq(fcntl(STDIN_FILENO, F_GETFD), FD_CLOEXEC, "the store has another descriptor");
    cr_assert_eq(muster_store_set(s, "k", "v", 1), 0, "%s", muster_store_error());
    muster_store_close(s);
    cr_assert_lt(fcntl(STDIN_FILENO, F_GETFD), 0, "closing the store leaves its descriptor open");
    if (taken >= 0)
        cr_assert_eq(dup2(taken, STDIN_FILENO), STDIN_FILENO);
}

/* Each of n processes increments a counter before a barrier, and must see all others' increments after it. */
static int child(unsigned n, unsigned rounds) {
    struct muster_store *s;
    if (muster_store_connect("127.0.0.1", server.port, LIMIT_MS, &s) < 0)
        return 1;
    for (unsigned i = 1; i <= rounds; i++) {
        int64_t seen = -1;
        if (muster_store_add(s, "count", 1, NULL) < 0 || muster_store_barrier(s, "round", n, LIMIT_MS) < 0 ||
            muster_store_add(s, "count", 0, &seen) < 0)
            return 2;
        if (seen < (int64_t)(n * i) || muster_store_barrier(s, "seen", n, LIMIT_MS) < 0)
            return 3;
    }
    muster_store_close(s);
    return 0;
}

Test(client_store_live, a_barrier_holds_everybody_and_can_be_used_again) {
    enum { N = 4, ROUNDS = 25 };
    pid_t pids[N];
    for (unsigned i = 0; i < N; i++) {
        pids[i] = fork();
        cr_assert_geq(pids[i], 0);
        if (pids[i] == 0)
            _exit(child(N, ROUNDS));
    }
    for (unsigned i = 0; i < N; i++)
        cr_assert_eq(rig_status(pids[i]), 0);
    struct muster_store *s = connect_here();
    int64_t count = 0;
    cr_assert_eq(muster_store_add(s, "count", 0, &count), 0);
    cr_assert_eq(count, N * ROUNDS);
    const char *old[] = {"muster.barrier/round/0"};
    bool exists = true;
    cr_assert_eq(muster_store_check(s, old, 1, &exists), 0);
    cr_assert(!exists, "a barrier leaves its keys behind");
    muster_store_close(s);
}
