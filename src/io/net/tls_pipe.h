/* A session of TLS between buffers: encrypted bytes in, plain bytes out, and the reverse. It knows
 * no socket: io/net/stream.c moves the bytes, and no other file includes this.
 *
 *     p = tls_pipe_new(loop, session);
 *     … tls_pipe_read(p, what came, …)     also for the handshake; begin with no bytes
 *     … tls_pipe_take(p, what is written)
 *     then send tls_pipe_out(p), and drain what was sent
 *
 * OpenSSL gets only whole records. So its buffers (17 KiB each way) exist only inside a call, or
 * while a record was read in part, and only what a peer has sent of one is stored. */
#pragma once

#include <stdbool.h>

#include "io/loop.h"

struct evbuffer;
struct ssl_st;
struct tls_pipe;

/* Takes the session. */
struct tls_pipe *tls_pipe_new(struct loop *loop, struct ssl_st *session);
void tls_pipe_free(struct tls_pipe *p);

/* Encrypted bytes to send: the caller drains what is sent. */
struct evbuffer *tls_pipe_out(struct tls_pipe *p);

/* Adds encrypted bytes that came before; the next read takes them. */
void tls_pipe_store(struct tls_pipe *p, const uint8_t *data, size_t n);
/* Takes n encrypted bytes, which may be none, and continues the handshake. If it was already
 * done, writes at most `room` plain bytes; *ret_len is written always. Bytes for which there is no
 * room, or no time (loop_slice_is_over()), are stored: tls_pipe_has_more(). -EKEYREJECTED: the
 * handshake failed; -EPROTO: later bytes are not records of this session, too many records in a row
 * have no data, or the answers to them are not taken. Then TLS's alert is still to be sent. */
_must_use_ int tls_pipe_read(struct tls_pipe *p, const uint8_t *data, size_t n, uint8_t *plain,
                             size_t room, size_t *ret_len);
/* A read without new bytes would make progress, or report an end. True at the beginning. */
bool tls_pipe_has_more(const struct tls_pipe *p);
/* The handshake is done. */
bool tls_pipe_is_open(const struct tls_pipe *p);
/* The peer has announced that it sends no more (close_notify). */
bool tls_pipe_is_ended(const struct tls_pipe *p);
/* A part of a record is here: if the connection ends now, it was cut. */
bool tls_pipe_is_inside_record(const struct tls_pipe *p);

/* Encrypts from the front of a buffer, which is drained of what was taken, in records that are as
 * large as possible. Takes nothing while tls_pipe_must_read(), and no more when 64 KiB are to be
 * sent. -EPROTO: the session is broken. */
_must_use_ int tls_pipe_take(struct tls_pipe *p, struct evbuffer *plain);
/* Nothing can be encrypted before more was read of the handshake, or of a later message of it. */
bool tls_pipe_must_read(const struct tls_pipe *p);
/* Adds close_notify, once; nothing may be written afterwards. */
void tls_pipe_end(struct tls_pipe *p);

/* Why it failed, as in stream_tls_why(); NULL: it did not. */
const char *tls_pipe_why(const struct tls_pipe *p);
/* Sets this, if there is no reason yet. */
void tls_pipe_set_why(struct tls_pipe *p, const char *why);
