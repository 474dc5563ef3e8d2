/* A listening TCP socket on the loop. It never looks up a name. Without descriptors it stops
 * accepting, until listener_retry() is called or for 100 ms. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "io/net/addr.h"

struct listener;

/* The callee takes ownership of fd. */
typedef void listener_fn(void *arg, int fd, const struct addr *peer);

/* From now on listen_socket() chooses port 0 from these, also in children; low 0: the kernel. */
void listen_set_range(uint16_t low, uint16_t high);
/* These ports of that range are chosen only if no other is free. */
#define LISTEN_LAST_MAX 16
void listen_set_last(const uint16_t *ports, unsigned n);
/* Binds and listens, without a loop (for example before a fork). IPv6 wildcard is dual stack. */
_must_use_ int listen_socket(const struct addr *at, int backlog, int *ret_fd, struct err *err);
/* Takes ownership of the listening socket. */
_must_use_ struct listener *listener_new(struct loop *loop, int fd, listener_fn *fn, void *arg);
void listener_free(struct listener *l);
/* The address at which it listens, with the actual port. */
_must_use_ int listener_addr(const struct listener *l, struct addr *ret);
/* Stop and resume accepting, for a caller that limits its connections. */
void listener_pause(struct listener *l);
void listener_retry(struct listener *l);
