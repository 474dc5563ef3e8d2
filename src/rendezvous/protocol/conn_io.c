#include "rendezvous/protocol/conn_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/frame.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/net/stream.h"

enum conn_phase {
    CONN_CALLING = 1, /* connecting: CALL is sent, GREETING is to come */
    CONN_CHOOSING,    /* connecting: auth_choose() */
    CONN_CALLED,      /* accepting: CALL is to come */
    CONN_PREPARING,   /* accepting: the greeting is not ready: auth_wait() */
    CONN_GREETED,     /* accepting: the next bytes say what the peer has chosen */
    CONN_WAITING,     /* accepting: the handshake waits for conn_go_on() */
    CONN_SHAKING,     /* both: the handshake */
    CONN_OPEN,        /* messages pass */
    CONN_FOREIGN,     /* the peer has another version: nothing is read any more */
};

struct conn {
    struct loop *loop;
    struct stream *stream; /* NULL once freed */
    struct auth *auth;     /* borrowed; NULL: as AUTH_NONE */
    struct auth_ask *ask;  /* PREPARING, CHOOSING: what it waits for */
    struct conn_ops ops;
    void *arg;
    struct addr peer;
    size_t unsent_max;
    struct strbuf held; /* frames that wait until it is open */
    enum conn_phase phase;
    bool has_peer;
    bool called_us; /* the accepting side */
    bool is_ours;   /* conn_is_ours() was called */
    unsigned busy;  /* inside this many of its own callbacks: */
    bool dead;      /* it was freed inside one; its memory is freed when they return */
    bool closed;    /* on_closed was called */
};

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

/* Around everything that calls its owner. */
static void conn_enter(struct conn *c) { c->busy++; }

static void conn_leave(struct conn *c) {
    if (--c->busy == 0 && c->dead)
        destroy(c);
}

static bool conn_lives(const struct conn *c) { return !c->dead && !c->closed; }

static void conn_closed(struct conn *c, int code, const char *text) {
    if (!conn_lives(c))
        return;
    c->closed = true;
    auth_ask_free(TAKE_PTR(c->ask));
    c->ops.on_closed(c->arg, c, code, text);
}

/* False: there is none yet, or there is no valid one, and the connection is closed. */
static _must_use_ bool conn_next(struct conn *c, struct wire_message *ret) {
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

static void conn_write(struct conn *c, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(m, &frame);
    stream_write(c->stream, strbuf_text(&frame), frame.len);
}

/* RFC 8446 §5.1: 22, 3 and a number above 0. A frame that begins so is longer than any message. */
#define TLS_FIRST_BYTES 3
static_assert(WIRE_MESSAGE_MAX / 2 <= 0x010316,
              "a TLS record's header never looks like a message of that length");

static bool tls_begins(const uint8_t b[TLS_FIRST_BYTES]) {
    return b[0] == 22 && b[1] == 3 && b[2] > 0;
}

static void open_up(struct conn *c) {
    c->phase = CONN_OPEN;
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + WIRE_MESSAGE_MAX);
    if (c->ops.on_open != NULL)
        c->ops.on_open(c->arg, c);
    if (c->stream != NULL && c->held.len > 0)
        stream_write(c->stream, strbuf_text(&c->held), c->held.len);
    strbuf_fini(&c->held);
    c->held = (struct strbuf){0};
}

/* HELLO without anything but the version: all versions know it. */
static void tell_version(struct conn *c) {
    conn_write(c, &(struct wire_message){.kind = WIRE_HELLO, .hello = {.version = WIRE_VERSION}});
    c->phase = CONN_FOREIGN;
}

/* The stream has ended before it was open. */
static void conn_begin_failed(struct conn *c, int code) {
    char text[AUTH_WHY_MAX];
    bool greeted = c->phase == CONN_CHOOSING || c->phase == CONN_SHAKING;
    bool failed = c->phase == CONN_SHAKING && (code == -EKEYREJECTED || code == -EPROTO);
    const char *why = failed ? stream_tls_why(c->stream) : NULL;
    if (greeted && (code == 0 || code == -ECONNRESET)) {
        conn_closed(c, -ECONNABORTED, "the other side ended the connection while it began");
        return;
    }
    if (c->phase == CONN_GREETED && code == 0 && c->has_peer && !conn_is_within_host(c) &&
        auth_state(c->auth) == AUTH_STATE_KEYS)
        auth_refused(c->auth, &c->peer,
                     "it left after it received the keys that are accepted here; muster's "
                     "output there shows why");
    if (why == NULL) {
        conn_closed(c, code, code == 0 ? "the other side ended the connection" : strerror(-code));
        return;
    }
    if (c->called_us && c->has_peer)
        auth_refused(c->auth, &c->peer, why);
    (void)snprintf(text, sizeof text, "it failed to prove that it has this node's key: %.300s",
                   why);
    conn_closed(c, -EKEYREJECTED, text);
}

