/* TLS 1.3 between two processes that have the same secret. There are no certificates: each side
 * proves by a pre-shared key (RFC 8446 §2.2) that it has the secret, and a fresh exchange on an
 * elliptic curve (psk_dhe_ke, X25519 or P-256) keeps past messages secret if the key is stolen
 * later. TLS_AES_128_GCM_SHA256 only; no tickets, no early data.
 *
 *     tls_key_derive(secret, &key, &err);
 *     psk = tls_psk_new(find, me);
 *     tls_psk_accept(psk, &session, &err);         or tls_psk_connect(psk, &key, &session, &err)
 *     stream_start_tls(stream, session);           takes it
 *
 * OpenSSL is loaded when the first key is derived or the first session is made (tls.h), which takes
 * 3 ms of a CPU, and a quarter less after tls_psk_alone(). */
#pragma once

#include "base/err.h"

#define TLS_SECRET_BYTES 32
#define TLS_KEY_ID_BYTES 8

/* What is derived from a secret. The id is public: it is sent in clear, and reveals nothing about
 * the key. The psk is as powerful as the secret: callers erase it (explicit_bzero). */
struct tls_key {
    uint8_t id[TLS_KEY_ID_BYTES];
    uint8_t psk[TLS_SECRET_BYTES];
};

/* This process uses TLS only with keys: what serves certificates is then not set up, nor the texts
 * of OpenSSL's errors. Nothing that is offered or accepted changes. To be called before the first
 * key is derived (else it does nothing); tls_client_new() must not be called. */
void tls_psk_alone(void);

struct tls_psk; /* what all sessions share */
struct ssl_st;  /* one session: OpenSSL's SSL */

/* Both are HMAC-SHA-256 of a label, with the secret as the key. -ELIBACC: there is no OpenSSL. */
_must_use_ int tls_key_derive(const uint8_t secret[TLS_SECRET_BYTES], struct tls_key *ret,
                              struct err *err);

/* The key of this id (borrowed; copied at once); NULL: refused. It must not free a stream. */
typedef const struct tls_key *tls_psk_find_fn(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]);

/* `find` is for the accepting side; NULL if there is none. Loads nothing yet. */
_must_use_ struct tls_psk *tls_psk_new(tls_psk_find_fn *find, void *arg);
/* Sessions can outlive it; one that still waits for a key then finds none. Takes NULL. */
void tls_psk_free(struct tls_psk *t);

/* A session for stream_start_tls(), which takes it, or tls_session_free(). The accepting side takes
 * any key that `find` knows; the connecting side (which copies the key) demands exactly this one.
 * -ELIBACC as above; -ENOMEM, -EIO: OpenSSL refuses. */
_must_use_ int tls_psk_accept(struct tls_psk *t, struct ssl_st **ret, struct err *err);
_must_use_ int tls_psk_connect(struct tls_psk *t, const struct tls_key *key, struct ssl_st **ret,
                               struct err *err);
/* Erases OpenSSL's copies of the key, after the handshake: the stream calls it. */
void tls_psk_forget(struct ssl_st *session);
