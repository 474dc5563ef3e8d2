#include "rendezvous/probe_io.h"

#include <errno.h>

#include "io/clock.h"
#include "rendezvous/conn_io.h"

struct probe {
    struct loop_timer *timer;
    struct conn *conn;
    uint64_t incarnation;
    probe_fn *fn;
    void *arg;
};

void probe_free(struct probe *p) {
    if (p == NULL)
        return;
    loop_timer_free(p->timer);
    conn_free(p->conn);
    free(p);
}

static void answer(struct probe *p, struct probe_answer a) {
    probe_fn *fn = p->fn;
    void *arg = p->arg;
    probe_free(p);
    fn(arg, &a);
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)c;
    struct probe *p = arg;
    struct probe_answer a = {.result = PROBE_UNKNOWN};
    if (m->kind == WIRE_HELLO && m->hello.incarnation != 0) {
        a.incarnation = m->hello.incarnation;
        a.result = a.incarnation == p->incarnation ? PROBE_ALIVE : PROBE_GONE;
    }
    answer(p, a);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)c;
    (void)text;
    bool refused = code == -ECONNREFUSED;
    answer(arg, (struct probe_answer){.result = refused ? PROBE_GONE : PROBE_UNKNOWN,
                                      .refused = refused});
}

static void on_timeout(void *arg) { answer(arg, (struct probe_answer){.result = PROBE_UNKNOWN}); }

static const struct conn_ops callbacks = {.on_message = on_message, .on_closed = on_closed};

int probe_start(struct loop *loop, const struct addr *to, uint64_t incarnation, uint64_t timeout_ns,
                probe_fn *fn, void *arg, struct probe **ret) {
    struct probe *p = xcalloc(1, sizeof *p);
    *p = (struct probe){.incarnation = incarnation, .fn = fn, .arg = arg};
    int r = loop_timer_new(loop, on_timeout, p, &p->timer);
    if (r == 0)
        r = conn_connect(loop, to, &callbacks, p, &p->conn);
    if (r < 0) {
        probe_free(p);
        return r;
    }
    loop_timer_set(p->timer, clock_now_ns() + timeout_ns);
    *ret = p;
    return 0;
}
