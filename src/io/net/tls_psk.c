#include "io/net/tls_psk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io/net/tls_library.h"

/* What a key is for is in its label, so that no two uses have the same one. */
#define LABEL_ID "muster key id v1"
#define LABEL_PSK "muster tls psk v1"
/* The first is offered, the other on demand. With X25519 a connection costs both sides together
 * 460 us and 20 KiB, with P-256 600 us and 24 KiB (OpenSSL 3.0, tests/bench/shaketime.c). Systems
 * that keep to FIPS 140 may not have X25519. */
#define GROUPS "X25519:P-256"
#define GROUPS_LEAST "P-256"
#define SUITE "TLS_AES_128_GCM_SHA256"

struct tls_psk {
    tls_psk_find_fn *find;
    void *arg;
    SSL_CTX *ctx; /* NULL until needed */
};

/* What a session needs later, in its ex_data: the key as OpenSSL wants it. */
struct offer {
    uint8_t id[TLS_KEY_ID_BYTES];
    SSL_SESSION *psk;
};

static int derive(const uint8_t secret[TLS_SECRET_BYTES], const char *label,
                  uint8_t ret[TLS_SECRET_BYTES]) {
    unsigned len = TLS_SECRET_BYTES;
    return tls_library.HMAC(tls_library.EVP_sha256(), secret, TLS_SECRET_BYTES,
                            (const unsigned char *)label, strlen(label), ret, &len) == NULL ||
                   len != TLS_SECRET_BYTES
               ? -EIO
               : 0;
}

int tls_key_derive(const uint8_t secret[TLS_SECRET_BYTES], struct tls_key *ret, struct err *err) {
    uint8_t id[TLS_SECRET_BYTES];
    int r = tls_library_load(err);
    if (r < 0)
        return r;
    if (derive(secret, LABEL_ID, id) < 0 || derive(secret, LABEL_PSK, ret->psk) < 0)
        return err_set(err, -EIO, "OpenSSL cannot compute HMAC-SHA-256: %s", tls_library_reason());
    memcpy(ret->id, id, sizeof ret->id);
    return 0;
}

/* --- the context ------------------------------------------------------------------------------ */

struct tls_psk *tls_psk_new(tls_psk_find_fn *find, void *arg) {
    struct tls_psk *t = xcalloc(1, sizeof *t);
    t->find = find;
    t->arg = arg;
    return t;
}

void tls_psk_free(struct tls_psk *t) {
    if (t == NULL)
        return;
    if (t->ctx != NULL) {
        (void)tls_library.SSL_CTX_set_ex_data(t->ctx, 0, NULL);
        tls_library.SSL_CTX_free(t->ctx); /* its sessions hold it, too */
    }
    free(t);
}

/* The pre-shared key as a session that OpenSSL could resume. NULL: no memory. */
static SSL_SESSION *session_of(SSL *ssl, const uint8_t psk[TLS_SECRET_BYTES]) {
    static const unsigned char suite[] = {0x13, 0x01}; /* SUITE's number, RFC 8446 §B.4 */
    const SSL_CIPHER *cipher = tls_library.SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *s = tls_library.SSL_SESSION_new();
    if (s == NULL || cipher == NULL ||
        tls_library.SSL_SESSION_set1_master_key(s, psk, TLS_SECRET_BYTES) != 1 ||
        tls_library.SSL_SESSION_set_cipher(s, cipher) != 1 ||
        tls_library.SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) != 1) {
        tls_library.SSL_SESSION_free(s);
        return NULL;
    }
    return s;
}

/* 1 without a session: the handshake fails, because there is no certificate. */
static int on_find(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **ret) {
    const struct tls_psk *t = tls_library.SSL_CTX_get_ex_data(tls_library.SSL_get_SSL_CTX(ssl), 0);
    *ret = NULL;
    if (t == NULL || t->find == NULL || len != TLS_KEY_ID_BYTES)
        return 1;
    const struct tls_key *key = t->find(t->arg, id);
    if (key == NULL)
        return 1;
    *ret = session_of(ssl, key->psk);
    return *ret != NULL;
}

static int offer_index = -1;

static int on_use(SSL *ssl, const EVP_MD *md, const unsigned char **ret_id, size_t *ret_len,
                  SSL_SESSION **ret) {
    (void)md; /* after a HelloRetryRequest; SUITE is the only one */
    const struct offer *o = tls_library.SSL_get_ex_data(ssl, offer_index);
    if (o == NULL || tls_library.SSL_SESSION_up_ref(o->psk) != 1)
        return 0;
    *ret_id = o->id;
    *ret_len = sizeof o->id;
    *ret = o->psk;
    return 1;
}

