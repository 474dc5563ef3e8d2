#include "io/net/tls_pipe.h"

#include <errno.h>
#include <event2/buffer.h>
#include <limits.h>
#include <string.h>

#include "io/net/tls_library.h"
#include "io/net/tls_psk.h"

#define HEADER_BYTES 5
/* RFC 8446 §5.1 and §5.2: the plain bytes of a record, and the encrypted ones. */
#define PLAIN_MAX 16384
#define RECORD_MAX (PLAIN_MAX + 256)
/* Records in a row that hold no data for us: a handshake has 2 to 4, and OpenSSL sends none later.
 * Each of them costs up to 10 us, and those that ask for new keys are answered. */
#define BARREN_MAX 64
/* Unsent answers of a reading session; those of a handshake have less than 1 KiB. */
#define ANSWERS_MAX 16384
/* Encrypted bytes that wait: as much as is sent at once. */
#define OUT_MAX 65536

struct tls_pipe {
    SSL *ssl;
    struct loop *loop;
    struct evbuffer *in; /* NULL until needed */
    struct evbuffer *out;
    char *why; /* NULL: it did not fail */

    /* While OpenSSL runs: the records that it may take, and what it has left of the first one. */
    const uint8_t *at;
    size_t whole, record;
    unsigned taken;  /* records, in this call */
    unsigned barren; /* records since the last data */
    size_t answers;  /* bytes that reads have added to `out` since it was empty */

    int broken; /* negative errno */
    bool open : 1;
    bool ended : 1;     /* the peer's close_notify */
    bool end_sent : 1;  /* ours */
    bool more : 1;      /* tls_pipe_has_more() */
    bool must_read : 1; /* while it is open */
};

/* --- OpenSSL's input and output --------------------------------------------------------------- */

/* The length of the record that begins there, or `len`, for OpenSSL's error. 0: not complete. */
static size_t first_record(const uint8_t *at, size_t len) {
    if (len == 0)
        return 0;
    if (at[0] < SSL3_RT_CHANGE_CIPHER_SPEC || at[0] > SSL3_RT_APPLICATION_DATA ||
        (len > 1 && at[1] != SSL3_VERSION_MAJOR))
        return len;
    if (len < HEADER_BYTES)
        return 0;
    size_t n = (size_t)at[3] << 8 | at[4];
    if (n > RECORD_MAX)
        return len;
    return n + HEADER_BYTES <= len ? n + HEADER_BYTES : 0;
}

static size_t whole_records(const uint8_t *at, size_t len) {
    size_t n, whole = 0;
    while ((n = first_record(at + whole, len - whole)) > 0)
        whole += n;
    return whole;
}

static bool begin_record(struct tls_pipe *p) {
    if (p->whole == 0 || p->barren >= BARREN_MAX || (p->taken > 0 && loop_slice_is_over(p->loop)))
        return false;
    p->record = first_record(p->at, p->whole);
    p->taken++;
    p->barren++;
    return true;
}

static int bio_read(BIO *bio, char *buf, int size) {
    struct tls_pipe *p = tls_library.BIO_get_data(bio);
    tls_library.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (size <= 0 || (p->record == 0 && !begin_record(p))) {
        tls_library.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
        return -1;
    }
    size_t n = MIN2((size_t)size, p->record);
    memcpy(buf, p->at, n);
    p->at += n;
    p->whole -= n;
    p->record -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int len) {
    struct tls_pipe *p = tls_library.BIO_get_data(bio);
    if (evbuffer_add(p->out, data, (size_t)len) < 0)
        abort(); /* at most OUT_MAX and a record */
    return len;
}

static long bio_ctrl(BIO *bio, int what, long num, void *ptr) { return what == BIO_CTRL_FLUSH; }

