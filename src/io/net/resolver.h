/* Addresses of host names, without blocking the loop. Literals, "localhost" and this machine's own
 * name are known at once; getaddrinfo() looks the others up in a child process with a deadline.
 *
 *     struct addr a[RESOLVE_ADDRS_MAX]; size_t n;
 *     r = resolve_now(host, port, a, &n);             0: done, nothing was asked
 *     if (r == RESOLVE_E_LOOKUP)
 *         r = resolve_start(loop, host, port, timeout_ns, on_resolved, me, &job);
 *
 * Nothing is cached, because the addresses of a name can change. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"

#define RESOLVE_ADDRS_MAX 8
#define RESOLVE_NAME_MAX 253 /* bytes of a host name; RFC 1035 §2.3.4, without the last dot */

enum { RESOLVE_E_LOOKUP = 1 }; /* a look-up is needed: resolve_start() */

/* gethostname(), cleaned by utf8_clean(), or "localhost" if it has no name. */
void resolve_own_name(char *out, size_t size);

/* True for "localhost", for names below it (RFC 6761 §6.3), and for gethostname()'s name, whole or
 * up to its first dot; letter case does not matter. */
bool resolve_is_own_name(const char *host);

/* Resolves what needs no look-up: a literal is its own address, "localhost" is both loopback
 * addresses, and the machine's own name is those and its first global address. *ret_n is 1 …
 * RESOLVE_ADDRS_MAX. 0, RESOLVE_E_LOOKUP, or -EINVAL: not a name. */
_must_use_ int resolve_now(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX],
                           size_t *ret_n);

struct resolve;

/* code 0: n >= 1 addresses, in the resolver's order, without duplicates; borrowed. Else n is 0,
 * code is -ETIMEDOUT, -ENOENT (no such name), -EAGAIN (no answer now, try later) or another errno,
 * and `text` is a sentence about it. The look-up is freed after this call. */
typedef void resolve_fn(void *arg, int code, const char *text, const struct addr *addrs, size_t n);

/* Starts the child. fn is called later, never from inside. 0, or a negative errno (fork, pipe). */
_must_use_ int resolve_start(struct loop *loop, const char *host, uint16_t port,
                             uint64_t timeout_ns, resolve_fn *fn, void *arg, struct resolve **ret);
/* Asks getaddrinfo(), which blocks. 0: at least one address, each once; else its code (EAI_*). */
typedef int resolve_lookup_fn(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX],
                              size_t *ret_n);
resolve_lookup_fn resolve_lookup;
/* resolve_start() with another look-up function, which runs in the child. For tests. */
_must_use_ int resolve_start_with(struct loop *loop, const char *host, uint16_t port,
                                  uint64_t timeout_ns, resolve_lookup_fn *lookup, resolve_fn *fn,
                                  void *arg, struct resolve **ret);
/* Cancels the look-up: the child is killed and reaped, and fn is not called. Takes NULL. */
void resolve_free(struct resolve *r);

/* The address of a name in /etc/hosts, without a process that asks for it. It answers only where
 * getaddrinfo() would ask this file first and nothing else (nsswitch.conf(5), hosts(5)), and where
 * one line has the name. It can block as long as the disk of /etc: not while holding a lease.
 * etc: "/etc", but in tests. False: it does not know the name for sure: resolve_start() asks. */
_must_use_ bool hosts_file_find(const char *etc, const char *name, uint16_t port, struct addr *ret);
