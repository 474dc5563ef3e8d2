/* One connection that speaks the protocol of muster-protocol(7). It splits the stream into frames,
 * and decodes and encodes messages; what it buffers is bounded in both directions. It knows no
 * states and no order of messages.
 *
 *     struct conn_ops ops = {on_message, on_closed};
 *     conn_connect(loop, &addr, &ops, me, &c);
 *     conn_send(c, &message);                       may be called before it is connected
 *     conn_finish(c) or conn_free(c)
 *
 * Both may be called from its callbacks; no callback is called afterwards. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "rendezvous/protocol/wire.h"

/* The limit of unsent bytes of one connection. A peer that does not read enough is disconnected. */
#define CONN_UNSENT_MAX ((size_t)1 << 20)

struct conn;

struct conn_ops {
    void (*on_message)(void *arg, struct conn *c, const struct wire_message *m);
    /* Once. code 0: the peer ended it; -EPROTO: it broke the protocol; else the errno. `text`
     * describes it, for a debug line. The connection stays until it is freed. */
    void (*on_closed)(void *arg, struct conn *c, int code, const char *text);
};

/* Takes ownership of fd, also on failure. */
_must_use_ int conn_new(struct loop *loop, int fd, const struct conn_ops *ops, void *arg,
                        struct conn **ret);
/* If the connection can't be made, on_closed is called later. */
_must_use_ int conn_connect(struct loop *loop, const struct addr *to, const struct conn_ops *ops,
                            void *arg, struct conn **ret);
/* Closes the connection and drops what is unsent. NULL is fine. */
void conn_free(struct conn *c);
/* Sends what is queued, for at most CONN_FINISH_NS, then closes; frees at once. NULL is fine. */
#define CONN_FINISH_NS (2 * NS_PER_S)
void conn_finish(struct conn *c);
/* Changes the owner: the next callback is one of these. */
void conn_set_owner(struct conn *c, const struct conn_ops *ops, void *arg);

void conn_send(struct conn *c, const struct wire_message *m);
/* Sends CALL, for a caller that waits for HELLO first. */
void conn_call(struct conn *c);
/* Sends a message that was encoded once for many connections. */
void conn_send_text(struct conn *c, const char *text, size_t len);
/* Sends whole frames that were made once for many connections. They are borrowed until done(arg).
 * They may exceed the limit of unsent bytes if nothing else is unsent. */
void conn_send_frames(struct conn *c, const char *frames, size_t len, void (*done)(void *arg),
                      void *arg);
/* Ends the connection. Its owner gets on_closed as usual, soon. */
void conn_cut(struct conn *c);
size_t conn_unsent(const struct conn *c);
/* Replaces CONN_UNSENT_MAX, for a peer that is about to be sent much at once. */
void conn_set_unsent_max(struct conn *c, size_t bytes);
/* How soon a peer that is no longer reachable is noticed: stream_set_patience(). */
void conn_set_patience(struct conn *c, uint64_t lease_ns, uint64_t heartbeat_ns);

/* LOOP_PRIO_BULK for a connection that was accepted, LOOP_PRIO_LEASE for one that we made. */
void conn_set_priority(struct conn *c, enum loop_priority prio);

/* The addresses of its two ends. 0 or a negative errno (not connected). */
_must_use_ int conn_local_addr(const struct conn *c, struct addr *ret);
_must_use_ int conn_peer_addr(const struct conn *c, struct addr *ret);
