#include "io/loop.h"

#include <limits.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "rig/unit.h"

/* What happened, in order, as letters. */
struct stage {
    struct loop *loop;
    struct strbuf seen;
    struct loop_watch *watch;
    struct loop_timer *timer, *doom;
    struct loop_signal *signal;
    uint64_t deadline;
    int fd;
    unsigned events;
};

static void on_doom(void *arg) { cr_assert_fail("nothing ended the loop in 10 s"); }

static void stage_init(struct stage *st) {
    *st = (struct stage){0};
    cr_assert_eq(loop_new(&st->loop), 0);
    st->doom = loop_timer_new(st->loop, on_doom, st);
    loop_timer_set(st->doom, clock_now_ns() + 10 * NS_PER_S);
}

static void stage_fini(struct stage *st) {
    loop_watch_free(st->watch);
    loop_timer_free(st->timer);
    loop_signal_free(st->signal);
    loop_timer_free(st->doom);
    loop_free(st->loop);
    strbuf_fini(&st->seen);
}

static struct stage stage; /* of each test but those that have one of their own */
static int ends[2];        /* of a connection */
static void on_timer(void *arg) {
    struct stage *st = arg;
    strbuf_add_char(&st->seen, 't');
    loop_quit(st->loop);
}

static void set_up(void) {
    stage_init(&stage);
    stage.timer = loop_timer_new(stage.loop, on_timer, &stage);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}
static void tear_down(void) {
    stage_fini(&stage);
    close(ends[0]);
    close(ends[1]);
}
TestSuite(loop, .init = set_up, .fini = tear_down);

static void run(struct stage *st) { cr_assert_eq(loop_run(st->loop), 0); }

static void on_watch(void *arg, int fd, unsigned events) {
    struct stage *st = arg;
    st->fd = fd;
    st->events = events;
    strbuf_add_char(&st->seen, 'w');
    loop_quit(st->loop);
}

static void on_signal(void *arg, int signo) {
    struct stage *st = arg;
    strbuf_printf(&st->seen, "s%d", signo);
    loop_quit(st->loop);
}

Test(loop, a_readable_descriptor_calls_its_watch) {
    stage.watch = loop_watch_new(stage.loop, ends[0], LOOP_READ, LOOP_PRIO_BULK, on_watch, &stage);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "");
    cr_assert_eq(write(ends[1], "x", 1), 1);
    run(&stage);
    cr_assert_eq(stage.fd, ends[0]);
    cr_assert_eq(stage.events, LOOP_READ);
    run(&stage); /* level-triggered: the byte is still unread */
    cr_assert_str_eq(strbuf_text(&stage.seen), "ww");
}

Test(loop, the_end_of_a_connection_is_readable) {
    cr_assert_eq(shutdown(ends[1], SHUT_WR), 0);
    stage.watch = loop_watch_new(stage.loop, ends[0], LOOP_READ, LOOP_PRIO_BULK, on_watch, &stage);
    run(&stage);
    cr_assert_eq(stage.events, LOOP_READ);
}

Test(loop, interest_can_be_changed_and_withdrawn) {
    stage.watch = loop_watch_new(stage.loop, ends[0], 0, LOOP_PRIO_BULK, on_watch, &stage);
    cr_assert_eq(write(ends[1], "x", 1), 1);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "", "no interest yet");
    loop_watch_set(stage.watch, LOOP_WRITE);
    run(&stage);
    cr_assert_eq(stage.events, LOOP_WRITE);
    loop_watch_set(stage.watch, LOOP_READ | LOOP_WRITE);
    run(&stage);
    cr_assert_eq(stage.events, LOOP_READ | LOOP_WRITE);
    loop_watch_set(stage.watch, 0);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "ww");
}

Test(loop, a_file_cannot_be_waited_for, .signal = SIGABRT) {
    int fd = open("/", O_RDONLY | O_CLOEXEC);
    stage.watch = loop_watch_new(stage.loop, fd, LOOP_READ, LOOP_PRIO_BULK, on_watch, &stage);
}

Test(loop, a_timer_fires_once_and_not_before_its_deadline) {
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "", "unarmed at first");
    uint64_t deadline = clock_now_ns() + 20 * NS_PER_MS;
    loop_timer_set(stage.timer, deadline);
    run(&stage);
    cr_assert_geq(clock_now_ns(), deadline);
    cr_assert_str_eq(strbuf_text(&stage.seen), "t");
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "t", "unarmed after it has fired");
}

