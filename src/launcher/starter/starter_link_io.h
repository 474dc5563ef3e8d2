/* An agent's connection to the head of its job (starter.h), which its environment names. Only the
 * agent that leads connects. It reports that it leads, safe points, and how the job ended, and is
 * notified when the job is to end.
 *
 *     starter_link_new(loop, envp, secret, host, &place, &ops, me, &l);   NULL: none
 *     starter_link_lead(l);                                this agent leads: connects
 *     starter_link_safe(l);                                a worker has reported a safe point
 *     starter_link_verdict(l, &verdict); starter_link_free(l);     the agent does this last
 *
 * Where the job has a key, everything is sent in TLS with it (io/net/tls_psk.h), except to a head
 * at a loopback address: there the kernel reports to it which user connects. Over ssh the head is
 * this node's relay (launcher/ssh), which gives the agent one end of a socket pair, in clear and
 * without a token.
 *
 * Nothing here delays the workers: the verdict is sent when none is left, within
 * STARTER_LINK_VERDICT_NS. A connection that ends is made again, every STARTER_LINK_RETRY_NS. If
 * the head was reached before, and STARTER_LINK_REFUSALS attempts in a row are refused, it was
 * killed, as a relay whose connection ends. All functions take NULL. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "io/net/stream.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter.h"

#define STARTER_LINK_RETRY_NS (300 * NS_PER_MS)
#define STARTER_LINK_CONNECT_NS (2 * NS_PER_S)
#define STARTER_LINK_VERDICT_NS (8 * NS_PER_S) /* a loaded login node stands still for seconds */
#define STARTER_LINK_REFUSALS 3
#define STARTER_LINK_ADDRS_MAX 16 /* of the head; further ones are ignored */

struct starter_link;

struct starter_link_ops {
    /* The head wants the job to end, as if this signal had come. Called once or more. */
    void (*stop)(void *arg, int signo);
    /* No more nodes than these are there or can still come. Called whenever the head says so. */
    void (*expect)(void *arg, uint32_t nodes);
    /* The head was killed. Called at most once. */
    void (*gone)(void *arg);
};

/* The descriptor that a variable of the relay names as "fd:3", made close-on-exec; -1: none. It can
 * be another file: a process further below may have a copy of the variable. */
int starter_passed_fd(char *const *envp, const char *name);
/* The socket of the relay where the nodes of the job meet: from then on the caller's. -1: none. */
int starter_take_listener(char *const *envp);
/* Closes what the head has passed to this process, which is not its agent. */
void starter_drop_fds(char *const *envp);

/* Whether a head has started this process. */
bool starter_link_is_given(char *const *envp);

/* *ret is NULL if there is no head. secret: of the job's key, AUTH_SECRET_BYTES, borrowed until
 * starter_link_free(); NULL: none. 0, or -EINVAL and a sentence: the variable makes no sense. */
_must_use_ int starter_link_new(struct loop *loop, char *const *envp, const uint8_t *secret,
                                const char *host, const struct place *place,
                                const struct starter_link_ops *ops, void *arg,
                                struct starter_link **ret, struct err *err);
/* This agent leads from now on; a worker has reported a safe point. Repeated calls are fine. */
void starter_link_lead(struct starter_link *l);
void starter_link_safe(struct starter_link *l);
/* Runs the loop until the head has acknowledged, for STARTER_LINK_VERDICT_NS at most. Does nothing
 * unless this agent has led. False: the head has not acknowledged. Outside of the loop's callbacks,
 * when nothing else is left on the loop. None of the link's own callbacks follows. */
bool starter_link_verdict(struct starter_link *l, const struct starter_verdict *verdict);
void starter_link_free(struct starter_link *l);

/* For both ends: sends a message, which must be valid. */
void starter_send(struct stream *s, const struct starter_message *m);
/* For both ends: gives fn each whole message of this sender, which has no raw bytes, until it
 * returns something else than 0, which is returned: then the stream may be gone. 0: no more have
 * come; a negative errno and a sentence: the peer broke the protocol. */
typedef int starter_read_fn(void *arg, const struct starter_message *m, struct err *err);
_must_use_ int starter_read(struct stream *s, enum starter_sender from, starter_read_fn *fn,
                            void *arg, struct err *err);
