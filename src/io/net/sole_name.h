/* A name that only one process of this machine holds at a time, as long as it wants. It is that of
 * an abstract unix socket (unix(7)), so there is no file, the kernel takes the name back when the
 * process ends, however it ends, and another network namespace, which has ports of its own, has
 * names of its own, too. Every user can take every name: a process that finds one taken asks for
 * its owner.
 */
#pragma once

#include <sys/types.h>

#include "base/util.h"

#define SOLE_NAME_MAX 100 /* bytes */

/* Holds the name until the descriptor *ret_fd is closed; it is not inherited by an exec. 0;
 * -EADDRINUSE: it is taken; or another negative errno. */
_must_use_ int sole_name_take(const char *name, int *ret_fd);
/* Who made the socket that has the name, as this user namespace has that user: the kernel's word
 * (sock_diag(7), Linux 5.3). 0; -ENOENT: the name is free, or this kernel does not report the
 * owners of sockets; or another negative errno. */
_must_use_ int sole_name_holder(const char *name, uid_t *ret_uid);
