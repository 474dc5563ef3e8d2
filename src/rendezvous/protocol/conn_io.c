#include "rendezvous/protocol/conn_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/frame.h"
#include "io/clock.h"
#include "io/net/stream.h"

struct conn {
    struct loop *loop;
    struct stream *stream; /* NULL once freed */
    struct conn_ops ops;
    void *arg;
    struct addr peer;
    size_t unsent_max;
    bool has_peer;
    bool busy;   /* inside its own callbacks: */
    bool dead;   /* it was freed inside one; its memory is freed when they return */
    bool closed; /* on_closed was called */
};

static void release(struct conn *c) {
    if (c->busy)
        c->dead = true;
    else
        free(c);
}

static void closed(struct conn *c, int code, const char *text) {
    if (c->dead || c->closed)
        return;
    c->closed = true;
    c->ops.on_closed(c->arg, c, code, text);
}

/* Takes one message off the stream. True when there may be another. */
static bool take_message(struct conn *c) {
    size_t bytes;
    const uint8_t *head = stream_peek(c->stream, FRAME_HEADER_BYTES);
    if (head == NULL)
        return false;
    int r = frame_size(head, FRAME_HEADER_BYTES, WIRE_MESSAGE_MAX, &bytes);
    if (r != 0) {
        closed(c, -EPROTO, "a frame has a length that none of ours has");
        return false;
    }
    const uint8_t *frame = stream_peek(c->stream, bytes);
    if (frame == NULL)
        return false;
    struct wire_message m;
    struct err err = {0};
    r = wire_decode((const char *)frame + FRAME_HEADER_BYTES, bytes - FRAME_HEADER_BYTES, &m, &err);
    stream_drain(c->stream, bytes);
    if (r < 0) {
        closed(c, -EPROTO, err.text);
        return false;
    }
    c->ops.on_message(c->arg, c, &m);
    return !c->dead && !c->closed;
}

static void on_readable(void *arg, struct stream *s) {
    struct conn *c = arg;
    bool more = !c->closed;
    c->busy = true;
    while (more && !loop_slice_is_over(c->loop))
        more = take_message(c);
    c->busy = false;
    if (c->dead)
        free(c);
    else if (more)
        stream_read_later(s);
}

static void on_closed(void *arg, struct stream *s, int code) {
    (void)s;
    struct conn *c = arg;
    c->busy = true;
    closed(c, code, code == 0 ? "the other side ended the connection" : strerror(-code));
    c->busy = false;
    if (c->dead)
        free(c);
}

static const struct stream_ops stream_callbacks = {.on_readable = on_readable,
                                                   .on_closed = on_closed};

static struct conn *make(struct loop *loop, const struct conn_ops *ops, void *arg) {
    struct conn *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->ops = *ops;
    c->arg = arg;
    c->unsent_max = CONN_UNSENT_MAX;
    return c;
}

int conn_new(struct loop *loop, int fd, const struct conn_ops *ops, void *arg, struct conn **ret) {
    struct conn *c = make(loop, ops, arg);
    c->has_peer = addr_of_peer(fd, &c->peer) == 0;
    int r = stream_new(loop, fd, &stream_callbacks, c, &c->stream);
    if (r < 0) {
        free(c);
        return r;
    }
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + WIRE_MESSAGE_MAX);
    stream_read_soon(c->stream); /* JOIN is sent right after the connection is made */
    *ret = c;
    return 0;
}

int conn_connect(struct loop *loop, const struct addr *to, const struct conn_ops *ops, void *arg,
                 struct conn **ret) {
    struct conn *c = make(loop, ops, arg);
    c->peer = *to;
    c->has_peer = true;
    int r = stream_connect(loop, to, &stream_callbacks, c, &c->stream);
    if (r < 0) {
        free(c);
        return r;
    }
    stream_set_priority(c->stream, LOOP_PRIO_LEASE);
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + WIRE_MESSAGE_MAX);
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

void conn_send_frames(struct conn *c, const char *frames, size_t len, void (*done)(void *arg),
                      void *arg) {
    if (stream_unsent(c->stream) <= c->unsent_max) {
        stream_write_ref(c->stream, frames, len, done, arg);
        return;
    }
    done(arg);
    conn_cut(c);
}

void conn_send_text(struct conn *c, const char *text, size_t len) {
    uint8_t head[FRAME_HEADER_BYTES];
    frame_header(len, head);
    if (stream_unsent(c->stream) + len > c->unsent_max) {
        conn_cut(c);
        return;
    }
    stream_write(c->stream, head, sizeof head);
    stream_write(c->stream, text, len);
}

void conn_send(struct conn *c, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    conn_send_text(c, strbuf_text(&text), text.len);
}

void conn_call(struct conn *c) {
    conn_send(c, &(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}});
}

size_t conn_unsent(const struct conn *c) { return stream_unsent(c->stream); }

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
