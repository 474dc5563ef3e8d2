/* The relay as the head of its own node's agent: it listens on 127.0.0.1, and the agent comes there
 * when it leads (head_link_io.h). So an agent knows nothing of ssh.
 *
 *     ssh_link_new(loop, &ops, me, &l, &err);
 *     ssh_link_env(l, &env);               MUSTER_HEAD, MUSTER_HEAD_TOKEN: the agent's environment
 *     ssh_link_stop(l, SIGTERM);           false: no agent is connected
 *
 * Others on this machine can connect, too. Until one has sent LEAD with the token, nothing that it
 * does has an effect, and SSH_LINK_STRANGERS_MAX may be about it: then the oldest goes. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/envlist.h"
#include "io/loop.h"
#include "launcher/head/head_wire.h"

#define SSH_LINK_STRANGERS_MAX 16

struct ssh_link;

struct ssh_link_ops {
    void (*lead)(void *arg, const char *host);
    void (*verdict)(void *arg, const struct head_verdict *verdict);
};

_must_use_ int ssh_link_new(struct loop *loop, const struct ssh_link_ops *ops, void *arg,
                            struct ssh_link **ret, struct err *err);
void ssh_link_free(struct ssh_link *l); /* takes NULL */
void ssh_link_env(const struct ssh_link *l, struct envlist *env);
/* To the agent that leads. False: none is connected. */
bool ssh_link_stop(struct ssh_link *l, int signo);
void ssh_link_ack(struct ssh_link *l);
/* To the agent that leads, and to each that does so later. */
void ssh_link_expect(struct ssh_link *l, uint32_t nodes);