/* ---- the connecting side ---- */

static void follow(struct conn *c, const struct auth_choice *choice) {
    switch (choice->way) {
    case AUTH_WAY_PLAIN:
        open_up(c);
        if (conn_lives(c) && stream_available(c->stream) > 0)
            stream_read_later(c->stream);
        return;
    case AUTH_WAY_TLS:
        c->phase = CONN_SHAKING;
        stream_start_tls(c->stream, choice->session);
        return;
    case AUTH_WAY_MUNGE: /* is no answer */
    case AUTH_WAY_REFUSED: conn_closed(c, -EKEYREJECTED, choice->why); return;
    }
}

static void greet(struct conn *c);

/* What was asked of the struct auth; choice NULL: its greeting is ready. */
static void on_auth(void *arg, const struct auth_choice *choice) {
    struct conn *c = arg;
    c->ask = NULL;
    conn_enter(c);
    if (conn_lives(c) && choice != NULL)
        follow(c, choice);
    else if (conn_lives(c))
        greet(c);
    conn_leave(c);
}

/* Whoever has no struct auth has no key either; on this machine the other side asks the kernel. */
static void choose_without(struct conn *c, const struct auth_greeting *g) {
    const struct auth_side nothing = {.mode = AUTH_NONE};
    char why[AUTH_WHY_MAX];
    uint32_t key;
    struct auth_choice choice = {.why = why};
    const struct peer_owner peer = {.kind = conn_is_within_host(c) ? PEER_OURS : PEER_ELSEWHERE};
    choice.way = auth_decide(&nothing, g, &peer, &key, why);
    follow(c, &choice);
}

static void choose(struct conn *c, struct auth_greeting *g) {
    c->phase = CONN_CHOOSING;
    g->version = AUTH_VERSION;
    if (c->auth == NULL)
        choose_without(c, g);
    else
        c->ask = auth_choose(c->auth, stream_fd(c->stream), &c->peer, g, on_auth, c);
}

static void take_greeting(struct conn *c, struct wire_message *m) {
    uint32_t version = wire_version_of(m);
    if (version != WIRE_VERSION && (m->kind == WIRE_GREETING || m->kind == WIRE_HELLO)) {
        c->phase = CONN_FOREIGN;
        c->ops.on_message(
            c->arg, c, &(struct wire_message){.kind = WIRE_HELLO, .hello = {.version = version}});
    } else if (m->kind == WIRE_GREETING) {
        choose(c, &m->greeting);
    } else {
        conn_closed(c, -EPROTO, "it does not begin as muster's protocol does");
    }
}

/* ---- the accepting side ---- */

static void greet(struct conn *c) {
    struct wire_message m = {.kind = WIRE_GREETING};
    auth_greet(c->auth, &m.greeting);
    m.greeting.version = WIRE_VERSION;
    conn_write(c, &m);
    c->phase = CONN_GREETED;
    if (stream_available(c->stream) > 0)
        stream_read_later(c->stream);
}

static bool admits_plain(struct conn *c, char why[AUTH_WHY_MAX]) {
    (void)snprintf(why, AUTH_WHY_MAX, "it has closed its end");
    return c->auth == NULL || c->is_ours ||
           (c->has_peer && auth_takes_plain(c->auth, stream_fd(c->stream), &c->peer, why));
}

/* Who is of this machine needs nothing of the greeting, and does not wait for it. */
static void take_call(struct conn *c, const struct wire_message *m) {
    char why[AUTH_WHY_MAX];
    if (wire_version_of(m) != WIRE_VERSION)
        tell_version(c);
    else if (m->kind != WIRE_CALL)
        conn_closed(c, -EPROTO, "it began without a call");
    else if (auth_is_ready(c->auth) || admits_plain(c, why))
        greet(c);
    else {
        c->ask = auth_wait(c->auth, on_auth, c);
        c->phase = CONN_PREPARING;
    }
}

static void refuse(struct conn *c, const char *why) {
    if (c->has_peer)
        auth_refused(c->auth, &c->peer, why);
    conn_closed(c, -EKEYREJECTED, why);
}

static void begin_tls(struct conn *c) {
    struct ssl_st *session;
    struct err err = {0};
    int r = auth_accept(c->auth, &session, &err);
    if (r < 0) {
        refuse(c, err.text);
        return;
    }
    c->phase = CONN_SHAKING;
    stream_start_tls(c->stream, session);
}

