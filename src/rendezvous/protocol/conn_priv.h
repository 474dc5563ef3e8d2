/* Shared by the files of a connection, and private to them.
 *   conn_io.c       frames, messages, its life
 *   conn_begin_io.c how it begins: CALL, GREETING, plain or TLS */
#pragma once

#include "base/text/strbuf.h"
#include "io/net/stream.h"
#include "rendezvous/protocol/conn_io.h"

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

/* ---- conn_io.c ---- */

/* Around everything that calls its owner. */
void conn_enter(struct conn *c);
void conn_leave(struct conn *c);
/* Tells the owner, once. */
void conn_closed(struct conn *c, int code, const char *text);
/* Takes a whole message off the stream. False: there is none yet, or there is no valid one, and
 * it is closed. */
_must_use_ bool conn_next(struct conn *c, struct wire_message *ret);
/* Writes a frame at once, whatever the phase. */
void conn_write(struct conn *c, const struct wire_message *m);
/* Whether its owner may still be called. */
bool conn_lives(const struct conn *c);

/* ---- conn_begin_io.c ---- */

/* The connecting side's first message. */
void conn_begin(struct conn *c);
/* One step of a connection that isn't open, if enough bytes are there. True: there may be another
 * one. */
_must_use_ bool conn_begin_step(struct conn *c);
void conn_secured(struct conn *c);
/* The stream has ended before it was open. */
void conn_begin_failed(struct conn *c, int code);