/* Works for a while, and then sets the timer again. */
static void on_slow_timer(void *arg) {
    struct stage *st = arg;
    uint64_t end = clock_now_ns() + 20 * NS_PER_MS;
    while (clock_now_ns() < end)
        continue;
    strbuf_add_char(&st->seen, 's');
    st->deadline = clock_now_ns() + 20 * NS_PER_MS;
    loop_timer_set(st->timer, st->deadline);
}

Test(loop, a_timer_that_a_long_callback_sets_does_not_fire_early) {
    struct loop_timer *slow = loop_timer_new(stage.loop, on_slow_timer, &stage);
    loop_timer_set(slow, 0);
    run(&stage);
    cr_assert_geq(clock_now_ns(), stage.deadline);
    cr_assert_str_eq(strbuf_text(&stage.seen), "st");
    loop_timer_free(slow);
}

Test(loop, a_timer_can_be_moved_and_disarmed) {
    loop_timer_set(stage.timer, 0);
    loop_timer_set(stage.timer, TIME_NEVER);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "");
    loop_timer_set(stage.timer, clock_now_ns() + 3600 * NS_PER_S);
    loop_timer_set(stage.timer, clock_now_ns() + NS_PER_MS);
    run(&stage);
    cr_assert_str_eq(strbuf_text(&stage.seen), "t");
}

Test(loop, a_signal_calls_its_handler_with_its_number) {
    stage.signal = loop_signal_new(stage.loop, SIGUSR1, on_signal, &stage);
    cr_assert_eq(raise(SIGUSR1), 0);
    run(&stage);
    cr_assert_str_eq(strbuf_text(&stage.seen), rig_text("s%d", SIGUSR1));
}

static void note_deferred(void *arg) {
    struct stage *st = arg;
    strbuf_add_char(&st->seen, 'd');
}

static void defer_again(void *arg) {
    struct stage *st = arg;
    strbuf_add_char(&st->seen, 'D');
    loop_defer(st->loop, LOOP_PRIO_LEASE, note_deferred, st);
}

static void free_myself_later(void *arg, int fd, unsigned events) {
    struct stage *st = arg;
    loop_defer(st->loop, LOOP_PRIO_LEASE, note_deferred, st);
    strbuf_add_char(&st->seen, 'w');
    loop_watch_free(TAKE_PTR(st->watch));
    loop_quit(st->loop);
}

Test(loop, deferred_work_runs_after_the_callback_has_returned) {
    stage.watch = loop_watch_new(stage.loop, ends[0], LOOP_WRITE, LOOP_PRIO_BULK, free_myself_later, &stage);
    run(&stage);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "wd");
}

Test(loop, deferred_work_may_defer_more) {
    loop_defer(stage.loop, LOOP_PRIO_LEASE, defer_again, &stage);
    loop_defer(stage.loop, LOOP_PRIO_LEASE, note_deferred, &stage);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "Ddd");
}

static void drop_the_rest(void *arg) {
    struct stage *st = arg;
    strbuf_add_char(&st->seen, 'x');
    loop_defer_drop(st->loop, NULL, st);
}

Test(loop, deferred_work_can_be_dropped_by_its_argument_and_its_function) {
    loop_defer(stage.loop, LOOP_PRIO_LEASE, defer_again, &stage);
    loop_defer(stage.loop, LOOP_PRIO_LEASE, note_deferred, &stage);
    loop_defer(stage.loop, LOOP_PRIO_BULK, note_deferred, &stage.seen);
    loop_defer_drop(stage.loop, NULL, &stage.seen);
    loop_defer_drop(stage.loop, defer_again, &stage);
    loop_defer(stage.loop, LOOP_PRIO_LEASE, drop_the_rest, &stage);
    loop_defer(stage.loop, LOOP_PRIO_LEASE, note_deferred, &stage);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_str_eq(strbuf_text(&stage.seen), "dx");
}

Test(loop, freeing_the_loop_runs_what_was_deferred) {
    struct stage st;
    stage_init(&st);
    loop_defer(st.loop, LOOP_PRIO_LEASE, defer_again, &st);
    loop_timer_free(st.doom);
    loop_free(st.loop);
    cr_assert_str_eq(strbuf_text(&st.seen), "Dd");
    strbuf_fini(&st.seen);
}

static void free_the_other(void *arg, int fd, unsigned events) {
    struct loop_watch **other = arg;
    loop_watch_free(TAKE_PTR(*other));
}

