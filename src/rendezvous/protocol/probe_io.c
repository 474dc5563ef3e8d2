#include "rendezvous/protocol/probe_io.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include "io/clock.h"
#include "rendezvous/protocol/conn_io.h"

/* A connection and the probes that wait for what comes on it. A handshake takes 0.3 ms of CPU on
 * each side, so probe_start_from() joins a call between the same addresses that is under way: a
 * leader probes a node that has come, and at the same time tries its ring. */
struct shared_call {
    struct list link; /* in `calls`, until something comes */
    struct loop *loop;
    struct auth *auth;
    struct addr to;
    struct conn *conn;
    struct list probes;
};

struct probe {
    struct shared_call *call;
    struct list link; /* in call->probes */
    struct loop_timer *timer;
    uint64_t incarnation;
    probe_fn *fn;
    void *arg;
};

static struct list calls = LIST_INIT(calls);

static void end_call(struct shared_call *c) {
    list_remove(&c->link);
    conn_free(c->conn);
    free(c);
}

void probe_free(struct probe *p) {
    if (p == NULL)
        return;
    list_remove(&p->link);
    if (p->call != NULL && list_empty(&p->call->probes))
        end_call(p->call);
    loop_timer_free(p->timer);
    free(p);
}

static void answer(struct probe *p, struct probe_answer a) {
    probe_fn *fn = p->fn;
    void *arg = p->arg;
    probe_free(p);
    fn(arg, &a);
}

/* What has come is the answer to all; one that begins meanwhile makes a call of its own. */
static void answer_all(struct shared_call *c, struct probe_answer a) {
    struct list probes = LIST_INIT(probes);
    struct probe *p;
    LIST_FOR_EACH(struct probe, each, &c->probes, link) {
        list_remove(&each->link);
        list_append(&probes, &each->link);
        each->call = NULL;
    }
    end_call(c);
    while ((p = LIST_FIRST(struct probe, &probes, link)) != NULL) {
        if (a.incarnation != 0)
            a.result = a.incarnation == p->incarnation ? PROBE_ALIVE : PROBE_GONE;
        answer(p, a);
    }
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct probe_answer a = {.result = PROBE_UNKNOWN};
    if (m->kind == WIRE_HELLO && m->hello.incarnation != 0) {
        a.incarnation = m->hello.incarnation;
        a.run_id = m->hello.run_id;
        a.within_host = conn_is_within_host(c);
    }
    answer_all(arg, a);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)c;
    bool refused = code == -ECONNREFUSED;
    answer_all(arg, (struct probe_answer){.result = refused ? PROBE_GONE : PROBE_UNKNOWN,
                                          .refused = refused,
                                          .code = code,
                                          .why = text});
}

static void on_timeout(void *arg) {
    answer(arg,
           (struct probe_answer){.result = PROBE_UNKNOWN, .code = -ETIMEDOUT, .why = "no answer"});
}

static const struct conn_ops callbacks = {.on_message = on_message, .on_closed = on_closed};

static struct shared_call *new_call(struct loop *loop, const struct addr *to, struct auth *auth) {
    struct shared_call *c = xcalloc(1, sizeof *c);
    *c = (struct shared_call){.loop = loop, .auth = auth, .to = *to};
    list_init(&c->probes);
    list_append(&calls, &c->link);
    return c;
}

static struct probe *wait_for(struct shared_call *c, uint64_t incarnation, uint64_t timeout_ns,
                              probe_fn *fn, void *arg) {
    struct probe *p = xcalloc(1, sizeof *p);
    *p = (struct probe){.call = c, .incarnation = incarnation, .fn = fn, .arg = arg};
    list_append(&c->probes, &p->link);
    p->timer = loop_timer_new(c->loop, on_timeout, p);
    loop_timer_set(p->timer, clock_now_ns() + timeout_ns);
    return p;
}

int probe_start(struct loop *loop, const struct addr *to, struct auth *auth, uint64_t incarnation,
                uint64_t timeout_ns, probe_fn *fn, void *arg, struct probe **ret) {
    struct shared_call *c = new_call(loop, to, auth);
    int r = conn_connect(loop, to, auth, &callbacks, c, &c->conn);
    if (r < 0) {
        end_call(c);
        return r;
    }
    conn_call(c->conn);
    *ret = wait_for(c, incarnation, timeout_ns, fn, arg);
    return 0;
}

/* Makes a socket that connects from this address. */
static int connect_from(const struct addr *from, const struct addr *to, int *ret_fd) {
    struct addr local = *from;
    int on = 1, r = 0;
    int fd = socket(to->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    addr_set_port(&local, 0);
    /* The kernel chooses the port when the destination is known, so many probes need few ports.
     * ip(7) */
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&local.ss, local.len) < 0)
        r = -errno;
    while (r == 0 && connect(fd, (const struct sockaddr *)&to->ss, to->len) < 0) {
        if (errno == EINPROGRESS)
            break;
        r = errno == EINTR ? 0 : -errno;
    }
    if (r < 0) {
        (void)close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static struct shared_call *call_under_way(struct loop *loop, const struct addr *from,
                                          const struct addr *to, const struct auth *auth) {
    struct addr local;
    LIST_FOR_EACH(struct shared_call, c, &calls, link) {
        if (c->loop == loop && c->auth == auth && addr_same_host(&c->to, to) &&
            addr_port(&c->to) == addr_port(to) && conn_local_addr(c->conn, &local) == 0 &&
            addr_same_host(&local, from))
            return c;
    }
    return NULL;
}

int probe_start_from(struct loop *loop, const struct addr *from, const struct addr *to,
                     struct auth *auth, uint64_t incarnation, uint64_t timeout_ns, probe_fn *fn,
                     void *arg, struct probe **ret) {
    struct shared_call *c = call_under_way(loop, from, to, auth);
    int fd = -1;
    if (c != NULL) {
        *ret = wait_for(c, incarnation, timeout_ns, fn, arg);
        return 0;
    }
    int r = connect_from(from, to, &fd);
    if (r < 0)
        return r;
    c = new_call(loop, to, auth);
    r = conn_connect_by(loop, fd, auth, &callbacks, c, &c->conn); /* takes fd */
    if (r < 0) {
        end_call(c);
        return r;
    }
    conn_call(c->conn);
    *ret = wait_for(c, incarnation, timeout_ns, fn, arg);
    return 0;
}
