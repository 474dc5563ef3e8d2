#include "rendezvous/protocol/conn_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/frame.h"
#include "io/clock.h"
#include "rendezvous/protocol/conn_priv.h"

static void destroy(struct conn *c) {
    auth_ask_free(c->ask);
    strbuf_fini(&c->held);
    free(c);
}

static void release(struct conn *c) {
    if (c->busy > 0)
        c->dead = true;
    else
        destroy(c);
}

void conn_enter(struct conn *c) { c->busy++; }

void conn_leave(struct conn *c) {
    if (--c->busy == 0 && c->dead)
        destroy(c);
}

bool conn_lives(const struct conn *c) { return !c->dead && !c->closed; }

void conn_closed(struct conn *c, int code, const char *text) {
    if (!conn_lives(c))
        return;
    c->closed = true;
    auth_ask_free(TAKE_PTR(c->ask));
    c->ops.on_closed(c->arg, c, code, text);
}

bool conn_next(struct conn *c, struct wire_message *ret) {
    size_t bytes, max = c->phase == CONN_OPEN ? WIRE_MESSAGE_MAX : CONN_FIRST_MAX;
    const uint8_t *head = stream_peek(c->stream, FRAME_HEADER_BYTES);
    if (head == NULL)
        return false;
    int r = frame_size(head, FRAME_HEADER_BYTES, max, &bytes);
    if (r != 0) {
        conn_closed(c, -EPROTO, "a frame has a length that none of ours has");
        return false;
    }
    const uint8_t *frame = stream_peek(c->stream, bytes);
    if (frame == NULL)
        return false;
    struct err err = {0};
    r = wire_decode((const char *)frame + FRAME_HEADER_BYTES, bytes - FRAME_HEADER_BYTES, ret,
                    &err);
    stream_drain(c->stream, bytes);
    if (r < 0) {
        conn_closed(c, -EPROTO, err.text);
        return false;
    }
    return true;
}

/* Takes one message off the stream. True when there may be another. */
static bool take_message(struct conn *c) {
    struct wire_message m;
    if (c->phase != CONN_OPEN)
        return conn_begin_step(c);
    if (!conn_next(c, &m))
        return false;
    if (m.kind == WIRE_GREETING) {
        conn_closed(c, -EPROTO, "it greets once more");
        return false;
    }
    c->ops.on_message(c->arg, c, &m);
    return conn_lives(c);
}

static void on_readable(void *arg, struct stream *s) {
    struct conn *c = arg;
    bool more = !c->closed;
    conn_enter(c);
    while (more && !loop_slice_is_over(c->loop))
        more = take_message(c);
    if (more)
        stream_read_later(s);
    conn_leave(c);
}

static void on_closed(void *arg, struct stream *s, int code) {
    (void)s;
    struct conn *c = arg;
    conn_enter(c);
    if (c->phase != CONN_OPEN)
        conn_begin_failed(c, code);
    else
        conn_closed(c, code, code == 0 ? "the other side ended the connection" : strerror(-code));
    conn_leave(c);
}

static void on_secured(void *arg, struct stream *s) {
    (void)s;
    conn_secured(arg);
}

static const struct stream_ops stream_callbacks = {
    .on_readable = on_readable, .on_closed = on_closed, .on_secured = on_secured};

static struct conn *make(struct loop *loop, struct auth *auth, const struct conn_ops *ops,
                         void *arg) {
    struct conn *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->auth = auth;
    c->ops = *ops;
    c->arg = arg;
    c->unsent_max = CONN_UNSENT_MAX;
    return c;
}

static _must_use_ int make_by(struct loop *loop, int fd, struct auth *auth,
                              const struct conn_ops *ops, void *arg, struct conn **ret) {
    struct conn *c = make(loop, auth, ops, arg);
    c->has_peer = addr_of_peer(fd, &c->peer) == 0;
    int r = stream_new(loop, fd, &stream_callbacks, c, &c->stream);
    if (r < 0) {
        free(c);
        return r;
    }
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + CONN_FIRST_MAX);
    *ret = c;
    return 0;
}

int conn_new(struct loop *loop, int fd, struct auth *auth, const struct conn_ops *ops, void *arg,
             struct conn **ret) {
    int r = make_by(loop, fd, auth, ops, arg, ret);
    if (r < 0)
        return r;
    (*ret)->phase = CONN_CALLED;
    (*ret)->called_us = true;
    stream_read_soon((*ret)->stream); /* CALL is sent right after the connection is made */
    return 0;
}

void conn_is_ours(struct conn *c) { c->is_ours = true; }