Test(loop, a_callback_may_free_another_watch_that_is_ready_too) {
    struct loop_watch *a = NULL, *b = NULL;
    a = loop_watch_new(stage.loop, ends[0], LOOP_WRITE, LOOP_PRIO_BULK, free_the_other, &b);
    b = loop_watch_new(stage.loop, ends[1], LOOP_WRITE, LOOP_PRIO_BULK, free_the_other, &a);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert((a == NULL) != (b == NULL), "exactly one has freed the other");
    loop_watch_free(a);
    loop_watch_free(b);
}

Test(loop, leases_and_timers_go_before_children_and_those_before_bulk) {
    int s[] = {ends[0], ends[1], dup(ends[0])};
    struct loop_watch *child, *lease;
    stage.watch = loop_watch_new(stage.loop, s[0], LOOP_WRITE, LOOP_PRIO_BULK, on_watch, &stage);
    child = loop_watch_new(stage.loop, s[1], LOOP_WRITE, LOOP_PRIO_CHILD, on_watch, &stage);
    lease = loop_watch_new(stage.loop, s[2], LOOP_WRITE, LOOP_PRIO_LEASE, on_watch, &stage);
    loop_timer_set(stage.timer, 0);
    run(&stage);
    cr_assert_eq(stage.fd, s[2]);
    loop_watch_set(lease, 0);
    run(&stage);
    cr_assert_str_eq(strbuf_text(&stage.seen), "wt");
    run(&stage);
    cr_assert_eq(stage.fd, s[1]);
    loop_watch_set(child, 0);
    run(&stage);
    cr_assert_eq(stage.fd, s[0]);
    loop_watch_set_priority(lease, LOOP_PRIO_BULK);
    loop_watch_set(lease, LOOP_WRITE);
    loop_watch_set(child, LOOP_WRITE);
    run(&stage);
    cr_assert_eq(stage.fd, s[1], "the other is bulk now");
    loop_watch_free(child);
    loop_watch_free(lease);
    close(s[2]);
}

/* A callback that is always ready, and takes long. */
static void spend(uint64_t ns) {
    uint64_t until = clock_now_ns() + ns;
    while (clock_now_ns() < until)
        continue;
}

struct busy {
    struct stage st;
    struct loop_watch *always[64];
    unsigned served, served_before, most; /* most: between two ticks */
    unsigned ticks;
};

static void on_always(void *arg, int fd, unsigned events) {
    struct busy *b = arg;
    b->served++;
    spend(NS_PER_MS);
}

static void on_tick(void *arg) {
    struct busy *b = arg;
    b->most = MAX2(b->most, b->served - b->served_before);
    b->served_before = b->served;
    if (++b->ticks == 20)
        loop_quit(b->st.loop);
    else
        loop_timer_set(b->st.timer, clock_now_ns() + LOOP_SLICE_NS);
}

static void on_later(void *arg) {
    struct busy *b = arg;
    spend(NS_PER_MS);
    if (b->ticks < 20)
        loop_defer(b->st.loop, LOOP_PRIO_BULK, on_later, b);
}

/* A turn of all 64 takes 64 ms; a timer waits for only one slice of it. */
static void run_busy(struct busy *b, unsigned n) {
    stage_init(&b->st);
    int fds[ARRAY_SIZE(b->always)];
    for (unsigned i = 0; i < n; i++) {
        fds[i] = dup(ends[0]);
        b->always[i] = loop_watch_new(b->st.loop, fds[i], LOOP_WRITE, LOOP_PRIO_BULK, on_always, b);
    }
    b->st.timer = loop_timer_new(b->st.loop, on_tick, b);
    loop_timer_set(b->st.timer, clock_now_ns());
    run(&b->st);
    for (unsigned i = 0; i < n; i++) {
        loop_watch_free(b->always[i]);
        close(fds[i]);
    }
    stage_fini(&b->st);
}

Test(loop, no_timer_waits_for_all_that_is_busy) {
    struct busy b = {0};
    run_busy(&b, ARRAY_SIZE(b.always));
    /* A tick is 5 ms, a slice is 5 ms, and each callback takes 1 ms or more. */
    cr_assert_leq(b.most, 12);
    cr_assert_gt(b.served, 20, "what is busy is served, too");
}

static void count_letter(void *arg) {
    struct stage *st = arg;
    strbuf_add_char(&st->seen, 'd');
    if (st->seen.len < 5)
        loop_defer(st->loop, LOOP_PRIO_BULK, count_letter, st);
}

struct turns {
    struct loop *loop;
    unsigned served[100], first; /* first: the most that the first one served was ahead */
    unsigned n, words;
    bool early;
};
struct turn {
    struct turns *all;
    unsigned index;
};

