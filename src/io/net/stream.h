/* One connected byte stream, buffered both ways, on the loop. On libevent's evbuffer, not its
 * bufferevent: muster decides when the socket is read and written.
 *
 *     struct stream_ops ops = {on_readable, on_closed};
 *     s = stream_new(loop, fd, &ops, me);            takes fd
 *     … in on_readable: stream_peek()/stream_drain(); stream_write();
 *     stream_free(s);                                allowed inside its own callbacks
 *
 * At most `read_limit` unread bytes are stored. Then the socket is not read until some are drained.
 * A turn reads and sends a bounded amount. The caller must bound the unsent bytes: it checks
 * stream_unsent(), and stops reading with stream_pause(). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/loop.h"
#include "io/net/addr.h"

struct stream;
struct ssl_st; /* a session of TLS: io/net/tls_psk.h */

struct stream_ops {
    /* New bytes have arrived. */
    void (*on_readable)(void *arg, struct stream *s);
    /* The kernel has accepted everything that was written. May be NULL. */
    void (*on_drained)(void *arg, struct stream *s);
    /* The peer closed the connection (code 0) or the connection broke (negative errno). Called
     * once, after the last on_readable. The stream exists until it is freed. With TLS also
     * -EKEYREJECTED (the handshake failed) and -EPROTO (bytes that are not TLS records of this
     * session, or too many without data): stream_tls_why(). */
    void (*on_closed)(void *arg, struct stream *s, int code);
    /* TLS: the handshake is done, the peer has the key. May be NULL. */
    void (*on_secured)(void *arg, struct stream *s);
};

/* Takes ownership of fd, and makes it non-blocking, close-on-exec and TCP_NODELAY. A pipe can be
 * written, by a process that ignores SIGPIPE; it must be paused, because it can't be read. */
_must_use_ struct stream *stream_new(struct loop *loop, int fd, const struct stream_ops *ops,
                                     void *arg);
/* Begins to connect, from one of this machine's addresses (its port does not count); NULL: from
 * any. If it fails, on_closed is called with the errno. Bytes may be written at once. */
_must_use_ int stream_connect(struct loop *loop, const struct addr *from, const struct addr *to,
                              const struct stream_ops *ops, void *arg, struct stream **ret);
/* For a connection that was just accepted: what it has already sent is read at the end of this
 * turn, before what was written is sent. So a greeting and an answer are sent together. */
void stream_read_soon(struct stream *s);
/* Closes, and drops unsent bytes. Allowed in callbacks. Takes NULL. */
void stream_free(struct stream *s);
/* Sends what is queued, until `deadline_ns` or the loop's end, then frees it, without callbacks. */
void stream_finish(struct stream *s, uint64_t deadline_ns);
int stream_fd(const struct stream *s);
/* Initially LOOP_PRIO_BULK. */
void stream_set_priority(struct stream *s, enum loop_priority prio);
void stream_set_read_limit(struct stream *s, size_t bytes);
/* Detects that the peer's machine, or the path to it, is gone. Only for TCP: what is sent must be
 * acknowledged within unacked_ns, and a connection that is silent for idle_ns is probed (tcp(7):
 * TCP_USER_TIMEOUT, SO_KEEPALIVE). */
void stream_set_patience(struct stream *s, uint64_t unacked_ns, uint64_t idle_ns);

/* The unread bytes, and the first n in one piece (NULL: fewer). Valid until the next call. */
size_t stream_available(const struct stream *s);
const uint8_t *stream_peek(struct stream *s, size_t n);
/* The longest contiguous piece, without copying; *ret_len can be 0. */
const uint8_t *stream_peek_run(struct stream *s, size_t *ret_len);
void stream_drain(struct stream *s, size_t n);
/* For an on_readable that leaves whole messages unread because its slice is over: it is called
 * again in a later turn, even if no new bytes arrive. */
void stream_read_later(struct stream *s);

/* Queues bytes. They are sent at the end of the turn, many writes in one system call. */
void stream_write(struct stream *s, const void *data, size_t len);
/* The same, but without TLS sends at once if nothing is queued: for one that has a turn's bytes. */
void stream_write_now(struct stream *s, const void *data, size_t len);
/* Queues memory that the caller owns; calls release(release_arg) when it is no longer needed. */
void stream_write_ref(struct stream *s, const void *data, size_t len,
                      void (*release)(void *release_arg), void *release_arg);
/* With TLS: plain bytes that wait, and encrypted ones. */
size_t stream_unsent(const struct stream *s);
/* Stop and restart reading (backpressure). Unread bytes are then reported to on_readable. */
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);

/* From now on the connection is TLS, and all calls above are of plain bytes. Takes the session
 * (tls_psk.h). Allowed once, also in on_readable: unread bytes are the session's first input, so
 * read exactly what was sent in clear. What is written afterwards waits for the handshake, which
 * continues while the stream is paused, and whose time the caller limits. An end of the connection
 * meanwhile is reported as always (0, -ECONNRESET, ...), and proves nothing about the key.
 *
 * What was written in a turn is encrypted at its end: one record for many writes, of at most 16 KiB
 * each (RFC 8446 §5.1). An end without close_notify is an end like any other, but one inside a
 * record is -EPROTO. stream_finish() sends close_notify. */
void stream_start_tls(struct stream *s, struct ssl_st *session);
bool stream_is_secured(const struct stream *s);
/* Why TLS failed, or that the connection ended before the handshake did, as a part of a sentence:
 * "the other side does not know our key". NULL: neither. Valid as long as the stream. */
const char *stream_tls_why(const struct stream *s);
