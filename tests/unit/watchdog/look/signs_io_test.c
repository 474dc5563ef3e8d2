#include "watchdog/look/signs.h"

#include <time.h>

#include "io/process/proc.h"
#include "rig/fds.h"

/* A process that, for each byte x it gets, uses a processor for 5 ms and answers, for others only answers; otherwise it
 * waits. */
struct child {
    pid_t pid;
    int ask, answer;
};

static uint64_t ran_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct child start(void) {
    int ask[2], answer[2];
    cr_assert(pipe(ask) == 0 && pipe(answer) == 0);
    struct child c = {.pid = fork(), .ask = ask[1], .answer = answer[0]};
    cr_assert_geq(c.pid, 0);
    if (c.pid == 0) {
        char byte;
        (void)close(ask[1]);
        while (read(ask[0], &byte, 1) == 1) {
            for (uint64_t end = ran_ns() + (byte == 'x' ? 5 * NS_PER_MS : 0); ran_ns() < end;)
                ;
            if (write(answer[1], &byte, 1) != 1)
                break;
        }
        _exit(0);
    }
    (void)close(ask[0]);
    (void)close(answer[1]);
    return c;
}

static bool quick; /* it only answers */

static void work(const struct child *c) {
    char byte = quick ? 'q' : 'x';
    cr_assert(write(c->ask, &byte, 1) == 1 && read(c->answer, &byte, 1) == 1);
}

static void stop(const struct child *c) {
    (void)kill(c->pid, SIGKILL);
    (void)waitpid(c->pid, NULL, 0);
    (void)close(c->ask);
    (void)close(c->answer);
}

static struct signs *s;
static void begin(void) { s = signs_new(); }
static void end(void) { signs_free(s); }
TestSuite(signs_io, .init = begin, .fini = end);

static struct worker_signs row_of(uint32_t rank, uint64_t now_ns) {
    struct worker_signs rows[8];
    for (size_t i = 0, n = signs_rows(s, now_ns, rows, ARRAY_SIZE(rows)); i < n; i++)
        if (rows[i].rank == rank)
            return rows[i];
    cr_assert(false, "rank %u has no row", rank);
    return (struct worker_signs){0};
}

/* Samples until the rank is seen to wait; it may still be on its way there. */
static uint64_t until_still(uint32_t rank, uint64_t now_ns) {
    do
        signs_sample(s, now_ns += NS_PER_S);
    while ((row_of(rank, now_ns).flags & SIGN_MOVED) != 0);
    return now_ns;
}

Test(signs_io, sees_who_moves_and_who_waits) {
    unsigned before = rig_open_fds();
    struct child a = start(), b = start();
    cr_assert(signs_add(s, 7, b.pid, 0) == 0 && signs_add(s, 3, a.pid, 0) == 0);
    cr_expect_eq(signs_still_ns(s, 0), 0);
    uint64_t now = until_still(7, until_still(3, 0)), still = signs_still_ns(s, now);
    cr_expect_geq(still, NS_PER_S);
    work(&a);
    signs_sample(s, now += NS_PER_S);
    struct worker_signs rows[2];
    cr_assert_eq(signs_rows(s, now, rows, 2), 2);
    cr_expect(rows[0].rank == 3 && rows[0].flags == SIGN_MOVED && rows[0].moved_once && rows[0].still_ns == 0, "%x",
              rows[0].flags);
    cr_expect(rows[1].rank == 7 && rows[1].flags == 0 && !rows[1].moved_once && rows[1].still_ns >= NS_PER_S);
    cr_expect_eq(signs_still_ns(s, now), rows[1].still_ns);
    cr_expect_eq(signs_rows(s, now, rows, 1), 1);
    cr_expect(signs_see(s, 3).ran_ns > signs_see(s, 7).ran_ns && signs_see(s, 4).ran_ns == 0);
    signs_free(TAKE_PTR(s));
    stop(&a);
    stop(&b);
    cr_expect_eq(rig_open_fds(), before);
}

