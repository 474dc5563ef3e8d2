/* Sends a message to the agent, from a program that a worker runs: `muster notify`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

/* `name` is the value of MUSTER_NOTIFY_SOCKET: "@…" or a path. Returns when the agent has read the
 * message, so the sender may end then; -ETIMEDOUT: it has not within this time. Other errors:
 * -EINVAL, no such name can be; -ECONNREFUSED and others of sendmsg(2). */
_must_use_ int notify_send(const char *name, const char *text, size_t len, uint64_t timeout_ns,
                           struct err *err);
