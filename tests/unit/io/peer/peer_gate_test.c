#include "io/peer/peer_gate.h"

#include <sys/prctl.h>

#include "io/net/listen.h"
#include "rig/unit.h"

#define OTHER 65533 /* a user that nothing else uses */

static struct {
    struct peer_gate *gate;
    struct addr at; /* where it listens */
    int listening, client, accepted;
    struct addr peer;
    unsigned n_lines;
    char line[512];
} rig = {.listening = -1, .client = -1, .accepted = -1};

static void on_line(void *arg, const char *line) {
    rig.n_lines++;
    (void)snprintf(rig.line, sizeof rig.line, "%s", line);
}

static void rig_open(const char *host) {
    struct err err = {0};
    cr_assert_eq(addr_from_literal(host, 0, &rig.at), 0);
    cr_assert_eq(listen_socket(&rig.at, 64, &rig.listening, &err), 0, "%s", err.text);
    cr_assert_eq(addr_of_socket(rig.listening, &rig.at), 0);
    if (peer_gate_new(rig.listening, on_line, NULL, &rig.gate, &err) < 0)
        cr_skip_test("no sock_diag here: %s", err.text);
}

static void hang_up(void) {
    if (rig.client >= 0)
        (void)close(rig.client);
    if (rig.accepted >= 0)
        (void)close(rig.accepted);
    rig.client = rig.accepted = -1;
}

static void rig_close(void) {
    hang_up();
    (void)close(rig.listening);
    peer_gate_free(rig.gate);
}

static int call(const struct addr *at, const char *from) {
    struct addr own;
    int fd = socket(at->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    if (from != NULL) {
        cr_assert_eq(addr_from_literal(from, 0, &own), 0);
        cr_assert_eq(bind(fd, (struct sockaddr *)&own.ss, own.len), 0);
    }
    cr_assert_eq(connect(fd, (const struct sockaddr *)&at->ss, at->len), 0, "%s", strerror(errno));
    return fd;
}

static void take(void) {
    cr_assert_eq(poll(&(struct pollfd){.fd = rig.listening, .events = POLLIN}, 1, -1), 1);
    rig.peer = (struct addr){.len = sizeof rig.peer.ss};
    rig.accepted = accept4(rig.listening, (struct sockaddr *)&rig.peer.ss, &rig.peer.len, SOCK_CLOEXEC);
    cr_assert_geq(rig.accepted, 0);
}

static bool admits(void) { return peer_gate_admits(rig.gate, rig.accepted, &rig.peer); }

static void assert_own(const char *listens, const char *to, const char *from) {
    struct addr at;
    rig_open(listens);
    cr_assert_eq(addr_from_literal(to, addr_port(&rig.at), &at), 0);
    rig.client = call(&at, from);
    take();
    cr_assert(admits(), "%s: %s", to, rig.line);
    cr_assert_eq(peer_gate_refused(rig.gate), 0);
}

TestSuite(peer_gate, .fini = rig_close);

Test(peer_gate, own_by_ipv4) { assert_own("127.0.0.1", "127.0.0.1", NULL); }
Test(peer_gate, own_by_ipv6) { assert_own("::1", "::1", NULL); }
Test(peer_gate, own_by_ipv4_to_any_address) { assert_own("0.0.0.0", "127.0.0.1", NULL); }
Test(peer_gate, own_by_mapped_ipv4) { assert_own("::", "127.0.0.1", NULL); }
Test(peer_gate, own_by_mapped_ipv4_at_both_ends) { assert_own("::", "::ffff:127.0.0.1", NULL); }
Test(peer_gate, own_by_ipv6_to_any_address) { assert_own("::", "::1", NULL); }
Test(peer_gate, own_from_another_loopback) { assert_own("127.0.0.1", "127.0.0.1", "127.0.0.9"); }

Test(peer_gate, who_writes_and_closes_is_refused) {
    rig_open("127.0.0.1");
    for (unsigned i = 0; i < 3; i++) {
        int fd = call(&rig.at, NULL);
        cr_assert_eq(write(fd, "word", 4), 4);
        (void)close(fd);
        take();
        cr_assert_not(admits());
        hang_up();
    }
    cr_assert_eq(peer_gate_refused(rig.gate), 3);
    cr_assert_eq(rig.n_lines, 1, "the rest is counted");
    assert_has(rig.line, "wrote and closed it at once");
}

Test(peer_gate, a_call_of_our_protocol_that_was_closed_is_refused_without_a_line) {
    static const char call_frame[] = "\x1c\0\0\0{\"kind\":\"CALL\",\"version\":10}";
    rig_open("127.0.0.1");
    int fd = call(&rig.at, NULL);
    cr_assert_eq(write(fd, call_frame, sizeof call_frame - 1), sizeof call_frame - 1);
    (void)close(fd);
    take();
    cr_assert_not(admits());
    cr_assert_eq(peer_gate_refused(rig.gate), 1);
    cr_assert_eq(rig.n_lines, 0, "%s", rig.line);
}

/* A reset leaves no socket at the other end, but what was written can be read. */
static void assert_reset_is_refused(const char *host, const char *from) {
    const struct linger at_once = {.l_onoff = 1};
    rig_open(host);
    int fd = call(&rig.at, from);
    cr_assert_eq(write(fd, "word", 4), 4);
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    (void)close(fd);
    take();
    cr_assert_not(admits());
}

Test(peer_gate, who_writes_and_resets_is_refused) { assert_reset_is_refused("127.0.0.1", NULL); }
Test(peer_gate, who_resets_from_another_address_is_refused) { assert_reset_is_refused("127.0.0.1", "127.0.0.9"); }
Test(peer_gate, who_resets_by_ipv6_is_refused) { assert_reset_is_refused("::1", NULL); }

Test(peer_gate, who_has_ended_its_half_is_refused) {
    rig_open("127.0.0.1");
    rig.client = call(&rig.at, NULL);
    cr_assert_eq(shutdown(rig.client, SHUT_WR), 0);
    take();
    cr_assert_not(admits());
}

Test(peer_gate, who_only_looks_is_not_told) {
    rig_open("127.0.0.1");
    (void)close(call(&rig.at, NULL));
    take();
    cr_assert_not(admits());
    cr_assert_eq(rig.n_lines, 0);
}

/* A process of that user calls; it stays until it is killed. Returns its pid. */
static pid_t call_as(uid_t uid) {
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0)
        return pid;
    if (setresuid(uid, uid, uid) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(1);
    int fd = socket(rig.at.ss.ss_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&rig.at.ss, rig.at.len) < 0 || write(fd, "word", 4) != 4)
        _exit(1);
    for (;;)
        (void)pause();
}

