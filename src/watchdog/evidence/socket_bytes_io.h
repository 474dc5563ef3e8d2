/* How many bytes the TCP sockets of processes have moved, by the kernel's count (sock_diag(7),
 * INET_DIAG_INFO): send(2) is not in /proc/PID/io. Of the network namespace of this process. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/util.h"

struct socket_bytes;
struct socket_bytes *socket_bytes_new(void);
void socket_bytes_free(struct socket_bytes *s);
/* The sockets of this process belong to this owner from now on; one that several processes share
 * counts once. *gpu becomes true if the process has a GPU open. */
void socket_bytes_add(struct socket_bytes *s, pid_t pid, uint32_t owner, bool *gpu);
/* Sent and received by all sockets of the owner. The first call asks the kernel; add no more then.
 * 0: none, or the kernel does not say. */
uint64_t socket_bytes_of(struct socket_bytes *s, uint32_t owner);
