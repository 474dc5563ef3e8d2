/* A connection to a service on this node that may be slow, broken or hostile: each call ends at its
 * deadline (CLOCK_MONOTONIC, ns) at the latest. For processes that may block. */
#pragma once

#include <sys/socket.h>

#include "base/text/strbuf.h"

/* *ret: a connected socket, close-on-exec; the caller closes it. -ETIMEDOUT; others from the
 * kernel. */
_must_use_ int socket_dial(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns,
                           int *ret);
/* Sends the whole text. No SIGPIPE. */
_must_use_ int socket_send_text(int fd, const char *text, uint64_t deadline_ns);
/* Adds what has arrived, at least a byte, until `to` has `max` bytes. Returns 1; 0: the other end
 * has closed; -EMSGSIZE: there is more than max; -ETIMEDOUT; others from the kernel. */
_must_use_ int socket_receive(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns);
/* The same, until the other end closes: 0, or an error. */
_must_use_ int socket_receive_all(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns);
