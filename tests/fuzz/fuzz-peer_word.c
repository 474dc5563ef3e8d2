/* Any bytes as the kernel's answer about a socket or a route: refused, or read; then it is the answer to the question.
 */
#include <errno.h>
#include <string.h>

#include "io/peer/peer_gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct addr at(const char *host, uint16_t port) {
    struct addr a;
    if (addr_from_literal(host, port, &a) != 0)
        abort();
    return a;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct {
        const char *local, *remote;
    } pairs[] = {{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"::ffff:10.0.0.1", "10.0.0.2"}};
    struct nlmsghdr h;
    struct netlink_route route = {0};
    if (size < sizeof h)
        return 0;
    memcpy(&h, data, sizeof h);
    const struct netlink_answer answer = {h.nlmsg_type, (const char *)data + sizeof h, size - sizeof h};
    netlink_read_route(&route, &answer);
    if (memchr(route.source, '\0', sizeof route.source) == NULL)
        abort();
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        struct addr from = at(pairs[i].local, 40000), to = at(pairs[i].remote, 29400);
        struct peer_socket s = {.inode = 99};
        int r = peer_word_read_socket(&answer, &from, &to, &s);
        if (r != 0 && s.inode != 99)
            abort();
        if (r == 0 && size < 88) /* a head of 16 bytes, and struct inet_diag_msg */
            abort();
    }
    return 0;
}
