#include "rendezvous/protocol/probe_io.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include "io/clock.h"
#include "rendezvous/protocol/conn_io.h"

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
    (void)c;
    (void)text;
    bool refused = code == -ECONNREFUSED;
    answer(arg, (struct probe_answer){.result = refused ? PROBE_GONE : PROBE_UNKNOWN,
                                      .refused = refused,
                                      .code = code});
}

static void on_timeout(void *arg) {
    answer(arg, (struct probe_answer){.result = PROBE_UNKNOWN, .code = -ETIMEDOUT});
}

static const struct conn_ops callbacks = {.on_message = on_message, .on_closed = on_closed};

int probe_start(struct loop *loop, const struct addr *to, struct auth *auth, uint64_t incarnation,
                uint64_t timeout_ns, probe_fn *fn, void *arg, struct probe **ret) {
    struct probe *p = xcalloc(1, sizeof *p);
    *p = (struct probe){.incarnation = incarnation, .fn = fn, .arg = arg};
    int r = loop_timer_new(loop, on_timeout, p, &p->timer);
    if (r == 0)
        r = conn_connect(loop, to, auth, &callbacks, p, &p->conn);
    if (r < 0) {
        probe_free(p);
        return r;
    }
    conn_call(p->conn);
    loop_timer_set(p->timer, clock_now_ns() + timeout_ns);
    *ret = p;
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

int probe_start_from(struct loop *loop, const struct addr *from, const struct addr *to,
                     struct auth *auth, uint64_t incarnation, uint64_t timeout_ns, probe_fn *fn,
                     void *arg, struct probe **ret) {
    int fd = -1;
    int r = connect_from(from, to, &fd);
    if (r < 0)
        return r;
    struct probe *p = xcalloc(1, sizeof *p);
    *p = (struct probe){.incarnation = incarnation, .fn = fn, .arg = arg};
    r = conn_connect_by(loop, fd, auth, &callbacks, p, &p->conn); /* takes fd */
    if (r == 0)
        r = loop_timer_new(loop, on_timeout, p, &p->timer);
    if (r < 0) {
        probe_free(p);
        return r;
    }
    conn_call(p->conn);
    loop_timer_set(p->timer, clock_now_ns() + timeout_ns);
    *ret = p;
    return 0;
}
