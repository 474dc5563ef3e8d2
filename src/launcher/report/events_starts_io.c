#include "launcher/report/events_starts_io.h"

#include <string.h>

#include "io/clock.h"

struct events_starts {
    struct events *events;
    bool warm;
    struct loop_timer *timer;
    struct timeline_entry held; /* kind 0: none */
};

static void let_go(struct events_starts *s) {
    loop_timer_set(s->timer, TIME_NEVER);
    if (s->held.kind == TIMELINE_STARTED)
        events_write(s->events, &s->held);
    s->held = (struct timeline_entry){0};
}

static void on_timer(void *arg) { let_go(arg); }

struct events_starts *events_starts_new(struct loop *loop, struct events *events, bool warm) {
    struct events_starts *s = xcalloc(1, sizeof *s);
    s->events = events;
    s->warm = warm;
    s->timer = loop_timer_new(loop, on_timer, s);
    return s;
}

static void complete(struct events_starts *s, const struct timeline_entry *warm) {
    if (s->held.kind == TIMELINE_STARTED &&
        generation_compare(s->held.generation, warm->generation) == 0) {
        s->held.has_warm = true;
        s->held.n_warm = warm->n_warm;
        memcpy(s->held.cold_because, warm->cold_because, sizeof s->held.cold_because);
    }
    let_go(s);
}

void events_starts_write(struct events_starts *s, const struct timeline_entry *entry) {
    if (s->events == NULL)
        return;
    if (entry->kind == TIMELINE_WARM) {
        complete(s, entry);
        return;
    }
    let_go(s);
    if (s->warm && entry->kind == TIMELINE_STARTED) {
        s->held = *entry;
        loop_timer_set(s->timer, clock_now_ns() + EVENTS_START_WAIT_NS);
    } else {
        events_write(s->events, entry);
    }
}

void events_starts_free(struct events_starts *s) {
    if (s == NULL)
        return;
    let_go(s);
    loop_timer_free(s->timer);
    free(s);
}
