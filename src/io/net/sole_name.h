/* A name that one process of this machine holds: of an abstract unix socket (unix(7)), which the
 * kernel removes when the process ends. Each network namespace has names of its own, as it has
 * ports. Every user can take every name: a process that finds one taken asks for its owner. */
#pragma once

#include <sys/types.h>

#include "base/util.h"

#define SOLE_NAME_MAX 100 /* bytes */

/* Holds the name until the descriptor *ret_fd is closed; it is not inherited by an exec. 0;
 * -EADDRINUSE: it is taken; or another negative errno. */
_must_use_ int sole_name_take(const char *name, int *ret_fd);
/* Who made the socket with the name, by the kernel, as this user namespace has users (sock_diag(7),
 * Linux 5.3). 0; -ENOENT: it is free, or not reported; or another errno. */
_must_use_ int sole_name_holder(const char *name, uid_t *ret_uid);
