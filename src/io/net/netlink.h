/* One question to the kernel over netlink(7), and its answers. */
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>

#include "io/net/addr.h"

#define NETLINK_REQUEST_MAX 256

/* A request under way: a header, a fixed part, attributes. */
union netlink_request {
    struct nlmsghdr head;
    char bytes[NETLINK_REQUEST_MAX];
};
/* type: RTM_GET… or SOCK_DIAG_BY_FAMILY; flags besides NLM_F_REQUEST. The fixed part is copied. */
void netlink_request_init(union netlink_request *q, uint16_t type, uint16_t flags,
                          const void *fixed, size_t size);
/* The caller must stay within NETLINK_REQUEST_MAX. */
void netlink_request_add(union netlink_request *q, uint16_t type, const void *data, size_t size);

/* One message of the answer: its fixed part and its attributes, valid during the call. */
struct netlink_answer {
    uint16_t type; /* RTM_NEW… or SOCK_DIAG_BY_FAMILY */
    const char *bytes;
    size_t len;
};
typedef void netlink_answer_fn(void *arg, const struct netlink_answer *a);
/* Blocks until the answer is complete, for at most NETLINK_WAIT_S seconds. protocol: NETLINK_….
 * *fd is opened if it is -1; close it after an error that is not the kernel's answer. NULL: a
 * socket for this question only. 0; -EINTR: the data changed meanwhile, ask again; or the kernel's
 * -errno. */
#define NETLINK_WAIT_S 2
_must_use_ int netlink_ask(int *fd, int protocol, const union netlink_request *q,
                           netlink_answer_fn *fn, void *arg);

/* The TCP sockets of this process's network in these states (1 << TCP_ESTABLISHED, ...), IPv4 and
 * IPv6: an answer for each is a struct inet_diag_msg, with its INET_DIAG_INFO. sock_diag(7) */
_must_use_ int netlink_ask_tcp(uint32_t states, netlink_answer_fn *fn, void *arg);

/* The content of an attribute; NULL if it is missing. */
struct netlink_attribute {
    const char *data;
    size_t size;
};
/* Copies the fixed part and finds the attributes; false: it is of another type, or too short. */
bool netlink_answer_is(const struct netlink_answer *a, uint16_t type, void *fixed, size_t size,
                       struct netlink_attribute *ret, uint16_t max);
/* The attributes by number, up to `max`: ret has max + 1 elements. The last of a number counts. */
void netlink_attributes(const char *bytes, size_t len, struct netlink_attribute *ret, uint16_t max);
/* 0 if it is missing or has another size. */
uint32_t netlink_u32(struct netlink_attribute a);

/* How the kernel would send to an address. */
struct netlink_route {
    uint32_t ifindex; /* 0: its answer has none */
    bool local;       /* to this machine itself */
    char source[46];  /* the address that it would send from; "": not known */
};
/* netlink_ask() for the route to this host. *ret is filled in whatever it returns. */
_must_use_ int netlink_ask_route(int *fd, const struct addr *to, struct netlink_route *ret);
/* Its part that reads the answer: into a struct netlink_route. */
netlink_answer_fn netlink_read_route;
