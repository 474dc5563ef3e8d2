#include "io/net/stream_priv.h"

#include <errno.h>
#include <event2/buffer.h>
#include <sys/socket.h>

/* The bytes of one read, and as many plain ones. */
#define READ_CHUNK 32768

static bool has_plain(const struct stream *s) {
    return s->out != NULL && evbuffer_get_length(s->out) > 0;
}

int stream_send_secured(struct stream *s) {
    for (;;) {
        int r = 0;
        if (has_plain(s) && !tls_pipe_must_read(s->tls)) {
            s->plain_sent = true;
            r = tls_pipe_take(s->tls, s->out);
        }
        if (r == 0 && s->finishing && !has_plain(s))
            tls_pipe_end(s->tls);
        if (r == 0)
            r = stream_send_some(s, tls_pipe_out(s->tls));
        if (r < 0 || s->blocked || !has_plain(s) || tls_pipe_must_read(s->tls))
            return r;
        if (loop_slice_is_over(s->loop)) {
            s->blocked = true; /* as if the kernel had not taken it all */
            return 0;
        }
    }
}

void stream_write_secured_now(struct stream *s, const void *data, size_t len) {
    size_t n = 0;
    if (stream_takes_bytes(s) && !s->connecting && !s->blocked && stream_unsent(s) == 0 &&
        tls_pipe_write(s->tls, data, len, &n) == 0 && n > 0) {
        (void)stream_send_some(s, tls_pipe_out(s->tls)); /* an error occurs again */
        if (stream_unsent(s) > 0) {
            s->plain_sent = true;
            stream_queued(s);
            stream_update_interest(s);
        }
    }
    stream_write(s, (const uint8_t *)data + n, len - n);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The handshake failed, or what came later is not from the peer. */
static void failed(struct stream *s, int code) {
    if (s->fd >= 0 && s->broken == 0)
        (void)stream_send_some(s, tls_pipe_out(s->tls)); /* TLS's alert, which says why */
    stream_drop_unsent(s);
    if (s->finishing)
        stream_free(s);
    else
        stream_report_closed(s, code);
}

/* The socket has no more bytes (code 0), or has failed. */
static void socket_ended(struct stream *s, int code) {
    if (stream_is_shaking(s)) {
        tls_pipe_set_why(s->tls, "the connection ended in the TLS handshake");
    } else if (code == 0 && tls_pipe_is_inside_record(s->tls)) {
        tls_pipe_set_why(s->tls, "the connection ended inside a TLS record");
        code = -EPROTO;
    }
    if (s->finishing)
        stream_free(s);
    else
        stream_report_closed(s, code < 0 ? code : s->broken);
}

/* Reads a part. False: there is nothing to decrypt, and the end was told. */
static bool receive(struct stream *s, uint8_t chunk[READ_CHUNK], size_t *ret_len) {
    *ret_len = 0;
    if (tls_pipe_has_more(s->tls))
        return true;
    ssize_t n = recv(s->fd, chunk, READ_CHUNK, MSG_DONTWAIT);
    if (n > 0)
        *ret_len = (size_t)n;
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        socket_ended(s, n < 0 ? -errno : 0);
    return n > 0;
}

/* The same for plain bytes, of which `have` are unread already. */
static void report(struct stream *s, const uint8_t *plain, size_t len, size_t have) {
    if (have > 0) {
        if (evbuffer_add(s->in, plain, len) < 0)
            abort(); /* as much as READ_CHUNK */
    } else {
        s->direct = plain;
        s->direct_len = len;
    }
    stream_report_readable(s);
}

void stream_read_secured(struct stream *s) {
    uint8_t chunk[READ_CHUNK], plain[READ_CHUNK];
    size_t n, len, have = stream_available(s);
    if (!receive(s, chunk, &n))
        return;
    bool shaking = stream_is_shaking(s); /* then nothing is unread, and no plain bytes come */
    int r = tls_pipe_read(s->tls, chunk, n, plain, MIN2(s->read_limit - have, sizeof plain), &len);
    if (stream_unsent(s) > 0)
        stream_queued(s);
    if (len > 0)
        report(s, plain, len, have);
    else if (shaking && !stream_is_shaking(s) && !s->finishing && s->ops.on_secured != NULL)
        s->ops.on_secured(s->arg, s);
    if (!stream_may_read(s)) /* the end is told when the unread bytes are taken */
        stream_update_interest(s);
    else if (r < 0)
        failed(s, r);
    else if (tls_pipe_is_ended(s->tls))
        stream_report_closed(s, s->broken);
    else
        stream_update_interest(s);
}

/* --- for the user ----------------------------------------------------------------------------- */

void stream_start_tls(struct stream *s, struct ssl_st *session) {
    assert(s->tls == NULL && !s->dead);
    size_t n = stream_available(s), unsent = stream_unsent(s);
    s->tls = tls_pipe_new(s->loop, session);
    if (unsent > 0) { /* in clear */
        s->plain_sent = true;
        if (evbuffer_add_buffer(tls_pipe_out(s->tls), s->out) < 0)
            abort();
    }
    if (n > 0) {
        tls_pipe_store(s->tls, stream_peek(s, n), n);
        stream_drain(s, n);
    }
    if (s->direct == NULL)
        stream_update_interest(s);
}

bool stream_is_secured(const struct stream *s) {
    return s->tls != NULL && tls_pipe_is_open(s->tls);
}

const char *stream_tls_why(const struct stream *s) {
    return s->tls != NULL ? tls_pipe_why(s->tls) : NULL;
}
