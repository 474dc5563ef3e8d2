/* A listening TCP socket on the loop. Never looks up a name, survives running out of descriptors
 * (accepting stops; it continues when listener_retry() is called or after 100 ms; never a busy
 * loop). */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "io/net/addr.h"

struct listener;

/* fd: the callee takes it. */
typedef void listener_fn(void *arg, int fd, const struct addr *peer);

/* Binds and listens, without a loop (before a fork, say). IPv6 wildcard is dual stack. */
_must_use_ int listen_socket(const struct addr *at, int backlog, int *ret_fd, struct err *err);
/* Takes the listening socket. */
_must_use_ int listener_new(struct loop *loop, int fd, listener_fn *fn, void *arg,
                            struct listener **ret);
void listener_free(struct listener *l);
/* Where it listens, with the real port. */
_must_use_ int listener_addr(const struct listener *l, struct addr *ret);
/* Stop and resume accepting (the caller's own bound on connections). */
void listener_pause(struct listener *l);
void listener_retry(struct listener *l);