void conn_go_on(struct conn *c) {
    conn_enter(c);
    if (conn_lives(c) && c->phase == CONN_WAITING)
        begin_tls(c);
    conn_leave(c);
}

static bool take_choice(struct conn *c) {
    const uint8_t *first = stream_peek(c->stream, TLS_FIRST_BYTES);
    char why[AUTH_WHY_MAX];
    if (first == NULL)
        return false;
    if (tls_begins(first)) {
        bool now = c->ops.on_handshake == NULL || c->ops.on_handshake(c->arg, c);
        if (conn_lives(c) && now)
            begin_tls(c);
        else if (conn_lives(c))
            c->phase = CONN_WAITING;
        return false;
    }
    if (admits_plain(c, why)) {
        open_up(c);
        return conn_lives(c);
    }
    refuse(c, why);
    return false;
}

/* Of one that isn't open, if enough bytes are there. True: there may be another one. */
static _must_use_ bool conn_begin_step(struct conn *c) {
    struct wire_message m;
    switch (c->phase) {
    case CONN_CALLING:
        if (conn_next(c, &m))
            take_greeting(c, &m);
        return false;
    case CONN_CALLED:
        if (!conn_next(c, &m))
            return false;
        take_call(c, &m);
        return conn_lives(c) && c->phase == CONN_GREETED;
    case CONN_GREETED: return take_choice(c);
    case CONN_FOREIGN: stream_drain(c->stream, stream_available(c->stream)); return false;
    case CONN_CHOOSING:
    case CONN_PREPARING:
    case CONN_WAITING:
    case CONN_SHAKING:
    case CONN_OPEN: return false;
    }
    assert_not_reached();
}

/* True when there may be another. */
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
    struct conn *c = arg;
    conn_enter(c);
    if (c->phase != CONN_OPEN)
        conn_begin_failed(c, code);
    else
        conn_closed(c, code, code == 0 ? "the other side ended the connection" : strerror(-code));
    conn_leave(c);
}

static void on_secured(void *arg, struct stream *s) {
    struct conn *c = arg;
    conn_enter(c);
    if (conn_lives(c))
        open_up(c);
    conn_leave(c);
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

struct conn *conn_new(struct loop *loop, int fd, struct auth *auth, const struct conn_ops *ops,
                      void *arg) {
    struct conn *c = make(loop, auth, ops, arg);
    c->has_peer = addr_of_peer(fd, &c->peer) == 0;
    c->phase = CONN_CALLED;
    c->called_us = true;
    c->stream = stream_new(loop, fd, &stream_callbacks, c);
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + CONN_FIRST_MAX);
    stream_read_soon(c->stream); /* CALL is sent right after the connection is made */
    return c;
}

void conn_is_ours(struct conn *c) { c->is_ours = true; }

int conn_connect(struct loop *loop, const struct addr *from, const struct addr *to,
                 struct auth *auth, const struct conn_ops *ops, void *arg, struct conn **ret) {
    struct conn *c = make(loop, auth, ops, arg);
    c->peer = *to;
    c->has_peer = true;
    int r = stream_connect(loop, from, to, &stream_callbacks, c, &c->stream);
    if (r < 0) {
        free(c);
        return r;
    }
    stream_set_priority(c->stream, LOOP_PRIO_LEASE);
    stream_set_read_limit(c->stream, FRAME_HEADER_BYTES + CONN_FIRST_MAX);
    c->phase = CONN_CALLING;
    conn_write(c, &(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}});
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

void conn_send_frame(struct conn *c, const char *frame, size_t len) {
    if (c->phase != CONN_OPEN)
        hold(c, frame, len);
    else if (stream_unsent(c->stream) + len > c->unsent_max)
        conn_cut(c);
    else
        stream_write(c->stream, frame, len);
}

void conn_send(struct conn *c, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(m, &frame);
    conn_send_frame(c, strbuf_text(&frame), frame.len);
}

void conn_answer(struct conn *c, bool ok, const char *text) {
    struct wire_message m = {.kind = WIRE_ANSWER, .answer = {.ok = ok}};
    (void)snprintf(m.answer.text, sizeof m.answer.text, "%s", text);
    conn_send(c, &m);
}

void conn_refuse(struct conn *c, bool final, const char *reason) {
    struct wire_message m = {.kind = WIRE_REFUSED, .refused = {.final = final}};
    (void)snprintf(m.refused.reason, sizeof m.refused.reason, "%s", reason);
    conn_send(c, &m);
    conn_finish(c);
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
