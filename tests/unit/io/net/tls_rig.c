#include "tls_rig.h"

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/x509.h>

#include "io/clock.h"
#include "io/net/tls.h"
#include "rig/unit.h"

struct loop *rig_loop;
struct end acc, con;
struct tls_psk *rig_psk;
struct tls_key rig_key;
const struct tls_key *rig_find_key;
uint8_t rig_asked[TLS_KEY_ID_BYTES];
int rig_peer = -1;
static uint64_t began_ns;

static const struct tls_key *find(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    memcpy(rig_asked, id, sizeof rig_asked);
    return rig_find_key != NULL && memcmp(rig_find_key->id, id, TLS_KEY_ID_BYTES) == 0 ? rig_find_key : NULL;
}

static void on_readable(void *arg, struct stream *s) {
    struct end *e = arg;
    e->calls++;
    size_t n = stream_available(s);
    if (e->leave)
        return;
    if (e->start != NULL && n >= e->clear)
        n = e->clear;
    if (e->take != 0 && n > e->take)
        n = e->take;
    if (e->len + n > e->room)
        e->got = xrealloc(e->got, e->room = 2 * (e->len + n));
    if (n > 0)
        memcpy(e->got + e->len, stream_peek(s, n), n);
    e->len += n;
    stream_drain(s, n);
    if (e->pause_when_readable)
        stream_pause(s);
    if (e->start != NULL && e->len >= e->clear)
        stream_start_tls(s, TAKE_PTR(e->start));
}

static void on_drained(void *arg, struct stream *s) { ((struct end *)arg)->drained++; }

static void on_closed(void *arg, struct stream *s, int code) {
    struct end *e = arg;
    e->closed++;
    e->code = code;
}

static void on_secured(void *arg, struct stream *s) {
    struct end *e = arg;
    cr_assert(stream_is_secured(s));
    e->secured++;
    if (e->free_when_secured)
        stream_free(TAKE_PTR(e->s));
}

static const struct stream_ops ops = {on_readable, on_drained, on_closed, on_secured};

void rig_set_up(void) {
    uint8_t secret[TLS_SECRET_BYTES];
    struct err err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    memset(secret, 7, sizeof secret);
    cr_assert_eq(tls_key_derive(secret, &rig_key, &err), 0, "%s", err.text);
    rig_psk = tls_psk_new(find, NULL);
    cr_assert_eq(loop_new(&rig_loop), 0);
    rig_find_key = &rig_key;
    began_ns = clock_now_ns();
}

static void end_fini(struct end *e) {
    stream_free(e->s);
    if (e->start != NULL)
        tls_session_free(e->start);
    free(e->got);
    *e = (struct end){0};
}

struct foreign foreign;
static void foreign_free(void) {
    SSL_free(foreign.ssl);
    SSL_CTX_free(foreign.ctx);
    foreign = (struct foreign){0};
}

void rig_tear_down(void) {
    foreign_free();
    end_fini(&acc);
    end_fini(&con);
    rig_peer_leaves();
    cr_assert_eq(loop_turn(rig_loop), 0); /* deferred work */
    loop_free(rig_loop);
    tls_psk_free(rig_psk);
}

void rig_peer_leaves(void) {
    if (rig_peer >= 0)
        (void)close(rig_peer);
    rig_peer = -1;
}

void rig_pair(void) {
    int fds[2];
    end_fini(&acc);
    end_fini(&con);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    acc.s = stream_new(rig_loop, fds[0], &ops, &acc);
    con.s = stream_new(rig_loop, fds[1], &ops, &con);
}

void rig_one(struct end *e) {
    int fds[2];
    end_fini(e);
    rig_peer_leaves();
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    e->s = stream_new(rig_loop, fds[0], &ops, e);
    cr_assert_eq(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    rig_peer = fds[1];
}

static struct ssl_st *session(const struct end *e) {
    struct ssl_st *ssl;
    struct err err = {0};
    int r = e == &acc ? tls_psk_accept(rig_psk, &ssl, &err) : tls_psk_connect(rig_psk, &rig_key, &ssl, &err);
    cr_assert_eq(r, 0, "%s", err.text);
    return ssl;
}

void rig_start(struct end *e) { stream_start_tls(e->s, session(e)); }

void rig_start_one(struct end *e) {
    rig_one(e);
    rig_start(e);
}

void rig_start_pair(void) {
    rig_pair();
    rig_start(&acc);
    rig_start(&con);
}

void rig_start_when_read(struct end *e, size_t clear) {
    e->start = session(e);
    e->clear = clear;
}

void rig_turn(void) {
    cr_assert_lt(clock_now_ns() - began_ns, 20 * NS_PER_S, "nothing happened for 20 s");
    cr_assert_eq(loop_turn(rig_loop), 0);
}

void rig_turns(unsigned n) {
    for (unsigned i = 0; i < n; i++)
        rig_turn();
}

void rig_ends(struct end *e, int code) {
    rig_until(e->closed);
    cr_assert_eq(e->code, code, "%d", e->code);
}

void rig_secured_pair(void) {
    rig_start_pair();
    rig_until(acc.secured && con.secured);
}

static SSL_SESSION *psk_session(SSL *ssl) {
    static const unsigned char suite[] = {0x13, 0x01};
    SSL_SESSION *s = SSL_SESSION_new();
    cr_assert(SSL_SESSION_set1_master_key(s, rig_key.psk, sizeof rig_key.psk) == 1 &&
              SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, suite)) == 1 &&
              SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1);
    return s;
}

