#include "io/peer/peer_gate.h"

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>

#include "rig/unit.h"

static struct addr at(const char *host, uint16_t port) {
    struct addr a;
    cr_assert_eq(addr_from_literal(host, port, &a), 0);
    return a;
}

static void put_addr(const struct addr *a, void *host, uint16_t *port) {
    if (a->ss.ss_family == AF_INET)
        memcpy(host, &((const struct sockaddr_in *)&a->ss)->sin_addr, 4);
    else
        memcpy(host, &((const struct sockaddr_in6 *)&a->ss)->sin6_addr, 16);
    *port = htons(addr_port(a));
}

/* What the kernel says of that socket. */
static struct inet_diag_msg about(const struct addr *local, const struct addr *remote) {
    struct inet_diag_msg a = {.idiag_family = (uint8_t)local->ss.ss_family,
                              .idiag_state = TCP_ESTABLISHED,
                              .idiag_uid = 1000,
                              .idiag_inode = 77};
    put_addr(local, a.id.idiag_src, &a.id.idiag_sport);
    put_addr(remote, a.id.idiag_dst, &a.id.idiag_dport);
    return a;
}

static int read_it(const struct inet_diag_msg *a, const struct addr *local, const struct addr *remote,
                   struct peer_socket *ret) {
    struct netlink_answer answer = {SOCK_DIAG_BY_FAMILY, (const char *)a, sizeof *a};
    return peer_word_read_socket(&answer, local, remote, ret);
}

Test(peer_word, whose_socket_it_is) {
    struct addr local = at("127.0.0.1", 40000), remote = at("127.0.0.1", 29400);
    struct inet_diag_msg a = about(&local, &remote);
    struct peer_socket s;
    cr_assert_eq(read_it(&a, &local, &remote, &s), 0);
    cr_assert_eq(s.state, TCP_ESTABLISHED);
    cr_assert_eq(s.uid, 1000);
    cr_assert_eq(s.inode, 77);
}

Test(peer_word, mapped_ipv4_is_ipv4) {
    struct addr local = at("::ffff:10.0.0.1", 40000), remote = at("::ffff:10.0.0.2", 29400);
    struct addr plain_local = at("10.0.0.1", 40000), plain_remote = at("10.0.0.2", 29400);
    struct inet_diag_msg mapped = about(&local, &remote), plain = about(&plain_local, &plain_remote);
    struct peer_socket s;
    cr_assert_eq(read_it(&mapped, &plain_local, &plain_remote, &s), 0);
    cr_assert_eq(read_it(&plain, &local, &remote, &s), 0);
    union netlink_request q, p;
    peer_word_ask_socket(&local, &remote, &q);
    peer_word_ask_socket(&plain_local, &plain_remote, &p);
    cr_assert_eq(memcmp(&p, &q, sizeof p), 0);
}

Test(peer_word, a_socket_that_listens_there_is_no_answer) {
    struct addr local = at("10.0.0.2", 29400), remote = at("10.0.0.1", 29400);
    struct addr any = at("::", 29400), none = at("::", 0);
    struct inet_diag_msg a = about(&any, &none);
    struct peer_socket s;
    cr_assert_eq(read_it(&a, &local, &remote, &s), -ENOENT);
    a = about(&local, &remote);
    cr_assert_eq(read_it(&a, &local, AT(at("10.0.0.1", 29401)), &s), -ENOENT);
}

Test(peer_word, damaged_answers_are_refused) {
    struct addr local = at("::1", 40000), remote = at("::1", 29400);
    struct inet_diag_msg a = about(&local, &remote);
    struct netlink_answer answer = {SOCK_DIAG_BY_FAMILY, (const char *)&a, 0};
    struct peer_socket s;
    for (; answer.len < sizeof a; answer.len++)
        cr_assert_eq(peer_word_read_socket(&answer, &local, &remote, &s), -EPROTO);
    answer.type = NLMSG_DONE;
    cr_assert_eq(peer_word_read_socket(&answer, &local, &remote, &s), -EPROTO);
    a.idiag_family = AF_UNIX;
    cr_assert_eq(read_it(&a, &local, &remote, &s), -ENOENT);
}

Test(peer_word, an_address_of_one_link_is_asked_with_its_interface) {
    struct addr local = at("fe80::1%lo", 40000), remote = at("fe80::2%lo", 29400);
    union netlink_request q;
    struct inet_diag_req_v2 body;
    peer_word_ask_socket(&local, &remote, &q);
    cr_assert_eq(q.head.nlmsg_len, NLMSG_LENGTH(sizeof body));
    memcpy(&body, q.bytes + NLMSG_HDRLEN, sizeof body);
    cr_assert_eq(body.id.idiag_if, ((const struct sockaddr_in6 *)&local.ss)->sin6_scope_id);
    cr_assert_neq(body.id.idiag_if, 0);
}

Test(peer_word, whether_every_user_has_a_number) {
    cr_assert(peer_word_map_is_whole("         0          0 4294967295\n"));
    cr_assert_not(peer_word_map_is_whole("         0       1000          1\n"));
    cr_assert_not(peer_word_map_is_whole("0 1000 1\n1 100000 65536\n"));
    cr_assert_not(peer_word_map_is_whole("1 0 4294967294\n"));
    cr_assert_not(peer_word_map_is_whole(""));
}