static void free_offer(struct offer *o) {
    if (o == NULL)
        return;
    tls_library.SSL_SESSION_free(o->psk);
    free(o);
}

static void on_offer_free(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl,
                          void *argp) {
    free_offer(ptr);
}

static bool set_up(SSL_CTX *ctx) {
    /* The macros of ssl.h, as calls that can be loaded. No openssl.cnf can widen this. */
    (void)tls_library.SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    (void)tls_library.SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX);
    (void)tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    (void)tls_library.SSL_CTX_ctrl(
        ctx, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    static char groups[] = GROUPS, least[] = GROUPS_LEAST;
    return tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) ==
               1 &&
           tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) ==
               1 &&
           tls_library.SSL_CTX_set_ciphersuites(ctx, SUITE) == 1 &&
           tls_library.SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
           (tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_GROUPS_LIST, 0, groups) == 1 ||
            tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_GROUPS_LIST, 0, least) == 1);
}

static int make_context(struct tls_psk *t, struct err *err) {
    int r = tls_library_load(err);
    if (r < 0 || t->ctx != NULL)
        return r;
    SSL_CTX *ctx = tls_library.SSL_CTX_new(tls_library.TLS_method());
    if (ctx == NULL)
        return err_set(err, -ENOMEM, "TLS cannot be set up: %s", tls_library_reason());
    if (!set_up(ctx)) {
        tls_library.SSL_CTX_free(ctx);
        return err_set(err, -EIO, "OpenSSL does not offer TLS 1.3 with %s: %s", SUITE,
                       tls_library_reason());
    }
    tls_library.ERR_clear_error();
    /* No certificate is good. Without this a server without a key succeeds with any certificate. */
    tls_library.SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    (void)tls_library.SSL_CTX_set_ex_data(ctx, 0, t);
    tls_library.SSL_CTX_set_psk_find_session_callback(ctx, on_find);
    tls_library.SSL_CTX_set_psk_use_session_callback(ctx, on_use);
    t->ctx = ctx;
    return 0;
}

static int make_session(struct tls_psk *t, SSL **ret, struct err *err) {
    int r = make_context(t, err);
    if (r < 0)
        return r;
    *ret = tls_library.SSL_new(t->ctx);
    return *ret != NULL ? 0 : err_set(err, -ENOMEM, "no TLS session: %s", tls_library_reason());
}

/* --- sessions --------------------------------------------------------------------------------- */

int tls_psk_accept(struct tls_psk *t, struct ssl_st **ret, struct err *err) {
    SSL *ssl;
    int r = make_session(t, &ssl, err);
    if (r < 0)
        return r;
    /* It asks for no certificate: without a key there is no session. With SSL_VERIFY_PEER OpenSSL
     * takes only keys that were made for a context of this name. */
    tls_library.SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL);
    tls_library.SSL_set_accept_state(ssl);
    *ret = ssl;
    return 0;
}

static bool set_offer(SSL *ssl, const struct tls_key *key) {
    if (offer_index < 0)
        offer_index = tls_library.CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL,
                                                          on_offer_free);
    struct offer *o = xcalloc(1, sizeof *o);
    memcpy(o->id, key->id, sizeof o->id);
    o->psk = session_of(ssl, key->psk);
    if (o->psk != NULL && tls_library.SSL_set_ex_data(ssl, offer_index, o) == 1)
        return true;
    free_offer(o);
    return false;
}

void tls_psk_forget(struct ssl_st *session) {
    static const uint8_t nothing[TLS_SECRET_BYTES];
    SSL_SESSION *s = tls_library.SSL_get_session(session);
    if (s != NULL)
        (void)tls_library.SSL_SESSION_set1_master_key(s, nothing, sizeof nothing);
    if (offer_index < 0)
        return;
    free_offer(tls_library.SSL_get_ex_data(session, offer_index));
    (void)tls_library.SSL_set_ex_data(session, offer_index, NULL);
}

int tls_psk_connect(struct tls_psk *t, const struct tls_key *key, struct ssl_st **ret,
                    struct err *err) {
    SSL *ssl;
    int r = make_session(t, &ssl, err);
    if (r < 0)
        return r;
    if (!set_offer(ssl, key)) {
        tls_library.SSL_free(ssl);
        return err_set(err, -ENOMEM, "no TLS session with a key: %s", tls_library_reason());
    }
    tls_library.SSL_set_connect_state(ssl);
    *ret = ssl;
    return 0;
}
