#include "io/pump.h"

#include <stdlib.h>

struct pump_queued {
    struct list link;
    void *event; /* owned */
};

void pump_init(struct pump *p, struct loop *loop, const struct pump_ops *ops, void *arg,
               loop_timer_fn *on_timer) {
    *p = (struct pump){.ops = ops, .arg = arg, .timer = loop_timer_new(loop, on_timer, arg)};
    list_init(&p->queue);
}

static void *take_first(struct pump *p) {
    struct pump_queued *q = LIST_FIRST(struct pump_queued, &p->queue, link);
    if (q == NULL)
        return NULL;
    void *event = q->event;
    list_remove(&q->link);
    free(q);
    return event;
}

void pump_fini(struct pump *p) {
    void *event;
    while ((event = take_first(p)) != NULL)
        p->ops->drop(event);
    loop_timer_free(p->timer);
    p->timer = NULL;
}

void pump_event(struct pump *p, void *event) {
    if (p->busy) {
        struct pump_queued *q = xcalloc(1, sizeof *q);
        q->event = p->ops->copy(event);
        list_append(&p->queue, &q->link);
        return;
    }
    p->busy = true;
    uint64_t deadline_ns = TIME_NEVER;
    if (!p->dead)
        deadline_ns = p->ops->step(p->arg, event);
    void *next;
    while (!p->dead && (next = take_first(p)) != NULL) {
        deadline_ns = p->ops->step(p->arg, next);
        p->ops->drop(next);
    }
    p->busy = false;
    if (p->dead)
        p->ops->destroy(p->arg);
    else
        loop_timer_set(p->timer, deadline_ns);
}

void pump_free(struct pump *p) {
    if (p->busy)
        p->dead = true;
    else
        p->ops->destroy(p->arg);
}

bool pump_hold(struct pump *p) {
    bool held = p->busy;
    p->busy = true;
    return held;
}

void pump_release(struct pump *p, bool held) { p->busy = held; }
