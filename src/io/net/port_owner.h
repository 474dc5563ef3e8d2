/* Who has a port of this machine, or a name (below). Which process listens at a port is for a
 * message, not for a decision about access: it reads /proc, which takes some milliseconds. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "io/net/addr.h"

struct port_owner {
    bool listens;  /* a process does, in this network namespace */
    pid_t pid;     /* 0: not known, because it is another user's or outside this pid namespace */
    char name[17]; /* of the process; "": not known */
    bool muster;   /* it runs this program */
};

/* Looks for the listener that a bind to this address meets: at it, or at any address. */
struct port_owner port_owner_find(const struct addr *at);
/* "another program, not muster, listens on 127.0.0.1:80: nginx, pid 7", as far as it is known. */
char *port_owner_text(const struct port_owner *owner, const struct addr *at);

/* A name that one process of this machine holds: of an abstract unix socket (unix(7)), which the
 * kernel removes when the process ends. Each network namespace has names of its own, as it has
 * ports. Every user can take every name: a process that finds one taken asks for its owner. */
#define SOLE_NAME_MAX 100 /* bytes */

/* Holds the name until *ret_fd is closed, or an exec. 0; -EADDRINUSE: taken; or another errno. */
_must_use_ int sole_name_take(const char *name, int *ret_fd);
/* Who made the socket with the name, by the kernel, as this user namespace has users (sock_diag(7),
 * Linux 5.3). 0; -ENOENT: it is free, or not reported; or another errno. */
_must_use_ int sole_name_holder(const char *name, uid_t *ret_uid);
