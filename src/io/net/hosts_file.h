/* The addresses of a name in /etc/hosts, without a process that asks for it. It answers only where
 * getaddrinfo() would ask this file first and nothing else, and would answer the same, so that it
 * is the only answer: nsswitch.conf(5), hosts(5), host.conf(5), gai.conf(5), RFC 6724 §6.
 *
 * It blocks as long as the disk of /etc does: not for a caller that holds a lease. */
#pragma once

#include "io/net/addr.h"

#define HOSTS_FILE_ADDRS_MAX 2

/* etc: the folder of these files, "/etc"; tests. True: *ret_n is 1, or 2 (one of each family, in
 * getaddrinfo()'s order). False: the file does not know the name, or the answer could be another;
 * resolve_start() asks. */
_must_use_ bool hosts_file_find(const char *etc, const char *name, uint16_t port,
                                struct addr ret[HOSTS_FILE_ADDRS_MAX], size_t *ret_n);
