#include "io/net/stream.h"

#include <netinet/tcp.h>

#include "io/net/listen.h"
#include "rig/loop_rig.h"

/* One end is tested; the other is a plain socket of the test. */
struct end {
    struct loop *loop;
    struct stream *s;
    uint8_t got[4 << 20];
    size_t len, quit_at; /* quit the loop when this many bytes were read */
    size_t take;         /* bytes taken per callback; 0: all */
    unsigned calls, drained, closed;
    int code;
    bool free_in_callback, pause_in_callback;
    const char *answer; /* written when bytes were read */
};

static struct end end;
static int peer = -1;

static void on_quit_time(void *arg) { loop_quit(arg); }

static void on_readable(void *arg, struct stream *s) {
    struct end *e = arg;
    e->calls++;
    if (e->free_in_callback) {
        stream_free(s);
        e->s = NULL;
        loop_quit(e->loop);
        return;
    }
    size_t n = stream_available(s);
    if (e->take != 0 && n > e->take)
        n = e->take;
    const uint8_t *p = stream_peek(s, n);
    cr_assert_not_null(p);
    memcpy(e->got + e->len, p, n);
    e->len += n;
    stream_drain(s, n);
    if (e->pause_in_callback)
        stream_pause(s);
    if (e->answer != NULL)
        stream_write(s, e->answer, strlen(e->answer));
    if (e->len >= e->quit_at)
        loop_quit(e->loop);
}

static void on_drained(void *arg, struct stream *s) {
    struct end *e = arg;
    e->drained++;
    loop_quit(e->loop);
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct end *e = arg;
    e->closed++;
    e->code = code;
    loop_quit(e->loop);
}

static const struct stream_ops ops = {on_readable, on_drained, on_closed};

