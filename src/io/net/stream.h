/* One connected byte stream, buffered both ways, on the loop. Knows nothing of what the bytes
 * mean. Built on libevent's evbuffer (not bufferevent), so that its interest in reading and
 * writing is ours to set.
 *
 *     struct stream_ops ops = {on_readable, on_closed};
 *     stream_new(loop, fd, &ops, me, &s);            takes fd
 *     … in on_readable: stream_peek()/stream_drain(); stream_write();
 *     stream_free(s);                                allowed inside its own callbacks
 *
 * Bounded: at most `read_limit` unread bytes are held, then the socket is not read until some are
 * drained; a turn reads and sends a bounded amount. Unsent bytes are the caller's to bound: it
 * looks at stream_unsent() and stops with stream_pause(). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/loop.h"
#include "io/net/addr.h"

struct stream;

struct stream_ops {
    /* New bytes are there. */
    void (*on_readable)(void *arg, struct stream *s);
    /* All that was written has been taken by the kernel (may be NULL). */
    void (*on_drained)(void *arg, struct stream *s);
    /* The peer ended (code 0) or the connection broke (negative errno). Called once, after the
     * last on_readable; the stream stays until it is freed. */
    void (*on_closed)(void *arg, struct stream *s, int code);
};

/* Takes fd (made non-blocking and close-on-exec; TCP_NODELAY set where it is TCP). */
_must_use_ int stream_new(struct loop *loop, int fd, const struct stream_ops *ops, void *arg,
                          struct stream **ret);
/* Begins a connection; on_closed with the errno if it fails. Bytes may be written at once. */
_must_use_ int stream_connect(struct loop *loop, const struct addr *to,
                              const struct stream_ops *ops, void *arg, struct stream **ret);
/* For one that was just accepted: what the peer has sent already is read at the end of this turn,
 * before what was written is sent, so that a greeting and an answer go out together. */
void stream_read_soon(struct stream *s);
/* Closes, dropping unsent bytes. Allowed in callbacks. NULL is fine. */
void stream_free(struct stream *s);
/* Sends what is queued (for at most `deadline_ns`), then closes and frees, without callbacks;
 * freeing the loop does so at once. */
void stream_finish(struct stream *s, uint64_t deadline_ns);
bool stream_connected(const struct stream *s);
int stream_fd(const struct stream *s);
/* LOOP_PRIO_BULK at first. */
void stream_set_priority(struct stream *s, enum loop_priority prio);
void stream_set_read_limit(struct stream *s, size_t bytes);
/* Notices a peer whose machine, or the path to it, is gone: what is sent must be acknowledged
 * within unacked_ns, and a connection that is silent for idle_ns is asked (tcp(7):
 * TCP_USER_TIMEOUT, SO_KEEPALIVE). The end is then reported like any other. Does nothing where it
 * is not TCP. */
void stream_set_patience(struct stream *s, uint64_t unacked_ns, uint64_t idle_ns);

/* The unread bytes: how many, and the first n of them in one piece (NULL if there are fewer).
 * Borrowed, valid until the next call on this stream. */
size_t stream_available(const struct stream *s);
const uint8_t *stream_peek(struct stream *s, size_t n);
/* The longest piece that lies in one run, without copying; *ret_len may be 0. */
const uint8_t *stream_peek_run(struct stream *s, size_t *ret_len);
void stream_drain(struct stream *s, size_t n);
/* For an on_readable that leaves whole messages unread because its slice is over
 * (loop_slice_is_over()): it is called again in a later turn, new bytes or not. */
void stream_read_later(struct stream *s);

/* Queue bytes; sent at the end of the turn, many writes in one system call. */
void stream_write(struct stream *s, const void *data, size_t len);
/* The same, but tried at once where nothing is queued: for one who has gathered a turn's bytes. */
void stream_write_now(struct stream *s, const void *data, size_t len);
/* Queues memory that stays the caller's; release(release_arg) when it is no longer needed. */
void stream_write_ref(struct stream *s, const void *data, size_t len,
                      void (*release)(void *release_arg), void *release_arg);
size_t stream_unsent(const struct stream *s);
/* Stops and restarts reading (backpressure). Restarting calls on_readable if bytes are there. */
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);
