/* Socket addresses as text and back, without name look-ups, and this machine's own addresses. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"

/* Longest text: IPv6 with zone, 62 bytes; the same as "[" … "]:65535". */
#define ADDR_HOST_MAX 64
#define ADDR_TEXT_MAX 96

/* A sockaddr_storage is four times as large: a leader has several for each node. */
struct addr {
    union {
        struct sockaddr_in6 in6; /* first: {0} clears it, which is the longest */
        struct sockaddr_in in;
        sa_family_t ss_family; /* AF_INET or AF_INET6 */
    } ss;
    socklen_t len;
};

/* From "10.0.0.1", "::1", "[::1]" or "fe80::1%eth0", and a port. -EINVAL if it is not a literal. */
_must_use_ int addr_from_literal(const char *host, uint16_t port, struct addr *ret);
/* From 4 or 16 bytes, as the kernel has them, and a port. family: AF_INET or AF_INET6. */
struct addr addr_from_bytes(sa_family_t family, const void *host, uint16_t port);
/* From "10.0.0.1,fe80::1%eth0": those that are literals, at most max. Returns how many. */
size_t addr_from_list(const char *list, uint16_t port, struct addr *ret, size_t max);
/* "10.0.0.1:80", "[::1]:80". Mapped IPv4 (::ffff:…) is written as IPv4. */
void addr_to_text(const struct addr *a, char out[ADDR_TEXT_MAX]);
/* The same without port and brackets: the form of MASTER_ADDR. */
void addr_host_text(const struct addr *a, char out[ADDR_HOST_MAX]);
/* "10.0.0.1,fe80::1%eth0": as many as fit into `size` bytes. */
void addr_to_list(const struct addr *addrs, size_t n, char *out, size_t size);
/* Mapped IPv4 as plain IPv4; other addresses unchanged. */
struct addr addr_unmapped(const struct addr *a);
uint16_t addr_port(const struct addr *a);
void addr_set_port(struct addr *a, uint16_t port);
bool addr_is_loopback(const struct addr *a);
bool addr_is_wildcard(const struct addr *a);
/* Whether the hosts are the same; ports are ignored, and mapped IPv4 equals IPv4. */
bool addr_same_host(const struct addr *a, const struct addr *b);
/* Copies the host as the kernel has it; returns how many bytes that is: 4 or 16. */
size_t addr_raw(const struct addr *a, void *out);
/* IPv6: the interface, without which an address of one link means nothing; else 0. */
uint32_t addr_zone(const struct addr *a);
/* The host as 16 bytes, to be compared or hashed: IPv4 as mapped IPv4, IPv6 without its zone. */
#define ADDR_HOST_BYTES 16
void addr_host_bytes(const struct addr *a, uint8_t out[ADDR_HOST_BYTES]);
/* True if an interface of this machine has this address, or if it is a loopback address. */
bool addr_is_local(const struct addr *a);
/* Whether the loopback interface is down: then this machine can't reach itself. */
bool addr_loopback_is_down(void);
/* All addresses of interfaces that are up and not loopback, without link-local IPv6. The order is
 * IPv4 before IPv6, link-local IPv4 last. At most max; *ret_n can be 0. 0 or a negative errno. */
_must_use_ int addr_all_global(struct addr *out, size_t max, size_t *ret_n);
/* The local and the remote address of a connected socket. */
_must_use_ int addr_of_socket(int fd, struct addr *ret);
_must_use_ int addr_of_peer(int fd, struct addr *ret);