static BIO *make_bio(struct tls_pipe *p) {
    static BIO_METHOD *method; /* of all sessions */
    if (method == NULL) {
        method = tls_library.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "muster stream");
        if (method == NULL)
            abort();
        (void)tls_library.BIO_meth_set_read(method, bio_read);
        (void)tls_library.BIO_meth_set_write(method, bio_write);
        (void)tls_library.BIO_meth_set_ctrl(method, bio_ctrl);
    }
    BIO *bio = tls_library.BIO_new(method);
    if (bio == NULL)
        abort();
    tls_library.BIO_set_data(bio, p);
    tls_library.BIO_set_init(bio, 1);
    return bio;
}

struct tls_pipe *tls_pipe_new(struct loop *loop, struct ssl_st *session) {
    struct tls_pipe *p = xcalloc(1, sizeof *p);
    p->ssl = session;
    p->loop = loop;
    p->more = true;
    p->out = evbuffer_new();
    if (p->out == NULL)
        abort();
    BIO *bio = make_bio(p);
    tls_library.SSL_set_bio(session, bio, bio); /* takes it */
    return p;
}

void tls_pipe_free(struct tls_pipe *p) {
    if (p == NULL)
        return;
    tls_library.SSL_free(p->ssl);
    if (p->in != NULL)
        evbuffer_free(p->in);
    evbuffer_free(p->out);
    free(p->why);
    free(p);
}

/* --- failures --------------------------------------------------------------------------------- */

const char *tls_pipe_why(const struct tls_pipe *p) { return p->why; }

void tls_pipe_set_why(struct tls_pipe *p, const char *why) {
    if (p->why == NULL)
        p->why = xstrdup(why);
}

static int fail(struct tls_pipe *p, const char *why) {
    p->broken = p->open ? -EPROTO : -EKEYREJECTED;
    tls_pipe_set_why(p, why);
    return p->broken;
}

/* The alerts (SSL_R_…_ALERT_…) come from the other side. NULL: none of these. */
static const char *sentence(int reason, bool accepting) {
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST: return "the other side does not speak TLS";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION: return "the other side does not speak TLS 1.3";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return "the other side shows a certificate instead of the key";
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return "the other side has another key under the name of ours";
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SHARED_CIPHER:
        return accepting ? "the other side has no key that is known here" : NULL;
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: return "the other side does not know our key";
    default: return NULL;
    }
}

static int fail_for(struct tls_pipe *p) {
    unsigned long code = tls_library.ERR_get_error();
    bool accepting = tls_library.SSL_is_server(p->ssl) != 0;
    const char *why = p->open || code == 0 ? NULL : sentence(ERR_GET_REASON(code), accepting);
    const char *text = code != 0 ? tls_library_text(code) : NULL;
    tls_library.ERR_clear_error();
    if (why != NULL)
        return fail(p, why);
    _cleanup_(freep) char *own = xasprintf("TLS: %s", text != NULL ? text : "the session ended");
    return fail(p, own);
}

