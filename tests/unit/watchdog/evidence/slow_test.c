#include "watchdog/evidence/slow.h"

#include "rig/unit.h"

#define SEEN(n) .addresses = (n)
#define SPINS .hot = true, .gpu = true
#define POLLS .little = true, .sleeps = true
#define MS NS_PER_MS
#define AGED (SLOW_AGE_MAX_NS + 1)

/* Two looks at a process, and what the second one shows. */
static const struct {
    struct slow_look before, now;
    uint64_t elapsed_ns;
    uint32_t flags;
    bool polls, changed, computes;
} rows[] = {
    /* what a waiter does is nothing: gloo's loop, and a line a second */
    {{0}, {0}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{0}, {.cpu_ns = 20 * MS, .bytes = 100}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{0}, {.cpu_ns = 250 * MS - 1, .bytes = 81919}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{.cpu_ns = 7}, {.cpu_ns = 250 * MS + 7}, 5 * NS_PER_S, SIGN_BUSY, 0, 0, 0},
    {{.bytes = 7}, {.bytes = 81927}, 5 * NS_PER_S, SIGN_BYTES, 0, 0, 0},
    {{0}, {.cpu_ns = SLOW_AGE_MAX_NS}, SLOW_AGE_MAX_NS, SIGN_BUSY, 0, 0, 0},
    {{0}, {.cpu_ns = 20 * NS_PER_S, .bytes = UINT64_C(1) << 40}, AGED, 0, 0, 0, 0},
    {{.cpu_ns = NS_PER_S, .bytes = 1 << 30}, {0}, NS_PER_S, 0, 0, 0, 0}, /* a process has ended */
    {{0}, {.asks = true}, NS_PER_S, SIGN_ASKS, 0, 0, 0},
    /* a thread spins that stays at one place and has a GPU; else it computes */
    {{SEEN(9)}, {SEEN(9), SPINS}, 5 * NS_PER_S, SIGN_SPINS, 0, 0, 0},
    {{SEEN(9)}, {SEEN(9), .gpu = true}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{SEEN(9)}, {SEEN(9), .hot = true}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{SEEN(9)}, {SEEN(9), SPINS}, AGED, 0, 0, 0, 0},
    {{SEEN(9)}, {SEEN(8), SPINS}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{0}, {SPINS}, 5 * NS_PER_S, 0, 0, 0, 0}, /* not known */
    /* one polls that sleeps at one place, and exchanges little with others */
    {{SEEN(9)}, {SEEN(9), POLLS}, 5 * NS_PER_S, 0, 1, 0, 0},
    {{SEEN(9)}, {SEEN(9), .sleeps = true}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{SEEN(9)}, {SEEN(9), POLLS}, AGED, 0, 1, 0, 0},
    {{0}, {SEEN(9), POLLS}, 5 * NS_PER_S, 0, 1, 0, 0},
    {{SEEN(9)}, {SEEN(9), POLLS, .talked = 250}, 5 * NS_PER_S, 0, 0, 0, 0}, /* small steps */
    {{SEEN(9)}, {SEEN(9), POLLS, .talked = 250}, 6 * NS_PER_S, 0, 1, 0, 0},
    {{SEEN(9)}, {SEEN(9), POLLS, .talked = 250, .gpu = true}, 5 * NS_PER_S, 0, 1, 0, 0},
    {{SEEN(9)}, {SEEN(9), .little = true}, 5 * NS_PER_S, 0, 0, 0, 0}, /* it may be a step each second */
    {{SEEN(9)}, {SEEN(8), POLLS}, 5 * NS_PER_S, 0, 0, 1, 0},
    {{SEEN(9)}, {SEEN(8), .sleeps = true}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{SEEN(9)}, {SEEN(8), POLLS}, AGED, 0, 1, 0, 0},
    {{0}, {POLLS}, 5 * NS_PER_S, 0, 0, 0, 0},
    /* threads compute, unless they may only spin */
    {{.threads_ns = MS}, {.threads_ns = 251 * MS}, 5 * NS_PER_S, 0, 0, 0, 1},
    {{.threads_ns = MS}, {.threads_ns = 251 * MS}, 6 * NS_PER_S, 0, 0, 0, 0},
    {{.threads_ns = MS}, {.threads_ns = 251 * MS}, AGED, 0, 0, 0, 0},
    {{0}, {.threads_ns = 250 * MS, .spinners = true}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{0}, {.threads_ns = 250 * MS, .follow = 8}, 5 * NS_PER_S, 0, 0, 0, 0},
    {{.follow = 8}, {.threads_ns = 250 * MS, .follow = 8}, 5 * NS_PER_S, 0, 0, 0, 1},
};

Test(slow, two_looks_are_compared) {
    const struct signs_found was = {.since_ns = 3, .computes = 5, .idle_ns = 6};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct slow_look before = rows[i].before, now = rows[i].now;
        uint64_t at = 100 + rows[i].elapsed_ns;
        before.pid = now.pid = 7;
        now.idle_ns = 10 * NS_PER_S;
        struct signs_found f = slow_compare(&before, &was, 100, &now, at);
        bool aged = rows[i].elapsed_ns > SLOW_AGE_MAX_NS, spins = (f.flags & SIGN_SPINS) != 0;
        cr_expect(f.flags == rows[i].flags && f.polls == rows[i].polls && f.changed == rows[i].changed, "%zu: %x", i,
                  f.flags);
        cr_expect_eq(f.computes, aged ? 5 : rows[i].computes ? slow_process(&now) : 0, "%zu", i);
        cr_expect_eq(f.idle_ns, aged ? 6 : rows[i].computes ? 2 * NS_PER_S : 0, "%zu", i);
        cr_expect(f.before_ns == (aged ? 0 : 100) && f.since_ns == (spins ? 3 : at), "%zu", i);
    }
}

Test(slow, the_first_look_assumes_that_it_polls) {
    struct signs_found f = slow_compare(NULL, NULL, 0, &(struct slow_look){SEEN(9), POLLS, .receives = true}, 7);
    cr_expect(f.polls && f.receives && f.flags == 0 && f.before_ns == 0 && f.since_ns == 7);
}

Test(slow, knows_names_of_threads_and_variables) {
    cr_expect(slow_is_nccl("NCCL Progress 0) S") && slow_is_nccl("pt_nccl_watchdg) S"));
    cr_expect(!slow_is_nccl("python) S") && !slow_is_nccl("NCCL"));
    cr_expect(slow_is_poller("pt_nccl_watchdg") && slow_is_poller("pt_gloo_runloop"));
    cr_expect(slow_is_poller("async") && !slow_is_poller("asyncio_0") && !slow_is_poller("python"));
    static const char env[] = "A=1\0OMP_WAIT_POLICY=active\0B=2", other[] = "XOMP_WAIT_POLICY=active\0KMP_BLOCKTIME=0";
    cr_expect(slow_omp_spins(env, sizeof env) && !slow_omp_spins(other, sizeof other) && !slow_omp_spins("", 0));
    cr_expect_not(slow_omp_spins(env, 4), "what follows the block");
}

Test(slow, counts_bytes) {
    static const char io[] = "rchar: 120\nwchar: 5\nsyscr: 7\nsyscw: 8\n";
    static const char vmstat[] = "nr_dirtied 8\nnr_written 4711\nnr_written_more 9\n";
    cr_expect(slow_io_bytes(io) == 125 && slow_io_bytes("rchar: 120\nwchar:") == 0 && slow_io_bytes("") == 0);
    cr_expect(slow_written_pages(vmstat) == 4711 && slow_written_pages("nr_dirtied 8\nnr_wri") == 0);
}
