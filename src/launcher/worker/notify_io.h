/* The socket on which workers send messages to the agent: an abstract unix datagram socket with a
 * name that can't be guessed, in their environment as MUSTER_NOTIFY_SOCKET ("@…", as NOTIFY_SOCKET
 * of systemd has it). The kernel says who sent (SCM_CREDENTIALS).
 *
 *     r = notify_new(loop, on_message, me, &notify, &err);
 *     notify_name(notify)          for the environment
 *     … on_message(me, pid, &message) …
 *     notify_free(notify); */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/loop.h"
#include "launcher/worker/notify.h"

struct notify;

/* `pid` sent it; it may have ended, and be another process by now. May free the socket. */
typedef void notify_fn(void *arg, pid_t pid, const struct notify_message *message);

_must_use_ int notify_new(struct loop *loop, notify_fn *fn, void *arg, struct notify **ret,
                          struct err *err);
void notify_free(struct notify *n);              /* NULL is fine */
const char *notify_name(const struct notify *n); /* "@muster-notify-…"; borrowed */

/* Handled in one turn of the loop; more wait for the next. */
#define NOTIFY_TURN_MAX 32