/* What an `int` of OpenSSL means that is not positive. */
static int not_yet(struct tls_pipe *p, int result) {
    switch (tls_library.SSL_get_error(p->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return p->barren < BARREN_MAX ? 0
                                      : fail(p, "the other side sends only records without data");
    case SSL_ERROR_ZERO_RETURN:
        if (!p->open)
            return fail(p, "the other side ended the handshake");
        p->ended = true;
        return 0;
    default: return fail_for(p);
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

static int shake(struct tls_pipe *p) {
    tls_library.ERR_clear_error();
    int n = tls_library.SSL_do_handshake(p->ssl);
    if (n != 1)
        return not_yet(p, n);
    if (tls_library.SSL_session_reused(p->ssl) != 1) /* so OpenSSL calls a pre-shared key */
        return fail(p, "the other side does not use the key");
    tls_psk_forget(p->ssl);
    p->open = true;
    p->barren = 0;
    return 0;
}

static int decrypt(struct tls_pipe *p, uint8_t *plain, size_t room, size_t *ret_len) {
    while (*ret_len < room) {
        tls_library.ERR_clear_error();
        int n = tls_library.SSL_read(p->ssl, plain + *ret_len,
                                     (int)MIN2(room - *ret_len, (size_t)INT_MAX));
        if (n <= 0)
            return not_yet(p, n);
        *ret_len += (size_t)n;
        p->barren = 0;
    }
    return 0;
}

void tls_pipe_store(struct tls_pipe *p, const uint8_t *data, size_t n) {
    if (p->in == NULL)
        p->in = evbuffer_new();
    if (p->in == NULL || evbuffer_add(p->in, data, n) < 0)
        abort(); /* at most a record, and what the caller reads at once */
}

int tls_pipe_read(struct tls_pipe *p, const uint8_t *data, size_t n, uint8_t *plain, size_t room,
                  size_t *ret_len) {
    *ret_len = 0;
    if (p->broken < 0 || p->ended)
        return p->broken;
    bool stored = tls_pipe_is_inside_record(p);
    const uint8_t *all = n > 0 ? data : (const uint8_t *)"";
    size_t len = n, unsent = evbuffer_get_length(p->out);
    if (stored) {
        tls_pipe_store(p, all, n);
        len = evbuffer_get_length(p->in);
        all = evbuffer_pullup(p->in, -1);
    }
    p->at = all;
    p->whole = whole_records(all, len);
    p->record = p->taken = 0;
    if (unsent == 0)
        p->answers = 0;
    int r = p->open ? decrypt(p, plain, room, ret_len) : shake(p);
    p->answers += evbuffer_get_length(p->out) - unsent;
    if (r == 0 && p->answers > ANSWERS_MAX)
        r = fail(p, "the other side asks for answers and does not read them");
    p->must_read = false;
    p->more = r < 0 || p->ended || p->whole > 0 || (p->open && tls_library.SSL_pending(p->ssl) > 0);
    size_t used = (size_t)(p->at - all);
    if (stored)
        (void)evbuffer_drain(p->in, used);
    else if (used < len)
        tls_pipe_store(p, all + used, len - used);
    p->at = NULL;
    p->whole = 0;
    return r;
}

bool tls_pipe_has_more(const struct tls_pipe *p) { return p->more; }
bool tls_pipe_is_open(const struct tls_pipe *p) { return p->open; }
bool tls_pipe_is_ended(const struct tls_pipe *p) { return p->ended; }

bool tls_pipe_is_inside_record(const struct tls_pipe *p) {
    return p->in != NULL && evbuffer_get_length(p->in) > 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct evbuffer *tls_pipe_out(struct tls_pipe *p) {
    return p->out;
}
bool tls_pipe_must_read(const struct tls_pipe *p) { return !p->open || p->must_read; }

int tls_pipe_take(struct tls_pipe *p, struct evbuffer *plain) {
    size_t len;
    while ((len = evbuffer_get_length(plain)) > 0 && p->broken == 0 && !p->end_sent &&
           !tls_pipe_must_read(p) && evbuffer_get_length(p->out) < OUT_MAX) {
        uint8_t joined[PLAIN_MAX];
        const uint8_t *data = joined;
        len = MIN2(len, sizeof joined);
        if (evbuffer_get_contiguous_space(plain) >= len)
            data = evbuffer_pullup(plain, (ev_ssize_t)len);
        else
            (void)evbuffer_copyout(plain, joined, len);
        tls_library.ERR_clear_error();
        int n = tls_library.SSL_write(p->ssl, data, (int)len);
        if (n > 0)
            (void)evbuffer_drain(plain, (size_t)n);
        else if (tls_library.SSL_get_error(p->ssl, n) == SSL_ERROR_WANT_READ)
            p->must_read = true;
        else
            return fail_for(p);
    }
    return p->broken;
}

void tls_pipe_end(struct tls_pipe *p) {
    if (!p->open || p->end_sent || p->broken < 0)
        return;
    p->end_sent = true;
    (void)tls_library.SSL_shutdown(p->ssl); /* does not wait for the peer's */
    tls_library.ERR_clear_error();
}
