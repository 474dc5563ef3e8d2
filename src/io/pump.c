#include "io/pump.h"

#include <stdlib.h>
#include <string.h>

struct pump_queued {
    struct list link;
    void *event; /* owned */
};

void pump_init(struct pump *p, struct loop *loop, const struct pump_ops *ops, void *arg,
               loop_timer_fn *on_timer) {
    *p = (struct pump){.ops = ops, .arg = arg, .timer = loop_timer_new(loop, on_timer, arg)};
    list_init(&p->queue);
}

static void *copy_event(const struct pump_ops *ops, const void *event) {
    char *copy = memcpy(xmalloc(ops->event_size), event, ops->event_size);
    for (const struct pump_pointer *p = ops->pointers; p->size != 0; p++) {
        void *at;
        memcpy(&at, copy + p->offset, sizeof at);
        if (at == NULL)
            continue;
        size_t size = p->size == PUMP_TEXT ? strlen(at) + 1 : p->size;
        at = memcpy(xmalloc(size), at, size);
        memcpy(copy + p->offset, &at, sizeof at);
    }
    return copy;
}

static void drop_event(const struct pump_ops *ops, void *event) {
    for (const struct pump_pointer *p = ops->pointers; p->size != 0; p++) {
        void *at;
        memcpy(&at, (char *)event + p->offset, sizeof at);
        free(at);
    }
    free(event);
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
        drop_event(p->ops, event);
    loop_timer_free(p->timer);
    p->timer = NULL;
}

void pump_event(struct pump *p, void *event) {
    if (p->busy) {
        struct pump_queued *q = xcalloc(1, sizeof *q);
        q->event = copy_event(p->ops, event);
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
        drop_event(p->ops, next);
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