static void set_up(void) {
    int fds[2];
    cr_assert_eq(loop_new(&end.loop), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    peer = fds[1];
    end.s = stream_new(end.loop, fds[0], &ops, &end);
}

static void peer_leaves(void) {
    if (peer >= 0)
        (void)close(peer);
    peer = -1;
}

static void tear_down(void) {
    stream_free(end.s);
    loop_free(end.loop);
    peer_leaves();
}

TestSuite(stream, .init = set_up, .fini = tear_down);

static void run_until_read(size_t n) {
    end.quit_at = n;
    rig_loop_run(end.loop);
}

/* What the kernel still had; fails the test if the socket is open. */
static void assert_ended(int fd) {
    static char sink[65536];
    ssize_t n;
    while ((n = recv(fd, sink, sizeof sink, MSG_DONTWAIT)) > 0)
        ;
    cr_assert_eq(n, 0, "it is not closed");
}

static void peer_sends(const char *text) { cr_assert_eq(write(peer, text, strlen(text)), (ssize_t)strlen(text)); }

Test(stream, hands_over_what_the_peer_sent) {
    peer_sends("hello");
    run_until_read(5);
    cr_assert_arr_eq(end.got, "hello", 5);
}

/* One record of the socket for each sendmsg(). */
Test(stream, what_is_read_soon_is_answered_together_with_what_was_written_before) {
    int fds[2];
    struct stream *s;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    s = stream_new(end.loop, fds[0], &ops, &end);
    cr_assert_eq(send(fds[1], "join", 4, 0), 4);
    end.answer = " welcome";
    stream_write(s, "hello", 5);
    stream_read_soon(s);
    run_until_read(4);
    cr_assert_eq(loop_turn(end.loop), 0);
    char got[64] = "";
    cr_assert_eq(recv(fds[1], got, sizeof got, MSG_DONTWAIT), 13);
    cr_assert_str_eq(got, "hello welcome");
    stream_free(s);
    (void)close(fds[1]);
}

Test(stream, read_soon_finds_nothing_or_the_end) {
    stream_read_soon(end.s);
    cr_assert_eq(loop_turn(end.loop), 0);
    cr_assert(end.calls == 0 && end.closed == 0);
    peer_leaves();
    stream_read_soon(end.s);
    rig_loop_run(end.loop);
    cr_assert_eq(loop_turn(end.loop), 0);
    cr_assert(end.calls == 0 && end.closed == 1 && end.code == 0);
}

Test(stream, keeps_what_was_not_taken_and_joins_it_with_what_follows) {
    end.take = 2;
    peer_sends("hello");
    run_until_read(2);
    cr_assert_eq(stream_available(end.s), 3);
    cr_assert_null(stream_peek(end.s, 4));
    cr_assert_arr_eq(stream_peek(end.s, 3), "llo", 3);
    peer_sends(" you");
    end.take = 0;
    run_until_read(9);
    cr_assert_arr_eq(end.got, "hello you", 9);
    cr_assert_eq(stream_available(end.s), 0);
}

Test(stream, holds_no_more_unread_bytes_than_its_limit) {
    end.take = 1;
    end.quit_at = 1;
    stream_set_read_limit(end.s, 4);
    peer_sends("abcdefghij");
    run_until_read(1);
    cr_assert_eq(stream_available(end.s), 3);
    rig_loop_turns(end.loop, 5);
    cr_assert_leq(stream_available(end.s), 4);
    end.take = 0;
    stream_drain(end.s, 1);
    run_until_read(9);
    cr_assert_arr_eq(end.got + end.len - 2, "ij", 2);
}

Test(stream, reports_the_end_after_the_last_bytes) {
    peer_sends("bye");
    peer_leaves();
    end.quit_at = 100;
    rig_loop_run(end.loop);
    cr_assert_eq(end.closed, 1);
    cr_assert_eq(end.code, 0);
    cr_assert_arr_eq(end.got, "bye", 3);
    rig_loop_turns(end.loop, 3);
    cr_assert_eq(end.closed, 1, "told once only");
}

Test(stream, may_be_freed_in_its_own_callback) {
    end.free_in_callback = true;
    peer_sends("x");
    rig_loop_run(end.loop);
    char c;
    cr_assert_eq(read(peer, &c, 1), 0, "the socket is closed");
}

Test(stream, does_not_read_while_paused_and_goes_on_when_resumed) {
    end.pause_in_callback = true;
    end.take = 2;
    peer_sends("abcd");
    run_until_read(2);
    peer_sends("ef");
    rig_loop_turns(end.loop, 5);
    cr_assert_eq(end.len, 2);
    end.pause_in_callback = false;
    end.take = 0;
    stream_resume(end.s);
    run_until_read(6);
    cr_assert_arr_eq(end.got, "abcdef", 6);
}

Test(stream, sends_many_writes_in_order) {
    stream_write(end.s, "a", 1);
    stream_write(end.s, "bc", 2);
    stream_write(end.s, "", 0);
    stream_write(end.s, "def", 3);
    cr_assert_eq(stream_unsent(end.s), 6);
    rig_loop_run(end.loop);
    cr_assert_eq(end.drained, 1);
    char got[8];
    cr_assert_eq(read(peer, got, sizeof got), 6, "one system call's worth");
    cr_assert_arr_eq(got, "abcdef", 6);
}

static void count_release(void *arg) { ++*(int *)arg; }

Test(stream, releases_referenced_memory_once_it_was_sent) {
    static const char big[300000];
    int released = 0;
    stream_write_ref(end.s, big, sizeof big, count_release, &released);
    stream_write_ref(end.s, big, 0, count_release, &released);
    cr_assert_eq(released, 1, "nothing to send: released at once");
    cr_assert_eq(loop_turn(end.loop), 0);
    cr_assert_eq(released, 1, "the kernel cannot hold all of it");
    static char sink[65536];
    size_t got = 0;
    while (got < sizeof big) {
        ssize_t n = recv(peer, sink, sizeof sink, MSG_DONTWAIT);
        if (n > 0)
            got += (size_t)n;
        cr_assert_eq(loop_turn(end.loop), 0);
    }
    cr_assert_eq(released, 2);
    cr_assert_eq(end.drained, 1);
}

Test(stream, releases_referenced_memory_when_freed_unsent) {
    static const char big[3000000];
    int released = 0;
    stream_write_ref(end.s, big, sizeof big, count_release, &released);
    cr_assert_eq(loop_turn(end.loop), 0);
    stream_free(TAKE_PTR(end.s));
    cr_assert_eq(loop_turn(end.loop), 0);
    cr_assert_eq(released, 1);
}

Test(stream, reports_a_broken_connection_when_writing_without_a_signal) {
    peer_leaves();
    stream_pause(end.s);
    stream_write(end.s, "x", 1);
    rig_loop_run(end.loop);
    cr_assert_eq(end.closed, 1);
    cr_assert_eq(end.code, -EPIPE);
}

Test(stream, reads_what_the_peer_said_before_a_write_failed) {
    peer_sends("last words");
    peer_leaves();
    stream_write(end.s, "x", 1);
    end.quit_at = 100;
    rig_loop_run(end.loop);
    cr_assert_arr_eq(end.got, "last words", 10);
    cr_assert_eq(end.closed, 1);
}

Test(stream, finish_sends_what_is_queued_and_then_closes) {
    static const char big[1000000] = "begin";
    stream_write_ref(end.s, big, sizeof big, NULL, NULL);
    stream_finish(TAKE_PTR(end.s), clock_now_ns() + 10 * NS_PER_S);
    static char sink[65536];
    size_t got = 0;
    for (;;) {
        ssize_t n = recv(peer, sink, sizeof sink, MSG_DONTWAIT);
        if (n == 0)
            break;
        if (n > 0)
            got += (size_t)n;
        cr_assert_eq(loop_turn(end.loop), 0);
    }
    cr_assert_eq(got, sizeof big);
    cr_assert_eq(end.closed + end.drained, 0, "no callbacks");
}

Test(stream, finish_closes_at_its_deadline_when_the_peer_takes_nothing) {
    static const char big[3000000];
    stream_write_ref(end.s, big, sizeof big, NULL, NULL);
    stream_finish(TAKE_PTR(end.s), clock_now_ns() + 20 * NS_PER_MS);
    struct loop_timer *later = loop_timer_new(end.loop, on_quit_time, end.loop);
    loop_timer_set(later, clock_now_ns() + 60 * NS_PER_MS);
    rig_loop_run(end.loop);
    loop_timer_free(later);
    assert_ended(peer);
}

static int listen_here(struct addr *ret) {
    int fd;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, ret), 0);
    cr_assert_eq(listen_socket(ret, 8, &fd, NULL), 0);
    cr_assert_eq(addr_of_socket(fd, ret), 0);
    return fd;
}

