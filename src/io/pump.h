/* Drives one pure machine from the loop. It gives the machine one event at a time, queues events
 * that arrive while effects are carried out until the step is over, and sets the machine's one
 * timer. A machine is never entered recursively, and its owner may be freed inside its own
 * callbacks.
 *
 *     pump_init(&s->pump, loop, &pump_ops, s, on_timer);
 *     pump_event(&s->pump, &event);      steps at once, or later if a step is running
 *     pump_free(&s->pump);               ops.destroy now, or when the step is over
 *
 * The owner embeds the pump and passes `arg`. */
#pragma once

#include "base/list.h"
#include "io/loop.h"

#define PUMP_POINTERS_MAX 4
#define PUMP_TEXT SIZE_MAX

struct pump_ops {
    /* One step, with its effects, until p->dead. Returns the next deadline, by clock_now_ns(). */
    uint64_t (*step)(void *arg, void *event);
    /* Frees the owner, and calls pump_fini(). */
    void (*destroy)(void *arg);
    size_t event_size;
    /* The pointers in an event, to what is copied with a queued one. Size 0 ends the rows. */
    struct pump_pointer {
        size_t offset; /* in the event */
        size_t size;   /* of what it points to, or PUMP_TEXT */
    } pointers[PUMP_POINTERS_MAX + 1];
};

struct pump {
    const struct pump_ops *ops; /* borrowed: static */
    void *arg;
    struct loop_timer *timer; /* the machine's deadline */
    struct list queue;        /* struct pump_queued */
    bool busy;                /* a step, its effects or a held callback are running: */
    bool dead;                /* freed during that */
};

void pump_init(struct pump *p, struct loop *loop, const struct pump_ops *ops, void *arg,
               loop_timer_fn *on_timer);
/* Drops what is queued. For ops.destroy. */
void pump_fini(struct pump *p);
/* Can free the owner, unless a step is running. The event is borrowed for the call. */
void pump_event(struct pump *p, void *event);
/* Ends the owner: only what is already running still completes. */
void pump_free(struct pump *p);

/* Around a callback that runs outside of any step: events that it causes wait for the next event,
 * which the caller must send. The first returns the argument for the second. */
_must_use_ bool pump_hold(struct pump *p);
void pump_release(struct pump *p, bool held);
