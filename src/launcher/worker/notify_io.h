/* The socket on which workers send messages to the agent: an abstract unix datagram socket with a
 * name that can't be guessed (MUSTER_NOTIFY_SOCKET). The kernel reports the sender. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/loop.h"
#include "launcher/worker/notify.h"

struct notify;

/* `pid` is the sender, which may have ended. The callback may free the socket. */
typedef void notify_fn(void *arg, pid_t pid, const struct notify_message *message);

_must_use_ int notify_new(struct loop *loop, notify_fn *fn, void *arg, struct notify **ret,
                          struct err *err);
void notify_free(struct notify *n);              /* takes NULL */
const char *notify_name(const struct notify *n); /* "@muster-notify-…"; borrowed */
