#include "rendezvous/protocol/probe_io.h"

#include <errno.h>

#include "io/clock.h"
#include "rendezvous/protocol/conn_io.h"

struct probe {
    struct conn *conn;
    struct loop_timer *timer;
    uint64_t incarnation;
    probe_fn *fn;
    void *arg;
};

void probe_free(struct probe *p) {
    if (p == NULL)
        return;
    conn_free(p->conn);
    loop_timer_free(p->timer);
    free(p);
}

static void answer(struct probe *p, struct probe_answer a) {
    probe_fn *fn = p->fn;
    void *arg = p->arg;
    probe_free(p);
    fn(arg, &a);
}

enum probe_result probe_result_for(const struct probe_answer *answer, uint64_t own) {
    bool came_back = answer->incarnation == own && !answer->within_host;
    return answer->result == PROBE_GONE && came_back ? PROBE_UNKNOWN : answer->result;
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct probe *p = arg;
    struct probe_answer a = {.result = PROBE_UNKNOWN};
    if (m->kind == WIRE_HELLO && m->hello.incarnation != 0) {
        a.incarnation = m->hello.incarnation;
        a.run_id = m->hello.run_id;
        a.within_host = conn_is_within_host(c);
        a.result = a.incarnation == p->incarnation ? PROBE_ALIVE : PROBE_GONE;
    }
    answer(p, a);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    answer(arg, (struct probe_answer){.result = code == -ECONNREFUSED ? PROBE_GONE : PROBE_UNKNOWN,
                                      .code = code,
                                      .why = text});
}

static void on_timeout(void *arg) {
    answer(arg,
           (struct probe_answer){.result = PROBE_UNKNOWN, .code = -ETIMEDOUT, .why = "no answer"});
}

int probe_start(struct loop *loop, const struct addr *from, const struct addr *to,
                struct auth *auth, uint64_t incarnation, uint64_t timeout_ns, probe_fn *fn,
                void *arg, struct probe **ret) {
    static const struct conn_ops callbacks = {.on_message = on_message, .on_closed = on_closed};
    struct probe *p = xcalloc(1, sizeof *p);
    *p = (struct probe){.incarnation = incarnation, .fn = fn, .arg = arg};
    int r = conn_connect(loop, from, to, auth, &callbacks, p, &p->conn);
    if (r < 0) {
        free(p);
        return r;
    }
    conn_call(p->conn);
    p->timer = loop_timer_new(loop, on_timeout, p);
    loop_timer_set(p->timer, clock_now_ns() + timeout_ns);
    *ret = p;
    return 0;
}
