/* A loop in a test, which never waits for ever.
 *
 *     rig_loop_run(loop);                 until a callback calls loop_quit()
 *     rig_loop_until(loop, f.n_answers > 0);
 *     rig_loop_turns(loop, 20);           nothing more comes meanwhile */
#pragma once

#include "io/clock.h"
#include "io/loop.h"
#include "rig/unit.h"

#define RIG_LOOP_NS (40 * NS_PER_S)

static inline void rig_loop_too_late(void *arg) { cr_assert_fail("nothing happened for 40 s"); }

/* Fails the test after RIG_LOOP_NS. */
static inline void rig_loop_run(struct loop *loop) {
    struct loop_timer *end;
    end = loop_timer_new(loop, rig_loop_too_late, NULL);
    loop_timer_set(end, clock_now_ns() + RIG_LOOP_NS);
    cr_assert_eq(loop_run(loop), 0);
    loop_timer_free(end);
}

static inline void rig_loop_turns(struct loop *loop, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(loop_turn(loop), 0);
}

static inline void rig_loop_look(void *arg) {}

/* Waits until the condition holds, which it checks after each turn and each millisecond. Fails the
 * test after RIG_LOOP_NS. */
#define rig_loop_until(loop, condition)                                                  \
    do {                                                                                 \
        struct loop_timer *rig_look = loop_timer_new((loop), rig_loop_look, NULL);       \
        for (uint64_t rig_end_ns = clock_now_ns() + RIG_LOOP_NS; !(condition);) {        \
            cr_assert_lt(clock_now_ns(), rig_end_ns, "not within 40 s: %s", #condition); \
            loop_timer_set(rig_look, clock_now_ns() + NS_PER_MS);                        \
            cr_assert_eq(loop_wait(loop), 0);                                            \
        }                                                                                \
        loop_timer_free(rig_look);                                                       \
    } while (0)
