/* Drives one pure machine from the loop: gives it one event at a time, keeps those that arrive
 * while its effects are carried out until the step is over, and sets its one timer. A machine is
 * never entered twice, and whoever owns it may be freed from inside its own callbacks.
 *
 *     pump_init(&s->pump, loop, &(struct pump_ops){step, copy, drop, destroy}, s, on_timer);
 *     pump_event(&s->pump, &event);      steps at once, or later where a step is under way
 *     pump_free(&s->pump);               ops.destroy now, or when the step is over
 *
 * The owner embeds it and gives `arg`. */
#pragma once

#include "base/list.h"
#include "io/loop.h"

struct pump_ops {
    /* One step of the machine, and carries out its effects; stops once p->dead. When it wants the
     * time: on clock_now_ns()'s clock, or TIME_NEVER. */
    uint64_t (*step)(void *arg, void *event);
    /* A copy of an event, with all that it points at, and its end. */
    void *(*copy)(const void *event);
    void (*drop)(void *event);
    /* Frees the owner, and calls pump_fini(). */
    void (*destroy)(void *arg);
};

struct pump {
    const struct pump_ops *ops; /* borrowed: static */
    void *arg;
    struct loop_timer *timer; /* the machine's deadline */
    struct list queue;        /* struct pump_queued */
    bool busy;                /* a step, its effects or a held callback are under way: */
    bool dead;                /* freed there */
};

_must_use_ int pump_init(struct pump *p, struct loop *loop, const struct pump_ops *ops, void *arg,
                         loop_timer_fn *on_timer);
/* What is queued is dropped. For ops.destroy, and after a pump_init() that failed. */
void pump_fini(struct pump *p);
/* May free the owner, unless a step is under way. The event is borrowed for the call. */
void pump_event(struct pump *p, void *event);
/* The owner's end: nothing but what is under way comes after it. */
void pump_free(struct pump *p);

/* Around a callback outside of any step: what it causes waits for the next event, which its caller
 * has to bring. What the first returns is for the second. */
_must_use_ bool pump_hold(struct pump *p);
void pump_release(struct pump *p, bool held);
