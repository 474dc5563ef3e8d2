#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/netlink.h"
#include "io/process/proc.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/evidence/waits.h"

#define SOCKETS_MAX 65536
#define ESTABLISHED 1 /* include/net/tcp_states.h */

struct socket_entry {
    uint64_t inode;
    uint32_t owner;
    uint64_t bytes;
};

struct socket_bytes {
    struct socket_entry *entries;
    size_t n;
    bool asked;
};

struct socket_bytes *socket_bytes_new(void) {
    return xcalloc(1, sizeof(struct socket_bytes));
}

void socket_bytes_free(struct socket_bytes *s) {
    free(s->entries);
    free(s);
}

struct link_search {
    struct socket_bytes *of;
    uint32_t owner;
    bool *gpu;
};

static bool add_link(void *arg, const char *link) {
    struct link_search *f = arg;
    struct socket_bytes *s = f->of;
    *f->gpu |= proc_is_gpu(link);
    uint64_t inode = waits_socket_inode(link);
    if (inode == 0 || s->n == SOCKETS_MAX)
        return true;
    s->entries = xgrow(s->entries, s->n, sizeof *s->entries);
    s->entries[s->n++] = (struct socket_entry){.inode = inode, .owner = f->owner};
    return true;
}

void socket_bytes_add(struct socket_bytes *s, pid_t pid, uint32_t owner, bool *gpu) {
    struct link_search f = {.of = s, .owner = owner, .gpu = gpu};
    (void)!proc_each_link(pid, add_link, &f); /* no right, or it has ended */
}

static int compare(const void *a, const void *b) {
    uint64_t x = ((const struct socket_entry *)a)->inode,
             y = ((const struct socket_entry *)b)->inode;
    return x < y ? -1 : x > y;
}

static void take_socket(void *arg, const struct netlink_answer *answer) {
    struct socket_bytes *s = arg;
    struct inet_diag_msg m;
    struct netlink_attribute a[INET_DIAG_INFO + 1];
    struct tcp_info info = {0};
    if (!netlink_answer_is(answer, SOCK_DIAG_BY_FAMILY, &m, sizeof m, a, INET_DIAG_INFO) ||
        a[INET_DIAG_INFO].data == NULL)
        return;
    struct socket_entry key = {.inode = m.idiag_inode};
    struct socket_entry *e = bsearch(&key, s->entries, s->n, sizeof key, compare);
    memcpy(&info, a[INET_DIAG_INFO].data,
           MIN2(a[INET_DIAG_INFO].size, sizeof info)); /* an older kernel's */
    if (e != NULL)
        e->bytes = info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

static void ask(struct socket_bytes *s, uint8_t family) {
    union netlink_request q;
    struct inet_diag_req_v2 body = {.sdiag_family = family,
                                    .sdiag_protocol = IPPROTO_TCP,
                                    .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                                    .idiag_states = 1 << ESTABLISHED};
    netlink_request_init(&q, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body, sizeof body);
    (void)!netlink_ask(NETLINK_SOCK_DIAG, &q, take_socket, s); /* what came counts */
}

static void ask_all(struct socket_bytes *s) {
    s->asked = true;
    if (s->n == 0)
        return;
    qsort(s->entries, s->n, sizeof *s->entries, compare);
    size_t kept = 1;
    for (size_t i = 1; i < s->n; i++)
        if (s->entries[i].inode != s->entries[kept - 1].inode)
            s->entries[kept++] = s->entries[i];
    s->n = kept;
    ask(s, AF_INET);
    ask(s, AF_INET6);
}

uint64_t socket_bytes_of(struct socket_bytes *s, uint32_t owner) {
    uint64_t sum = 0;
    if (!s->asked)
        ask_all(s);
    for (size_t i = 0; i < s->n; i++)
        sum += s->entries[i].owner == owner ? s->entries[i].bytes : 0;
    return sum;
}
