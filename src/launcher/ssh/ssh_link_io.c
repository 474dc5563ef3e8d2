#include "launcher/ssh/ssh_link_io.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/list.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "io/peer/peer_gate.h"
#include "launcher/head/head_read_io.h"
#include "launcher/head/starter.h"

#define BACKLOG 16

struct guest {
    struct list link; /* in strangers, in the order in which they came; or it is l->agent */
    struct ssh_link *of;
    struct stream *stream;
};

struct ssh_link {
    struct ssh_link_ops ops;
    void *arg;
    struct loop *loop;
    struct listener *listener;
    struct peer_gate *gate; /* NULL: everybody may connect */
    uint16_t port;
    char token[HEAD_TOKEN_CHARS + 1];
    struct list strangers;
    unsigned n_strangers;
    struct guest *agent; /* the one that sent LEAD last; NULL: none */
    uint32_t expected;   /* 0: the head has not said it */
};

static void guest_free(struct guest *g) {
    if (g == NULL)
        return;
    if (g->of->agent == g)
        g->of->agent = NULL;
    else
        g->of->n_strangers--;
    list_remove(&g->link);
    stream_free(g->stream);
    free(g);
}

static void tell_expected(struct ssh_link *l);

static void welcome(struct guest *g, const struct head_lead *lead) {
    struct ssh_link *l = g->of;
    guest_free(l->agent); /* it comes again: the old connection is one that it has given up */
    list_remove(&g->link);
    list_init(&g->link);
    l->n_strangers--;
    l->agent = g;
    tell_expected(l);
    l->ops.lead(l->arg, lead->host);
}

/* False: it was disconnected. */
static bool obey(struct guest *g, const struct head_message *m) {
    struct ssh_link *l = g->of;
    bool is_agent = l->agent == g;
    if (!is_agent && m->kind == HEAD_LEAD && head_token_equal(m->lead.token, l->token)) {
        welcome(g, &m->lead);
        return true;
    }
    if (!is_agent || m->kind != HEAD_VERDICT) {
        guest_free(g);
        return false;
    }
    l->ops.verdict(l->arg, &m->verdict);
    return true;
}

static void on_readable(void *arg, struct stream *s) {
    struct guest *g = arg;
    for (;;) {
        struct head_message m;
        struct err err = {0};
        int r = head_read(s, &m, &err);
        if (r == FRAME_E_MORE)
            return;
        if (r < 0) {
            log_debug("the relay's port got no message of ours: %s", err.text);
            guest_free(g);
            return;
        }
        if (!obey(g, &m))
            return;
    }
}

static void on_closed(void *arg, struct stream *s, int code) {
    (void)s;
    (void)code;
    guest_free(arg);
}

static const struct stream_ops stream_ops = {.on_readable = on_readable, .on_closed = on_closed};

static void on_guest(void *arg, int fd, const struct addr *from) {
    struct ssh_link *l = arg;
    if (!peer_gate_admits(l->gate, fd, from)) {
        (void)close(fd);
        return;
    }
    if (l->n_strangers == SSH_LINK_STRANGERS_MAX)
        guest_free(CONTAINER_OF(l->strangers.next, struct guest, link));
    struct guest *g = xcalloc(1, sizeof *g);
    g->of = l;
    if (stream_new(l->loop, fd, &stream_ops, g, &g->stream) < 0) {
        free(g);
        return;
    }
    stream_set_read_limit(g->stream, HEAD_FRAME_MAX);
    list_append(&l->strangers, &g->link);
    l->n_strangers++;
}

static bool send_message(struct ssh_link *l, const struct head_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    if (l == NULL || l->agent == NULL || stream_unsent(l->agent->stream) >= HEAD_FRAME_MAX)
        return false;
    head_encode(m, &frame);
    stream_write(l->agent->stream, strbuf_text(&frame), frame.len);
    return true;
}

bool ssh_link_stop(struct ssh_link *l, int signo) {
    struct head_message m = {.kind = HEAD_STOP};
    m.stop.signo = (uint32_t)signo;
    return send_message(l, &m);
}

void ssh_link_ack(struct ssh_link *l) {
    (void)send_message(l, &(struct head_message){.kind = HEAD_ACK});
}

static void tell_expected(struct ssh_link *l) {
    struct head_message m = {.kind = HEAD_EXPECT};
    m.expect.nodes = l->expected;
    if (l->expected > 0)
        (void)send_message(l, &m);
}

void ssh_link_expect(struct ssh_link *l, uint32_t nodes) {
    if (l == NULL)
        return;
    l->expected = nodes;
    tell_expected(l);
}

void ssh_link_env(const struct ssh_link *l, struct envlist *env) {
    envlist_setf(env, STARTER_HEAD_ENV, "127.0.0.1:%u", l->port);
    envlist_set(env, STARTER_TOKEN_ENV, l->token);
}

static int listen_here(struct ssh_link *l, struct err *err) {
    struct addr at;
    int fd = -1;
    int r = addr_from_literal("127.0.0.1", 0, &at);
    assert(r == 0);
    r = listen_socket(&at, BACKLOG, &fd, err);
    if (r == 0 && peer_gate_new(fd, NULL, NULL, &l->gate, NULL) < 0)
        l->gate = NULL; /* the agent says why; the token is still asked for */
    if (r == 0)
        r = listener_new(l->loop, fd, on_guest, l, &l->listener);
    if (r == 0)
        r = listener_addr(l->listener, &at);
    if (r == 0)
        l->port = addr_port(&at);
    return r;
}

int ssh_link_new(struct loop *loop, const struct ssh_link_ops *ops, void *arg,
                 struct ssh_link **ret, struct err *err) {
    struct ssh_link *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->ops = *ops;
    l->arg = arg;
    list_init(&l->strangers);
    (void)snprintf(l->token, sizeof l->token, "%016" PRIx64 "%016" PRIx64, random_u64(),
                   random_u64());
    int r = listen_here(l, err);
    if (r < 0) {
        ssh_link_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void ssh_link_free(struct ssh_link *l) {
    if (l == NULL)
        return;
    while (!list_empty(&l->strangers))
        guest_free(CONTAINER_OF(l->strangers.next, struct guest, link));
    guest_free(l->agent);
    if (l->listener != NULL)
        listener_free(l->listener);
    peer_gate_free(l->gate);
    free(l);
}
