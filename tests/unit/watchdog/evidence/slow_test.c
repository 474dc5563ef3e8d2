#include "watchdog/evidence/slow.h"

#include "rig/unit.h"

static uint32_t flags(uint64_t cpu_ns, uint64_t bytes, uint64_t elapsed_ns) {
    struct slow_look before = {.pid = 7, .cpu_ns = 100, .bytes = 200};
    return slow_flags(&before, &(struct slow_look){.pid = 7, .cpu_ns = 100 + cpu_ns, .bytes = 200 + bytes}, elapsed_ns);
}

Test(slow, what_a_waiter_does_is_nothing) {
    cr_expect_eq(flags(0, 0, 5 * NS_PER_S), 0);
    cr_expect_eq(flags(20 * NS_PER_MS, 100, 5 * NS_PER_S), 0); /* gloo's loop, and a line a second */
    cr_expect_eq(flags(250 * NS_PER_MS - 1, 81919, 5 * NS_PER_S), 0);
}

Test(slow, more_is_busy_and_writes) {
    cr_expect_eq(flags(250 * NS_PER_MS, 0, 5 * NS_PER_S), SIGN_BUSY);
    cr_expect_eq(flags(0, 81920, 5 * NS_PER_S), SIGN_BYTES);
    cr_expect_eq(flags(20 * NS_PER_S, UINT64_C(1) << 40, 5 * NS_PER_S), SIGN_BUSY | SIGN_BYTES);
}

Test(slow, what_can_not_be_compared_says_nothing) {
    cr_expect_eq(flags(NS_PER_S, 1 << 30, 0), 0);
    cr_expect_eq(flags(NS_PER_S, 1 << 30, SLOW_AGE_MAX_NS + 1), 0);
    cr_expect_eq(flags(SLOW_AGE_MAX_NS, 0, SLOW_AGE_MAX_NS), SIGN_BUSY);
    struct slow_look before = {.pid = 7, .cpu_ns = NS_PER_S, .bytes = 1 << 30}, now = {.pid = 7};
    cr_expect_eq(slow_flags(&before, &now, NS_PER_S), 0); /* a process has ended */
    now = (struct slow_look){.pid = 8, .cpu_ns = 9 * NS_PER_S};
    cr_expect_eq(slow_flags(&before, &now, NS_PER_S), 0);
}

Test(slow, a_thread_spins_that_stays_at_one_place_and_has_a_gpu) {
    struct slow_look a = {.pid = 7, .addresses = 9, .gpu = true}, b = a;
    cr_expect(slow_spins(&a, &b, 5 * NS_PER_S));
    cr_expect_not(slow_spins(&a, &b, SLOW_AGE_MAX_NS + 1));
    b.addresses = 8;
    cr_expect_not(slow_spins(&a, &b, 5 * NS_PER_S));
    b = a;
    b.gpu = false; /* it computes */
    cr_expect_not(slow_spins(&a, &b, 5 * NS_PER_S));
    b = a;
    b.pid = 8;
    cr_expect_not(slow_spins(&a, &b, 5 * NS_PER_S));
    a.addresses = b.addresses = 0; /* not known */
    b.pid = 7;
    cr_expect_not(slow_spins(&a, &b, 5 * NS_PER_S));
}

Test(slow, knows_threads_of_nccl) {
    cr_expect(slow_is_nccl("NCCL Progress 0) S"));
    cr_expect(slow_is_nccl("pt_nccl_watchdg) S") && slow_is_nccl("pt_nccl_heartbt) S"));
    cr_expect_not(slow_is_nccl("python) S"));
    cr_expect_not(slow_is_nccl("NCCL"));
}

Test(slow, sums_what_was_read_and_written) {
    static const char text[] = "rchar: 120\nwchar: 5\nsyscr: 7\nsyscw: 8\n";
    cr_expect_eq(slow_io_bytes(text), 125);
    cr_expect_eq(slow_io_bytes("rchar: 120\nwchar:"), 0);
    cr_expect_eq(slow_io_bytes(""), 0);
}

Test(slow, knows_how_much_the_kernel_has_written) {
    static const char text[] = "nr_dirtied 8\nnr_written 4711\nnr_written_more 9\n";
    cr_expect_eq(slow_written_pages(text), 4711);
    cr_expect_eq(slow_written_pages("nr_dirtied 8\nnr_wri"), 0);
    cr_expect_eq(slow_written_pages(""), 0);
}

Test(slow, a_main_thread_polls_that_sleeps_at_one_place) {
    struct slow_look a = {.pid = 7, .addresses = 9, .sleeps = true}, b = a;
    cr_expect(slow_polls(&a, &b, 5 * NS_PER_S) && !slow_changed(&a, &b, 5 * NS_PER_S));
    cr_expect(slow_polls(&a, &b, SLOW_AGE_MAX_NS + 1) && slow_polls(NULL, &b, 0));
    b.talked = 250; /* small steps, with others */
    cr_expect(!slow_polls(&a, &b, 5 * NS_PER_S) && slow_polls(&a, &b, 6 * NS_PER_S));
    b.gpu = true;
    cr_expect(slow_polls(&a, &b, 5 * NS_PER_S));
    b.sleeps = false; /* waits for something: it may be a step each second */
    cr_expect_not(slow_polls(&a, &b, 5 * NS_PER_S));
    b = (struct slow_look){.pid = 7, .addresses = 10, .sleeps = true};
    cr_expect(!slow_polls(&a, &b, 5 * NS_PER_S) && slow_changed(&a, &b, 5 * NS_PER_S));
    cr_expect_not(slow_changed(&a, &b, SLOW_AGE_MAX_NS + 1));
    a.addresses = b.addresses = 0; /* not known */
    cr_expect_not(slow_polls(&a, &b, 5 * NS_PER_S) || slow_changed(&a, &b, 5 * NS_PER_S));
}

Test(slow, threads_compute_unless_they_may_only_spin) {
    struct slow_look a = {.pid = 7, .threads_ns = NS_PER_S}, b = {.pid = 7, .threads_ns = NS_PER_S + 250 * NS_PER_MS};
    cr_expect(slow_computes(&a, &b, 5 * NS_PER_S));
    cr_expect_not(slow_computes(&a, &b, 6 * NS_PER_S));
    cr_expect_not(slow_computes(&a, &b, SLOW_AGE_MAX_NS + 1));
    b.spinners = true;
    cr_expect_not(slow_computes(&a, &b, 5 * NS_PER_S));
    cr_expect(slow_is_poller("pt_nccl_watchdg") && slow_is_poller("pt_gloo_runloop"));
    cr_expect(slow_is_poller("async") && !slow_is_poller("asyncio_0") && !slow_is_poller("python"));
    static const char env[] = "A=1\0OMP_WAIT_POLICY=active\0B=2", other[] = "XOMP_WAIT_POLICY=active\0KMP_BLOCKTIME=0";
    cr_expect(slow_omp_spins(env, sizeof env) && !slow_omp_spins(other, sizeof other) && !slow_omp_spins("", 0));
    cr_expect_not(slow_omp_spins(env, 4), "what follows the block");
}