int conn_connect_by(struct loop *loop, int fd, struct auth *auth, const struct conn_ops *ops,
                    void *arg, struct conn **ret) {
    int r = make_by(loop, fd, auth, ops, arg, ret);
    if (r == 0)
        conn_begin(*ret);
    return r;
}

int conn_connect(struct loop *loop, const struct addr *to, struct auth *auth,
                 const struct conn_ops *ops, void *arg, struct conn **ret) {
    struct conn *c = make(loop, auth, ops, arg);
    c->peer = *to;
    c->has_peer = true;
    int r = stream_connect(loop, to, &stream_callbacks, c, &c->stream);
    if (r < 0) {
        free(c);
        return r;
    }
    stream_set_priority(c->stream, LOOP_PRIO_LEASE);
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + CONN_FIRST_MAX);
    conn_begin(c);
    *ret = c;
    return 0;
}

void conn_free(struct conn *c) {
    if (c == NULL || c->stream == NULL)
        return;
    struct stream *s = TAKE_PTR(c->stream);
    stream_free(s);
    release(c);
}

void conn_finish(struct conn *c) {
    if (c == NULL || c->stream == NULL)
        return;
    struct stream *s = TAKE_PTR(c->stream);
    stream_finish(s, clock_now_ns() + CONN_FINISH_NS);
    release(c);
}

void conn_set_owner(struct conn *c, const struct conn_ops *ops, void *arg) {
    c->ops = *ops;
    c->arg = arg;
}

void conn_cut(struct conn *c) {
    /* The next read then finds the end of the connection. */
    if (stream_fd(c->stream) >= 0)
        (void)shutdown(stream_fd(c->stream), SHUT_RDWR);
}

static void hold(struct conn *c, const void *data, size_t len) {
    if (c->held.len + len > c->unsent_max)
        conn_cut(c);
    else
        strbuf_add_bytes(&c->held, data, len);
}

void conn_send_frames(struct conn *c, const char *frames, size_t len, void (*done)(void *arg),
                      void *arg) {
    if (c->phase == CONN_OPEN && stream_unsent(c->stream) <= c->unsent_max) {
        stream_write_ref(c->stream, frames, len, done, arg);
        return;
    }
    if (c->phase == CONN_OPEN)
        conn_cut(c);
    else
        hold(c, frames, len);
    done(arg);
}

void conn_send_text(struct conn *c, const char *text, size_t len) {
    uint8_t head[FRAME_HEADER_BYTES];
    frame_header(len, head);
    if (c->phase != CONN_OPEN) {
        hold(c, head, sizeof head);
        hold(c, text, len);
        return;
    }
    if (stream_unsent(c->stream) + len > c->unsent_max) {
        conn_cut(c);
        return;
    }
    stream_write(c->stream, head, sizeof head);
    stream_write(c->stream, text, len);
}

void conn_write(struct conn *c, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    uint8_t head[FRAME_HEADER_BYTES];
    wire_encode(m, &text);
    frame_header(text.len, head);
    stream_write(c->stream, head, sizeof head);
    stream_write(c->stream, strbuf_text(&text), text.len);
}

void conn_send(struct conn *c, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    conn_send_text(c, strbuf_text(&text), text.len);
}

void conn_call(struct conn *c) {
    conn_send(c, &(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}});
}

size_t conn_unsent(const struct conn *c) { return c->held.len + stream_unsent(c->stream); }

void conn_set_unsent_max(struct conn *c, size_t bytes) { c->unsent_max = bytes; }

void conn_set_patience(struct conn *c, uint64_t lease_ns, uint64_t heartbeat_ns) {
    if (c->stream != NULL)
        stream_set_patience(c->stream, lease_ns, 2 * heartbeat_ns);
}

void conn_set_priority(struct conn *c, enum loop_priority prio) {
    if (c->stream != NULL)
        stream_set_priority(c->stream, prio);
}

int conn_local_addr(const struct conn *c, struct addr *ret) {
    int fd = stream_fd(c->stream);
    return fd < 0 ? -ENOTCONN : addr_of_socket(fd, ret);
}

int conn_peer_addr(const struct conn *c, struct addr *ret) {
    if (!c->has_peer)
        return -ENOTCONN;
    *ret = c->peer;
    return 0;
}

bool conn_is_within_host(const struct conn *c) {
    struct addr local, peer;
    if (conn_local_addr(c, &local) < 0 || conn_peer_addr(c, &peer) < 0)
        return false;
    return addr_is_loopback(&peer) || addr_same_host(&local, &peer);
}

bool conn_is_choosing(const struct conn *c) { return c->phase == CONN_CHOOSING; }

bool conn_is_secured(const struct conn *c) {
    return c->stream != NULL && stream_is_secured(c->stream);
}
