/* What stream.c and stream_tls.c share; no other file includes this. */
#pragma once

#include "io/net/stream.h"
#include "io/net/tls_pipe.h"

struct stream {
    struct loop *loop;
    struct loop_watch *watch;
    struct loop_timer *finish_timer; /* while finishing */
    /* while finishing: frees the stream with the loop, because it has no other owner */
    struct loop_hook hook;
    struct stream_ops ops;
    void *arg;
    int fd;
    enum loop_priority prio;
    unsigned refs; /* one of the owner, one for each running call, one for deferred work */

    bool connecting : 1;
    bool paused : 1;
    bool dead : 1;      /* freed by its owner: no more callbacks */
    bool finishing : 1; /* stream_finish() */
    bool ended : 1;     /* on_closed was called, or will be by deferred work */
    bool deferred : 1;  /* turn_end is queued, for: */
    bool want_read : 1;
    bool want_flush : 1;
    bool want_readable : 1;
    bool want_closed : 1;
    bool plain_sent : 1; /* TLS: since the last on_drained; not only the handshake */
    bool blocked : 1;    /* the kernel's buffer is full: wait for LOOP_WRITE */

    int broken; /* negative errno of a failed write or connect */
    size_t read_limit;

    /* If on_readable runs while `in` is empty, the unread bytes are on the reader's stack: what is
     * consumed at once is never copied, and idle streams need no memory. */
    const uint8_t *direct;
    size_t direct_len;
    struct evbuffer *in;  /* NULL until needed */
    struct evbuffer *out; /* NULL until needed */

    /* With TLS `in` and `out` hold plain bytes; encrypted ones are in there. Else NULL. */
    struct tls_pipe *tls;
};

/* stream.c */

/* What is wanted of the socket, and whether TLS has more to decrypt, from the stream's state. */
void stream_update_interest(struct stream *s);
/* These call the user, who may free the stream: hold a reference. */
void stream_report_readable(struct stream *s);
void stream_report_closed(struct stream *s, int code);
bool stream_may_read(const struct stream *s);
bool stream_takes_bytes(const struct stream *s);
/* Something is to be sent at the end of the turn. */
void stream_queued(struct stream *s);
/* 0 if everything was sent, the kernel's buffer is full, or the slice is over (with a fast reader
 * the buffer never gets full); negative errno if the connection broke. */
int stream_send_some(struct stream *s, struct evbuffer *from);
void stream_drop_unsent(struct stream *s);

/* stream_tls.c; only for streams with TLS, but the first */

/* The handshake is not done. */
static inline bool stream_is_shaking(const struct stream *s) {
    return s->tls != NULL && !tls_pipe_is_open(s->tls);
}
/* As stream_send_some(), of what waits to be encrypted, too. */
_must_use_ int stream_send_secured(struct stream *s);
void stream_read_secured(struct stream *s);
void stream_write_secured_now(struct stream *s, const void *data, size_t len);
