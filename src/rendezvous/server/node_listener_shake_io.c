/* Handshakes: memory for each, and more of a core than anything else that a stranger can cause. So
 * there are at most RDZV_HANDSHAKES_MAX at once, others wait, and sources have equal shares. */
#include "io/clock.h"
#include "rendezvous/server/node_listener_priv.h"

static void begin(struct joiner *c) {
    struct rdzv_listener *l = c->listener;
    c->shakes = true;
    c->shaking_ns = clock_now_ns();
    c->deadline_ns = c->shaking_ns + RDZV_HANDSHAKE_NS;
    list_remove(&c->link);
    list_append(&l->shaking, &c->link);
    list_append(&c->source->shaking, &c->turn);
    c->source->n_shaking++;
    l->n_shaking++;
    listener_update_interest(l);
}

bool listener_on_handshake(void *arg, struct conn *conn) {
    (void)conn;
    struct joiner *c = arg;
    struct rdzv_listener *l = c->listener;
    if (l->n_shaking < RDZV_HANDSHAKES_MAX && l->n_waiting == 0) {
        begin(c);
        return true;
    }
    c->waits = true;
    list_append(&c->source->waiting, &c->turn);
    l->n_waiting++;
    listener_update_interest(l);
    return false;
}

void listener_end_handshake(struct joiner *c) {
    struct rdzv_listener *l = c->listener;
    list_remove(&c->turn);
    if (c->shakes) {
        c->source->n_shaking--;
        l->n_shaking--;
    } else if (c->waits) {
        l->n_waiting--;
    }
    c->shakes = c->waits = false;
}

/* The source of those that wait with the fewest handshakes under way. */
static const struct source *next_source(const struct rdzv_listener *l) {
    const struct source *next = NULL;
    for (size_t i = 0; i < LISTENER_SOURCES; i++) {
        const struct source *s = &l->sources[i];
        if (!list_empty(&s->waiting) && (next == NULL || s->n_shaking < next->n_shaking))
            next = s;
    }
    return next;
}

/* The oldest handshake of the source that has most, if it has more than its share. */
static struct joiner *greedy(const struct rdzv_listener *l) {
    const struct source *most = &l->sources[0], *next = next_source(l);
    for (size_t i = 1; i < LISTENER_SOURCES; i++)
        if (l->sources[i].n_shaking > most->n_shaking)
            most = &l->sources[i];
    if (next == NULL || next->n_shaking + 1 >= most->n_shaking)
        return NULL;
    return LIST_FIRST(struct joiner, &most->shaking, turn);
}

uint64_t listener_next_handshake_ns(const struct rdzv_listener *l) {
    if (l->n_waiting == 0)
        return TIME_NEVER;
    if (l->n_shaking < RDZV_HANDSHAKES_MAX)
        return 0;
    const struct joiner *c = greedy(l);
    return c == NULL ? TIME_NEVER : c->shaking_ns + RDZV_HANDSHAKE_ROOM_NS;
}

void listener_serve_waiting(struct rdzv_listener *l) {
    uint64_t now = clock_now_ns();
    while (listener_next_handshake_ns(l) <= now && !loop_slice_is_over(l->loop)) {
        struct joiner *c = l->n_shaking < RDZV_HANDSHAKES_MAX ? NULL : greedy(l);
        if (c != NULL)
            conn_free(listener_take(c));
        const struct source *next = next_source(l);
        c = next == NULL ? NULL : LIST_FIRST(struct joiner, &next->waiting, turn);
        if (c == NULL)
            return;
        listener_end_handshake(c); /* it waits no more */
        begin(c);
        conn_go_on(c->conn);
    }
}