static void on_word(void *arg) {
    struct turns *t = arg;
    t->words++;
}

/* Uses a part of a slice; each causes a message of the group. */
static void on_turn(void *arg, int fd, unsigned events) {
    const struct turn *one = arg;
    struct turns *t = one->all;
    t->early = t->early || t->words < t->n;
    t->n++;
    t->served[one->index]++;
    unsigned least = UINT_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(t->served); i++)
        least = MIN2(least, t->served[i]);
    t->first = MAX2(t->first, t->served[one->index] - least);
    spend(NS_PER_MS / 2);
    loop_defer(t->loop, LOOP_PRIO_LEASE, on_word, t);
    if (t->n == 3 * ARRAY_SIZE(t->served))
        loop_quit(t->loop);
}

/* There are several batches, and each batch takes more than a slice. */
Test(loop, all_that_are_always_ready_are_served_by_turns_and_words_go_between) {
    struct turns t = {.loop = stage.loop};
    struct turn one[ARRAY_SIZE(t.served)];
    struct loop_watch *watches[ARRAY_SIZE(t.served)];
    int fds[ARRAY_SIZE(t.served)];
    for (unsigned i = 0; i < ARRAY_SIZE(t.served); i++) {
        one[i] = (struct turn){.all = &t, .index = i};
        fds[i] = eventfd(1, EFD_CLOEXEC);
        watches[i] = loop_watch_new(stage.loop, fds[i], LOOP_READ, LOOP_PRIO_BULK, on_turn, &one[i]);
    }
    cr_assert_eq(loop_run(stage.loop), 0);
    cr_assert_leq(t.first, 1, "one was %u ahead", t.first);
    cr_assert_not(t.early, "a word waited for what came after it");
    for (unsigned i = 0; i < ARRAY_SIZE(t.served); i++) {
        loop_watch_free(watches[i]);
        close(fds[i]);
    }
}

Test(loop, work_put_off_again_and_again_leaves_room_for_the_rest) {
    struct busy b = {0};
    stage_init(&b.st);
    loop_defer(b.st.loop, LOOP_PRIO_BULK, count_letter, &b.st);
    cr_assert_eq(loop_turn(b.st.loop), 0);
    cr_assert_str_eq(strbuf_text(&b.st.seen), "ddddd");
    b.st.timer = loop_timer_new(b.st.loop, on_tick, &b);
    loop_timer_set(b.st.timer, clock_now_ns());
    loop_defer(b.st.loop, LOOP_PRIO_BULK, on_later, &b);
    run(&b.st);
    cr_assert_eq(b.ticks, 20);
    stage_fini(&b.st);
}

static uint64_t processor_ns(void) {
    struct timespec t;
    cr_assert_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void be_long(void *arg) {
    struct stage *st = arg;
    uint64_t until = processor_ns() + LOOP_LONG_NS + 10 * NS_PER_MS;
    while (processor_ns() < until)
        continue;
    loop_quit(st->loop);
}

static void be_blocked(void *arg) {
    struct stage *st = arg;
    (void)poll(&(struct pollfd){.fd = -1}, 1, (int)(LOOP_LONG_NS / NS_PER_MS) + 2);
    loop_quit(st->loop);
}

Test(loop, what_holds_it_up_is_counted) {
    loop_defer(stage.loop, LOOP_PRIO_LEASE, count_letter, &stage);
    cr_assert_eq(loop_turn(stage.loop), 0);
    cr_assert_eq(loop_get_stats(stage.loop).n_long, 0);
    loop_defer(stage.loop, LOOP_PRIO_LEASE, be_blocked, &stage);
    run(&stage);
    cr_assert_eq(loop_get_stats(stage.loop).n_long, 1, "also what waits for something else");
    loop_defer(stage.loop, LOOP_PRIO_LEASE, be_long, &stage);
    run(&stage);
    cr_assert_eq(loop_get_stats(stage.loop).n_long, 2);
    cr_assert_geq(loop_get_stats(stage.loop).longest_ns, LOOP_LONG_NS);
}

Test(loop, a_loop_with_nothing_to_wait_for_says_so) {
    struct loop *loop;
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(loop_run(loop), -EDEADLK);
    loop_free(loop);
}

Test(loop, the_library_says_its_versions) {
    cr_assert_eq(strncmp(loop_backend_version(), "2.", 2), 0);
    cr_assert_eq(strncmp(loop_built_version(), "2.", 2), 0);
}
