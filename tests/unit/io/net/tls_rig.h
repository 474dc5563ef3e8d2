/* Two streams of the product with TLS between them, and peers that are none of ours: plain sockets, and OpenSSL used
 * directly. The ends live on one loop; the foreign peer is a non-blocking socket that the test drives between turns. */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>

#include "io/net/stream.h"
#include "io/net/tls_psk.h"

struct end {
    struct stream *s;
    uint8_t *got; /* what was taken */
    size_t len, room;
    size_t take; /* bytes taken in a callback; 0: all */
    unsigned calls, drained, secured, closed;
    int code;
    struct ssl_st *start;   /* begins TLS in on_readable, after `clear` bytes */
    size_t clear;           /* bytes in clear that come first */
    bool free_when_secured; /* in the callback */
    bool pause_when_readable;
    bool leave; /* takes nothing */
};

extern struct loop *rig_loop;
extern struct end acc, con; /* the accepting end and the connecting one */
extern struct tls_psk *rig_psk;
extern struct tls_key rig_key;              /* of both, unless a test changes the next: */
extern const struct tls_key *rig_find_key;  /* what the accepting side finds; NULL: nothing */
extern uint8_t rig_asked[TLS_KEY_ID_BYTES]; /* what it was asked for last */
extern int rig_peer;                        /* the other end of rig_one()'s socket; -1: none */

void rig_set_up(void);
void rig_tear_down(void);
/* Both ends, each with a new stream, not yet with TLS. */
void rig_pair(void);
/* One end, with a new stream, and rig_peer. */
void rig_one(struct end *e);
void rig_peer_leaves(void);
/* TLS on either end, with rig_key. */
void rig_start(struct end *e);
void rig_start_pair(void);         /* rig_pair(), rig_start() */
void rig_start_one(struct end *e); /* rig_one(), rig_start() */
/* Turns until the connection has ended, for this reason. */
void rig_ends(struct end *e, int code);
/* The same in on_readable, when so many bytes in clear were taken. */
void rig_start_when_read(struct end *e, size_t clear);
/* Turns of the loop, until it holds; fails the test after 20 s. */
#define rig_until(condition) \
    while (!(condition))     \
    rig_turn()
void rig_turn(void);
void rig_turns(unsigned n);
/* rig_pair(), with the handshake done. */
void rig_secured_pair(void);

/* What talks TLS at rig_peer. rig_tear_down() and the next foreign_new() free it. */
extern struct foreign {
    SSL_CTX *ctx;
    SSL *ssl;
    bool done, failed;
    uint8_t secret[64]; /* the secret of what it sends */
    size_t secret_len;
} foreign;

/* A context for TLS 1.3 with rig_key; change it before foreign_begin(). */
void foreign_new(bool accepting);
void foreign_begin(void);
/* Goes on with the handshake; sets done or failed. */
void foreign_step(void);
/* Turns and steps until both sides are secured. */
void foreign_secure(struct end *e);
/* A certificate of its own making, and its key. */
void foreign_use_certificate(void);
/* The n-th record that it sends, encrypted by hand: `len` bytes of this type, which can be none. */
size_t foreign_record(uint64_t n, uint8_t type, const void *data, size_t len, uint8_t *ret);