static int accepted = -1;
static void on_accept(void *arg, int fd, const struct addr *from) {
    cr_assert(addr_is_loopback(from));
    accepted = fd;
    if (end.quit_at == 0)
        loop_quit(end.loop);
}

Test(stream, connects_and_sends_what_was_written_before) {
    struct addr at;
    struct listener *l;
    l = listener_new(end.loop, listen_here(&at), on_accept, NULL);
    struct stream *s;
    cr_assert_eq(stream_connect(end.loop, NULL, &at, &ops, &end, &s), 0);
    stream_write(s, "early", 5);
    while (end.drained == 0 || accepted < 0)
        rig_loop_run(end.loop);
    char got[8];
    cr_assert_eq(read(accepted, got, sizeof got), 5);
    cr_assert_arr_eq(got, "early", 5);
    stream_free(s);
    listener_free(l);
    (void)close(accepted);
}

static int tcp_option(const struct stream *s, int level, int option) {
    int value = -1;
    socklen_t len = sizeof value;
    cr_assert_eq(getsockopt(stream_fd(s), level, option, &value, &len), 0);
    return value;
}

Test(stream, patience_is_set_where_it_is_tcp) {
    struct addr at;
    int fd = listen_here(&at);
    struct stream *s;
    cr_assert_eq(stream_connect(end.loop, NULL, &at, &ops, &end, &s), 0);
    stream_set_patience(s, 5 * NS_PER_S, 2500 * NS_PER_MS);
    cr_assert_eq(tcp_option(s, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
    cr_assert_eq(tcp_option(s, IPPROTO_TCP, TCP_KEEPIDLE), 3, "whole seconds, rounded up");
    cr_assert_neq(tcp_option(s, SOL_SOCKET, SO_KEEPALIVE), 0);
    stream_set_patience(s, 1, UINT64_MAX / 2);
    cr_assert_eq(tcp_option(s, IPPROTO_TCP, TCP_USER_TIMEOUT), 1, "0 would be the default");
    cr_assert_eq(tcp_option(s, IPPROTO_TCP, TCP_KEEPIDLE), 32767);
    stream_free(s);
    (void)close(fd);
}

Test(stream, reports_a_refused_connection_by_its_errno) {
    struct addr at;
    (void)close(listen_here(&at)); /* now nothing listens there */
    struct stream *s;
    cr_assert_eq(stream_connect(end.loop, NULL, &at, &ops, &end, &s), 0);
    cr_assert_eq(end.closed, 0, "never from inside the call");
    rig_loop_run(end.loop);
    cr_assert_eq(end.code, -ECONNREFUSED);
    stream_free(s);
}

/* connect() itself fails, and the user sets up the stream before that can be reported. */
Test(stream, reports_why_it_cannot_connect_whatever_is_set_meanwhile) {
    static const struct {
        const char *to;
        uint16_t port;
        int code;
    } cases[] = {
        {"255.255.255.255", 9, -ENETUNREACH}, /* a stream cannot be broadcast */
        {"224.0.0.1", 9, -ENETUNREACH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct addr at;
        struct stream *s;
        cr_assert_eq(addr_from_literal(cases[i].to, cases[i].port, &at), 0);
        cr_assert_eq(stream_connect(end.loop, NULL, &at, &ops, &end, &s), 0);
        stream_set_priority(s, LOOP_PRIO_LEASE);
        stream_set_read_limit(s, 100);
        stream_pause(s);
        stream_resume(s);
        stream_write(s, "x", 1);
        rig_loop_run(end.loop);
        cr_expect_eq(end.code, cases[i].code, "%s: %s", cases[i].to, strerror(-end.code));
        stream_free(s);
    }
}

Test(stream, freeing_the_loop_ends_what_is_still_finishing) {
    static const char big[3000000];
    struct stream_ops none = {0};
    struct loop *loop;
    struct stream *s;
    int fds[2];
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    s = stream_new(loop, fds[0], &none, NULL);
    stream_write_ref(s, big, sizeof big, NULL, NULL); /* more than the kernel accepts */
    stream_finish(s, clock_now_ns() + 3600 * NS_PER_S);
    loop_free(loop);
    assert_ended(fds[1]);
    (void)close(fds[1]);
}