static void end_call(pid_t pid) {
    (void)kill(pid, SIGKILL);
    cr_assert_eq(rig_status(pid), -SIGKILL);
}

static bool admits_user(uid_t uid) {
    pid_t pid = call_as(uid);
    take();
    bool in = admits();
    end_call(pid);
    hang_up();
    return in;
}

static void need_root(void) {
    if (geteuid() != 0 || setresuid(0, 0, 0) < 0)
        cr_skip_test("only root can be another user");
}

Test(peer_gate, other_users_are_refused) {
    need_root();
    rig_open("::");
    for (unsigned i = 0; i < 3; i++)
        cr_assert_not(admits_user(OTHER));
    cr_assert_eq(rig.n_lines, 1, "each user is told once");
    assert_has(rig.line, "it belongs to uid 65533 of this machine");
    cr_assert_not(admits_user(OTHER - 1));
    cr_assert_eq(rig.n_lines, 2);
    cr_assert(admits_user(0));
    cr_assert_eq(peer_gate_refused(rig.gate), 4);
}

Test(peer_gate, many_users_do_not_fill_the_log) {
    need_root();
    rig_open("127.0.0.1");
    for (uid_t i = 0; i < PEER_GATE_USERS_MAX + 5; i++)
        cr_assert_not(admits_user(OTHER - i));
    cr_assert_eq(rig.n_lines, PEER_GATE_USERS_MAX + 1);
    cr_assert_eq(peer_gate_refused(rig.gate), PEER_GATE_USERS_MAX + 5);
}

/* In a process of another user: its gate, for root's connection and for its own. */
_Noreturn static void be_another_user(int tell) {
    if (setresuid(OTHER, OTHER, OTHER) < 0)
        _exit(1);
    rig_open("127.0.0.1");
    if (write(tell, &rig.at, sizeof rig.at) != sizeof rig.at)
        _exit(2);
    take();
    bool of_root = admits();
    hang_up();
    rig.client = call(&rig.at, NULL);
    take();
    _exit(of_root && admits() ? 0 : 3);
}

Test(peer_gate, a_user_admits_itself_and_root) {
    struct addr at;
    int told[2];
    need_root();
    cr_assert_eq(pipe(told), 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0)
        be_another_user(told[1]);
    (void)close(told[1]);
    cr_assert_eq(read(told[0], &at, sizeof at), sizeof at);
    int fd = call(&at, NULL);
    cr_assert_eq(rig_status(pid), 0);
    (void)close(fd);
}

