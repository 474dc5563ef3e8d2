#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/frame.h"
#include "rendezvous/protocol/conn_priv.h"

/* A record of TLS begins with 22, 3 and a number above 0 (RFC 8446 §5.1). A frame that begins so is
 * longer than any valid message. */
#define TLS_FIRST_BYTES 3
static_assert(WIRE_MESSAGE_MAX / 2 <= 0x010316, "no message is as long as a record's head says");

static bool tls_begins(const uint8_t b[TLS_FIRST_BYTES]) {
    return b[0] == 22 && b[1] == 3 && b[2] > 0;
}

/* From now on messages pass. */
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

void conn_secured(struct conn *c) {
    conn_enter(c);
    if (conn_lives(c))
        open_up(c);
    conn_leave(c);
}

void conn_begin_failed(struct conn *c, int code) {
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
        auth_refused(
            c->auth, &c->peer,
            "it left when it had heard which keys are taken here; muster's output there says why");
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

void conn_begin(struct conn *c) {
    c->phase = CONN_CALLING;
    conn_write(c, &(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}});
}

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

static void on_chosen(void *arg, const struct auth_choice *choice) {
    struct conn *c = arg;
    c->ask = NULL;
    conn_enter(c);
    if (conn_lives(c))
        follow(c, choice);
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
    int fd = stream_fd(c->stream);
    if (!c->has_peer)
        c->has_peer = addr_of_peer(fd, &c->peer) == 0;
    c->phase = CONN_CHOOSING;
    g->version = AUTH_VERSION;
    if (c->auth == NULL) {
        choose_without(c, g);
        return;
    }
    int r = c->has_peer ? auth_choose(c->auth, fd, &c->peer, g, on_chosen, c, &c->ask) : -ENOTCONN;
    if (r < 0)
        conn_closed(c, r, strerror(-r));
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

static void on_ready(void *arg) {
    struct conn *c = arg;
    c->ask = NULL;
    conn_enter(c);
    if (conn_lives(c))
        greet(c);
    conn_leave(c);
}

static bool admits_plain(struct conn *c) {
    return c->auth == NULL || c->is_ours ||
           (c->has_peer && auth_takes_plain(c->auth, stream_fd(c->stream), &c->peer));
}

/* Who is of this machine needs nothing of the greeting, and does not wait for it. */
static void take_call(struct conn *c, const struct wire_message *m) {
    int r = 0;
    if (wire_version_of(m) != WIRE_VERSION)
        tell_version(c);
    else if (m->kind != WIRE_CALL)
        conn_closed(c, -EPROTO, "it began without a call");
    else if (auth_is_ready(c->auth) || admits_plain(c))
        greet(c);
    else if ((r = auth_wait(c->auth, on_ready, c, &c->ask)) < 0)
        conn_closed(c, r, strerror(-r));
    else
        c->phase = CONN_PREPARING;
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

/* The first bytes after the greeting. */
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
    if (admits_plain(c)) {
        open_up(c);
        return conn_lives(c);
    }
    auth_plain_refusal(c->auth, stream_fd(c->stream), &c->peer, why);
    refuse(c, why);
    return false;
}

/* ---- both ---- */

bool conn_begin_step(struct conn *c) {
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
