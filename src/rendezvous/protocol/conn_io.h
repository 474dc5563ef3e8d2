/* One connection that speaks the protocol of muster-protocol(7): frames, messages, and who is at
 * the other end before a message passes. What it buffers is bounded in both directions.
 *
 *     struct conn_ops ops = {on_message, on_closed};
 *     conn_connect(loop, NULL, &addr, auth, &ops, me, &c);
 *     conn_send(c, &message);                       may be called before it is connected
 *     conn_finish(c) or conn_free(c)                in callbacks, too; no other one follows
 *
 *     connecting side                                    accepting side
 *     CALL                                     --->
 *                                              <---      GREETING: the keys that it takes
 *     auth_choose(): plain; TLS; or an end     --->      plain is taken by auth_takes_plain()
 *     what was sent until now goes out                   HELLO (the owner's, in on_open)
 *
 * What is sent before is held. A side of another version gets HELLO in clear with only the version;
 * the connecting side's owner gets such a message, also for a GREETING of another version. If the
 * two may not talk to each other, on_closed gets -EKEYREJECTED and a whole sentence, and on the
 * accepting side auth_refused() has counted it. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "rendezvous/auth/auth_io.h"
#include "rendezvous/protocol/wire.h"

/* Of unsent bytes. A peer that does not read enough is disconnected. */
#define CONN_UNSENT_MAX ((size_t)1 << 20)
/* The longest message before it is known who is there. */
#define CONN_FIRST_MAX ((size_t)4 * 1024)

struct conn;

struct conn_ops {
    void (*on_message)(void *arg, struct conn *c, const struct wire_message *m);
    /* Once. code 0: the peer ended it; -EPROTO: it broke the protocol; -EKEYREJECTED: `text` is for
     * people; else the errno, with a text for a debug line. The connection stays until it is
     * freed. */
    void (*on_closed)(void *arg, struct conn *c, int code, const char *text);
    /* Messages pass from now on. May be NULL. */
    void (*on_open)(void *arg, struct conn *c);
    /* The accepting side: a handshake begins. False: it has to wait for conn_go_on(). May be
     * NULL */
    bool (*on_handshake)(void *arg, struct conn *c);
};

/* The accepting side. Takes ownership of fd. auth: borrowed; NULL: AUTH_NONE. */
_must_use_ struct conn *conn_new(struct loop *loop, int fd, struct auth *auth,
                                 const struct conn_ops *ops, void *arg);
/* After conn_new(): PEER_OURS of io/peer/peer_gate.h. The kernel is not asked again. */
void conn_is_ours(struct conn *c);
/* The connecting side. on_closed follows if the connection can't be made. from: as
 * stream_connect(). */
_must_use_ int conn_connect(struct loop *loop, const struct addr *from, const struct addr *to,
                            struct auth *auth, const struct conn_ops *ops, void *arg,
                            struct conn **ret);
/* Closes the connection and drops what is unsent. NULL is fine. */
void conn_free(struct conn *c);
/* Sends what is queued, for at most CONN_FINISH_NS, then closes; frees at once. NULL is fine. */
#define CONN_FINISH_NS (2 * NS_PER_S)
void conn_finish(struct conn *c);
/* Changes the owner: the next callback is one of these. */
void conn_set_owner(struct conn *c, const struct conn_ops *ops, void *arg);

void conn_send(struct conn *c, const struct wire_message *m);
void conn_answer(struct conn *c, bool ok, const char *text);
/* Sends REFUSED, and finishes the connection. */
void conn_refuse(struct conn *c, bool final, const char *reason);
/* Sends CALL, for a caller that waits for HELLO first. */
void conn_call(struct conn *c);
/* Sends a frame that was made once for many connections. */
void conn_send_frame(struct conn *c, const char *frame, size_t len);
/* Sends frames that were made once for many connections, and are borrowed until done(arg). They may
 * exceed the limit of unsent bytes if nothing else is unsent. */
void conn_send_frames(struct conn *c, const char *frames, size_t len, void (*done)(void *arg),
                      void *arg);
/* Ends the connection. Its owner gets on_closed as usual, soon. */
void conn_cut(struct conn *c);
size_t conn_unsent(const struct conn *c);
/* Replaces CONN_UNSENT_MAX, for a peer that is about to be sent much at once. */
void conn_set_unsent_max(struct conn *c, size_t bytes);
/* How soon a peer that is no longer reachable is noticed: stream_set_patience(). */
void conn_set_patience(struct conn *c, uint64_t lease_ns, uint64_t heartbeat_ns);

/* At first LOOP_PRIO_BULK if it was accepted, LOOP_PRIO_LEASE if we made it. */
void conn_set_priority(struct conn *c, enum loop_priority prio);

/* 0 or a negative errno (not connected). */
_must_use_ int conn_local_addr(const struct conn *c, struct addr *ret);
_must_use_ int conn_peer_addr(const struct conn *c, struct addr *ret);
/* Whether both ends are of this machine, by their addresses. False also if they are not known. */
bool conn_is_within_host(const struct conn *c);

/* After on_handshake() was false. */
void conn_go_on(struct conn *c);
/* Munge is asked, for at most MUNGE_NS. */
bool conn_is_choosing(const struct conn *c);
/* The other end has proved that it has a key. */
bool conn_is_secured(const struct conn *c);