static struct peer_owner owner_of(int fd) {
    struct addr peer;
    cr_assert_eq(addr_of_peer(fd, &peer), 0);
    return peer_gate_owner(rig.gate, fd, &peer);
}

Test(peer_gate, both_ends_are_ours) {
    rig_open("::");
    struct addr at;
    cr_assert_eq(addr_from_literal("127.0.0.1", addr_port(&rig.at), &at), 0);
    rig.client = call(&at, NULL);
    cr_assert_eq(owner_of(rig.client).kind, PEER_CLOSED, "nobody has accepted it yet");
    take();
    cr_assert_eq(owner_of(rig.client).kind, PEER_OURS);
    cr_assert_eq(owner_of(rig.accepted).kind, PEER_OURS);
    (void)close(rig.accepted);
    rig.accepted = -1;
    cr_assert_eq(owner_of(rig.client).kind, PEER_CLOSED);
    cr_assert_eq(peer_gate_refused(rig.gate), 0, "it only asks");
    cr_assert_eq(rig.n_lines, 0);
}

/* The caller's socket, as a leader elsewhere would ask for it. */
static struct peer_owner owner_of_pair(void) {
    struct addr at;
    cr_assert_eq(addr_of_socket(rig.accepted, &at), 0);
    return peer_gate_owner_of(rig.gate, &rig.peer, &at);
}

Test(peer_gate, another_user_has_its_number) {
    need_root();
    rig_open("127.0.0.1");
    pid_t pid = call_as(OTHER);
    take();
    struct peer_owner owner = owner_of(rig.accepted);
    cr_assert(owner.kind == PEER_OTHER_USER && owner.uid == OTHER);
    owner = owner_of_pair();
    cr_assert(owner.kind == PEER_OTHER_USER && owner.uid == OTHER);
    end_call(pid);
    cr_assert_eq(rig.n_lines, 0);
}

static void assert_owner_of_pair(const char *listens, const char *to) {
    struct addr at;
    rig_open(listens);
    cr_assert_eq(addr_from_literal(to, addr_port(&rig.at), &at), 0);
    rig.client = call(&at, NULL);
    take();
    cr_assert_eq(owner_of_pair().kind, PEER_OURS);
    cr_assert_eq(shutdown(rig.client, SHUT_WR), 0);
    cr_assert_eq(owner_of_pair().kind, PEER_CLOSED);
    addr_set_port(&rig.peer, addr_port(&rig.peer) ^ 1);
    cr_assert_eq(owner_of_pair().kind, PEER_ELSEWHERE, "no such socket, although one listens");
}

Test(peer_gate, owner_of_pair_ipv4) { assert_owner_of_pair("127.0.0.1", "127.0.0.1"); }
Test(peer_gate, owner_of_pair_mapped_ipv4) { assert_owner_of_pair("::", "127.0.0.1"); }
Test(peer_gate, owner_of_pair_ipv6) { assert_owner_of_pair("::1", "::1"); }

Test(peer_gate, owner_of_pair_needs_a_kernel_and_one_family) {
    struct addr v4, v6;
    cr_assert_eq(addr_from_literal("127.0.0.1", 1, &v4), 0);
    cr_assert_eq(addr_from_literal("::1", 1, &v6), 0);
    cr_assert_eq(peer_gate_owner_of(NULL, &v4, &v4).kind, PEER_UNKNOWN);
    rig_open("127.0.0.1");
    cr_assert_eq(peer_gate_owner_of(rig.gate, &v4, &v6).kind, PEER_UNKNOWN);
}

Test(peer_gate, needs_a_kernel_that_says_what_is_known) {
    struct peer_gate *none = NULL;
    struct err err = {0};
    rig_open("127.0.0.1");
    (void)shutdown(rig.listening, SHUT_RD); /* it no longer listens: the kernel does not know it */
    cr_assert_lt(peer_gate_new(rig.listening, on_line, NULL, &none, &err), 0);
    cr_assert_str_eq(err.text, "it has no sock_diag for TCP");
    cr_assert_null(none);
}

Test(peer_gate, without_one_everybody_is_admitted) {
    cr_assert(peer_gate_admits(NULL, -1, NULL));
    cr_assert_eq(peer_gate_owner(NULL, -1, NULL).kind, PEER_ELSEWHERE);
    cr_assert_eq(peer_gate_refused(NULL), 0);
}
