/* The address of a name in /etc/hosts, without a process that asks for it. It answers only where
 * getaddrinfo() would ask this file first and nothing else, and where one line has the name, so it
 * is the only answer: nsswitch.conf(5), hosts(5).
 *
 * It blocks as long as the disk of /etc does: not for a caller that holds a lease. */
#pragma once

#include "io/net/addr.h"

/* etc: "/etc", but in tests. False: it does not know the name for sure: resolve_start() asks. */
_must_use_ bool hosts_file_find(const char *etc, const char *name, uint16_t port, struct addr *ret);
