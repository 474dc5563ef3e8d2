/* An agent's way to the head of its job (head.h), which srun's environment names. Only the agent
 * that leads has something to say: that it leads, and at the end how the job ended. It hears from
 * there when the job is to end.
 *
 *     head_link_new(loop, envp, secret, host, &ops, me, &l);   NULL: no head has started this agent
 *     head_link_lead(l);                                       this agent leads: connects
 *     head_link_safe(l);                                       a worker has told a safe point
 *     head_link_verdict(l, &verdict); head_link_free(l);       the last thing that the agent does
 *
 * Where the job has a key, everything is sent in TLS with it (io/net/tls_psk.h), so that no one on
 * the network learns the token or orders the agent to stop. Only a head at a loopback address is
 * spoken to in clear: the kernel reports to it which user connects.
 *
 * Over ssh the head is this node's relay (launcher/ssh). It gives the agent one end of a pair of
 * sockets, in clear and without a token: no other process can connect there. If that connection
 * ends, the relay was killed.
 *
 * Nothing here delays the workers: the verdict is told when none is left, within
 * HEAD_LINK_VERDICT_NS. A connection that ends is made again, every
 * HEAD_LINK_RETRY_NS. If the head's machine refuses HEAD_LINK_REFUSALS attempts in a row where it
 * was reached before, the head was killed. All functions take NULL. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "launcher/head/head_wire.h"

#define HEAD_LINK_RETRY_NS (300 * NS_PER_MS)
#define HEAD_LINK_CONNECT_NS (2 * NS_PER_S)
#define HEAD_LINK_VERDICT_NS (8 * NS_PER_S) /* a loaded login node stands still for seconds */
#define HEAD_LINK_REFUSALS 3
#define HEAD_LINK_ADDRS_MAX 16 /* of the head; further ones are ignored */

struct head_link;

struct head_link_ops {
    /* The head wants the job to end, as if this signal had come. Called once or more. */
    void (*stop)(void *arg, int signo);
    /* No more nodes than these are there or can still come. Called whenever the head says so. */
    void (*expect)(void *arg, uint32_t nodes);
    /* The head was killed. Called at most once. */
    void (*gone)(void *arg);
};

/* Whether a head has started this process. */
bool head_link_is_given(char *const *envp);

/* *ret is NULL if there is no head. secret: of the job's key, AUTH_SECRET_BYTES, borrowed until
 * head_link_free(); NULL: it has none. Returns 0, or -EINVAL with a sentence: the variable makes no
 * sense. The environment and `host` are copied. */
_must_use_ int head_link_new(struct loop *loop, char *const *envp, const uint8_t *secret,
                             const char *host, const struct head_link_ops *ops, void *arg,
                             struct head_link **ret, struct err *err);
/* This agent leads from now on. Repeated calls are fine. */
void head_link_lead(struct head_link *l);
/* A worker has told a safe point: the head learns it when it can be reached. Repeated calls are
 * fine. */
void head_link_safe(struct head_link *l);
/* Runs the loop until the head has acknowledged, for HEAD_LINK_VERDICT_NS at most. Does nothing
 * unless this agent has led. False: the head has not acknowledged. Outside of the loop's callbacks,
 * when nothing else is left on the loop. None of the link's own callbacks follows. */
bool head_link_verdict(struct head_link *l, const struct head_verdict *verdict);
void head_link_free(struct head_link *l);