Test(signs_io, sees_that_a_process_was_stopped) {
    _cleanup_(stop) struct child a = start();
    cr_assert_eq(signs_add(s, 0, a.pid, 0), 0);
    cr_assert_eq(kill(a.pid, SIGSTOP), 0);
    int status;
    cr_assert_eq(waitpid(a.pid, &status, WUNTRACED), a.pid);
    uint64_t now = until_still(0, 0);
    cr_expect_eq(row_of(0, now).flags, SIGN_STOPPED);
}

Test(signs_io, of_a_process_that_is_gone_nothing_is_concluded) {
    struct child a = start(), b = start();
    cr_assert(signs_add(s, 0, a.pid, 0) == 0 && signs_add(s, 1, b.pid, 0) == 0);
    uint64_t now = until_still(0, 0);
    stop(&a);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_MOVED);
    signs_ended(s, 0);
    now = until_still(1, now);
    signs_sample(s, now += 100 * NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_ENDED);
    signs_ended(s, 1);
    cr_expect_eq(signs_still_ns(s, now), 0);
    cr_expect_eq(signs_add(s, 2, a.pid, now), -ESRCH);
    cr_expect_eq(row_of(2, now).flags, SIGN_MOVED);
    stop(&b);
}

Test(signs_io, a_thread_that_spins_does_not_move) {
    _cleanup_(stop) struct child a = start();
    uint64_t now = 100 * NS_PER_S;
    cr_assert_eq(signs_add(s, 0, a.pid, now), 0);
    signs_sample(s, now);
    for (unsigned i = 0; i < SIGNS_HOT; i++) {
        cr_expect_not(signs_any_odd(s));
        work(&a); /* 5 ms of 8 */
        signs_sample(s, now += 8 * NS_PER_MS);
    }
    cr_assert(signs_any_odd(s) && signs_see(s, 0).hot && !signs_see(s, 1).hot);
    signs_put(s, 0, &(struct signs_found){.flags = SIGN_SPINS, .since_ns = now - 20 * NS_PER_S}, now);
    struct worker_signs row = row_of(0, now);
    cr_expect(signs_see(s, 0).spins && signs_see(s, 0).since_ns == now - 20 * NS_PER_S);
    cr_expect(row.flags == SIGN_SPINS && row.still_ns == 20 * NS_PER_S, "%x", row.flags);
    cr_expect_eq(signs_still_ns(s, now), 20 * NS_PER_S);
    work(&a);
    signs_sample(s, now += 8 * NS_PER_MS); /* it goes on spinning */
    cr_expect_eq(row_of(0, now).flags, SIGN_SPINS);
    cr_expect_eq(signs_see(s, 0).ran_ns, 0, "its CPU time shows no movement");
    now = until_still(0, now + NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, 0);
    work(&a);
    signs_sample(s, now += NS_PER_S); /* it moves again */
    row = row_of(0, now);
    cr_expect(row.flags == SIGN_MOVED && row.still_ns == 0);
}

Test(signs_io, what_a_worker_did_before_it_stood_still_is_not_counted_after_it) {
    _cleanup_(stop) struct child a = start();
    cr_assert_eq(signs_add(s, 0, a.pid, 0), 0);
    uint64_t now = until_still(0, 0), moved = now - signs_still_ns(s, now);
    struct signs_found found = {.before_ns = moved - 1, .flags = SIGN_BUSY | SIGN_BYTES | SIGN_ASKS, .changed = true};
    signs_put(s, 0, &found, now);
    cr_expect_eq(row_of(0, now).flags, SIGN_ASKS);
    found = (struct signs_found){.before_ns = moved, .flags = SIGN_BUSY | SIGN_BYTES};
    signs_put(s, 0, &found, now);
    cr_expect_eq(row_of(0, now).flags, SIGN_BUSY | SIGN_BYTES);
    found.changed = true;
    signs_put(s, 0, &found, now);
    cr_expect((row_of(0, now).flags & SIGN_MOVED) != 0 && signs_still_ns(s, now) == 0);
}