static int foreign_find(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **ret) {
    cr_assert(len == sizeof rig_key.id && memcmp(id, rig_key.id, len) == 0);
    *ret = psk_session(ssl);
    return 1;
}

static int foreign_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *len, SSL_SESSION **ret) {
    *id = rig_key.id;
    *len = sizeof rig_key.id;
    *ret = psk_session(ssl);
    return 1;
}

/* "CLIENT_TRAFFIC_SECRET_0 RANDOM SECRET", in hexadecimal digits: `SSLKEYLOGFILE`. */
static void on_key(const SSL *ssl, const char *line) {
    const char *name = SSL_is_server(ssl) ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
    if (strncmp(line, name, strlen(name)) != 0)
        return;
    long len;
    unsigned char *secret = OPENSSL_hexstr2buf(strrchr(line, ' ') + 1, &len);
    foreign.secret_len = (size_t)len;
    memcpy(foreign.secret, secret, foreign.secret_len);
    OPENSSL_free(secret);
}

void foreign_new(bool accepting) {
    foreign_free();
    foreign = (struct foreign){.ctx = SSL_CTX_new(accepting ? TLS_server_method() : TLS_client_method())};
    cr_assert_not_null(foreign.ctx);
    cr_assert_eq(SSL_CTX_set_ciphersuites(foreign.ctx, "TLS_AES_128_GCM_SHA256"), 1);
    SSL_CTX_set_num_tickets(foreign.ctx, 0);
    SSL_CTX_set_keylog_callback(foreign.ctx, on_key);
    if (accepting)
        SSL_CTX_set_psk_find_session_callback(foreign.ctx, foreign_find);
    else
        SSL_CTX_set_psk_use_session_callback(foreign.ctx, foreign_use);
}

void foreign_begin(void) {
    foreign.ssl = SSL_new(foreign.ctx);
    cr_assert_eq(SSL_set_fd(foreign.ssl, rig_peer), 1);
    if (SSL_is_server(foreign.ssl))
        SSL_set_accept_state(foreign.ssl);
    else
        SSL_set_connect_state(foreign.ssl);
}

void foreign_step(void) {
    if (foreign.done || foreign.failed)
        return;
    ERR_clear_error();
    int r = SSL_do_handshake(foreign.ssl);
    foreign.done = r == 1;
    foreign.failed = r != 1 && SSL_get_error(foreign.ssl, r) != SSL_ERROR_WANT_READ;
}

void foreign_secure(struct end *e) {
    while (!foreign.done || !e->secured) {
        foreign_step();
        rig_turn();
        cr_assert(!foreign.failed && !e->closed);
    }
}

void foreign_use_certificate(void) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);
    cr_assert(X509_set_version(cert, X509_VERSION_3) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(cert), 1) == 1);
    cr_assert(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"any", -1, -1, 0) == 1);
    cr_assert(X509_set_issuer_name(cert, name) == 1 && X509_gmtime_adj(X509_getm_notBefore(cert), -60) != NULL &&
              X509_gmtime_adj(X509_getm_notAfter(cert), 3600) != NULL && X509_set_pubkey(cert, key) == 1);
    cr_assert_gt(X509_sign(cert, key, EVP_sha256()), 0);
    cr_assert(SSL_CTX_use_certificate(foreign.ctx, cert) == 1 && SSL_CTX_use_PrivateKey(foreign.ctx, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* HKDF-Expand-Label of RFC 8446 §7.1, for at most 32 bytes. */
static void expand(const char *label, uint8_t *ret, size_t len) {
    uint8_t info[64], out[32];
    unsigned n = sizeof out;
    int at =
        snprintf((char *)info, sizeof info, "%c%c%ctls13 %s%c%c", 0, (int)len, (int)strlen(label) + 6, label, 0, 1);
    cr_assert_not_null(HMAC(EVP_sha256(), foreign.secret, (int)foreign.secret_len, info, (size_t)at, out, &n));
    memcpy(ret, out, len);
}

size_t foreign_record(uint64_t n, uint8_t type, const void *data, size_t len, uint8_t *ret) {
    uint8_t key[16], iv[12];
    int done;
    size_t bytes = len + 1 + 16; /* the type, the tag */
    expand("key", key, sizeof key);
    expand("iv", iv, sizeof iv);
    for (unsigned i = 0; i < 8; i++)
        iv[11 - i] ^= (uint8_t)(n >> 8 * i);
    const uint8_t head[] = {SSL3_RT_APPLICATION_DATA, 3, 3, (uint8_t)(bytes >> 8), (uint8_t)bytes};
    memcpy(ret, head, sizeof head);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    cr_assert(EVP_EncryptInit_ex(c, EVP_aes_128_gcm(), NULL, key, iv) == 1 &&
              EVP_EncryptUpdate(c, NULL, &done, head, sizeof head) == 1);
    uint8_t *at = ret + sizeof head;
    if (len > 0)
        cr_assert_eq(EVP_EncryptUpdate(c, at, &done, data, (int)len), 1);
    cr_assert_eq(EVP_EncryptUpdate(c, at + len, &done, &type, 1), 1);
    cr_assert(EVP_EncryptFinal_ex(c, at + len + 1, &done) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, 16, at + len + 1) == 1);
    EVP_CIPHER_CTX_free(c);
    return sizeof head + bytes;
}