/* As of a profiler that has started the program. */
Test(signs_io, the_child_that_a_worker_waits_for_can_spin) {
    struct child wrapper = start(), program = start();
    struct proc_stat stat;
    uint64_t now = 100 * NS_PER_S;
    cr_assert(proc_read_stat(program.pid, &stat));
    cr_assert_eq(signs_add(s, 0, wrapper.pid, now), 0);
    work(&wrapper);
    now = until_still(0, now);
    signs_follow(s, 0, program.pid, stat.start - 1); /* its id is another process's by now */
    signs_sample(s, now += NS_PER_S);
    cr_expect_neq(signs_see(s, 0).ran_ns, 0, "it waits for no child");
    signs_follow(s, 0, program.pid, stat.start);
    signs_sample(s, now += 8 * NS_PER_MS);
    for (unsigned i = 0; i < SIGNS_HOT; i++) {
        cr_expect_not(signs_any_odd(s));
        work(&program); /* 5 ms of 8 */
        signs_sample(s, now += 8 * NS_PER_MS);
    }
    cr_assert(signs_any_odd(s) && signs_see(s, 0).hot);
    signs_put(s, 0, &(struct signs_found){.flags = SIGN_SPINS, .since_ns = now - 20 * NS_PER_S}, now);
    work(&program);
    signs_sample(s, now += 8 * NS_PER_MS);
    struct worker_signs row = row_of(0, now);
    cr_expect_eq(row.flags, SIGN_SPINS);
    cr_expect_geq(row.still_ns, 20 * NS_PER_S);
    stop(&wrapper);
    stop(&program);
}

Test(signs_io, has_a_limit) {
    for (uint32_t i = 0; i < SIGNS_WORKERS_MAX; i++)
        cr_assert_eq(signs_add(s, SIGNS_WORKERS_MAX - i, 0, 0), -ESRCH);
    cr_expect_eq(signs_add(s, 0, 0, 0), -E2BIG);
}

Test(signs_io, without_descriptors_it_is_not_seen_until_there_are_some) {
    _cleanup_(stop) struct child a = start();
    uint64_t now = 100 * NS_PER_S;
    const struct rlimit usual = rig_limit_fds(rig_free_fd());
    cr_expect_eq(signs_add(s, 0, a.pid, now), -EMFILE);
    cr_expect_eq(signs_error(s), -EMFILE);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(signs_error(s), -EMFILE);
    struct worker_signs row = row_of(0, now);
    cr_expect(row.flags == (SIGN_MOVED | SIGN_UNSEEN) && !row.moved_once);
    cr_expect_eq(signs_still_ns(s, now), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    now = until_still(0, now);
    cr_expect_eq(signs_error(s), 0);
    cr_expect_eq(row_of(0, now).flags, 0);
    work(&a);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_MOVED);
}

/* A shell seems to wait, whatever its program does. */
Test(signs_io, a_child_that_can_not_be_seen_makes_nobody_still) {
    struct child wrapper = start(), program = start();
    struct proc_stat stat;
    uint64_t now = 100 * NS_PER_S;
    cr_assert(proc_read_stat(program.pid, &stat));
    cr_assert_eq(signs_add(s, 0, wrapper.pid, now), 0);
    now = until_still(0, now);
    const struct rlimit usual = rig_limit_fds(rig_free_fd());
    signs_follow(s, 0, program.pid, stat.start);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_MOVED | SIGN_UNSEEN);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    now = until_still(0, now);
    cr_expect_eq(row_of(0, now).flags, 0);
    work(&program);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_MOVED);
    stop(&wrapper);
    stop(&program);
}

/* A line a second, and a sleep: less than a millisecond. */
Test(signs_io, who_writes_moves) {
    _cleanup_(stop) struct child a = start();
    uint64_t now = 0;
    cr_assert_eq(signs_add(s, 0, a.pid, now), 0);
    now = until_still(0, now);
    uint64_t ran = signs_see(s, 0).ran_ns;
    quick = true;
    work(&a);
    signs_sample(s, now += NS_PER_S);
    cr_expect_eq(row_of(0, now).flags, SIGN_MOVED, "%llu ns", (unsigned long long)(signs_see(s, 0).ran_ns - ran));
}
