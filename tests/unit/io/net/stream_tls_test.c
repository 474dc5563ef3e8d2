#include <openssl/ssl.h>

#include "io/clock.h"
#include "io/net/stream.h"
#include "rig/unit.h"
#include "tls_rig.h"

/* The test's: no callback has time for more. */
static bool no_time;
bool __real_loop_slice_is_over(const struct loop *loop);
bool __wrap_loop_slice_is_over(const struct loop *loop);
bool __wrap_loop_slice_is_over(const struct loop *loop) { return no_time || __real_loop_slice_is_over(loop); }

TestSuite(stream_tls, .init = rig_set_up, .fini = rig_tear_down);

static char big[1000000];

static void fill_big(void) {
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 2654435761u >> 13);
}

static void secured_foreign(void) {
    rig_start_one(&acc);
    foreign_new(false);
    foreign_begin();
    foreign_secure(&acc);
}

/* What waits in the socket of this end, which must be paused: the lengths of its records, or 0. */
static unsigned records_at(const struct end *e, size_t lens[], unsigned max) {
    static uint8_t raw[1 << 20];
    ssize_t n = recv(stream_fd(e->s), raw, sizeof raw, MSG_PEEK | MSG_DONTWAIT);
    unsigned found = 0;
    for (size_t at = 0; n > 0 && at + 5 <= (size_t)n && found < max; found++) {
        lens[found] = (size_t)raw[at + 3] << 8 | raw[at + 4];
        at += 5 + lens[found];
    }
    return found;
}

Test(stream_tls, begins_after_bytes_in_clear_and_with_what_came_behind_them) {
    rig_pair();
    rig_start_when_read(&acc, 5);
    stream_write(con.s, "knock", 5);
    rig_start(&con); /* its first record comes together with the knock */
    stream_write(con.s, "secret", 6);
    rig_until(acc.len == 11);
    cr_assert_arr_eq(acc.got, "knocksecret", 11);
    cr_assert(acc.secured == 1 && con.secured == 1);
    cr_assert(stream_is_secured(acc.s) && stream_is_secured(con.s));
}

Test(stream_tls, what_was_written_before_is_sent_in_clear) {
    rig_one(&acc);
    stream_write(acc.s, "greeting", 8);
    rig_start(&acc);
    stream_write(acc.s, "secret", 6);
    cr_assert_eq(stream_unsent(acc.s), 14);
    rig_turns(3);
    char got[32];
    cr_assert_eq(recv(rig_peer, got, sizeof got, MSG_DONTWAIT), 8);
    cr_assert_arr_eq(got, "greeting", 8);
    cr_assert_eq(stream_unsent(acc.s), 6);
    cr_assert_eq(stream_is_secured(acc.s), false);
}

Test(stream_tls, writes_wait_for_the_handshake_and_are_told_to_be_gone) {
    rig_pair();
    acc.leave = true;
    rig_start(&con);
    stream_write(con.s, "one", 3);
    stream_write(con.s, "two", 3);
    rig_turns(5);
    cr_assert_eq(con.drained, 0, "only the handshake was sent");
    cr_assert_eq(stream_unsent(con.s), 6);
    acc.leave = false;
    rig_start(&acc); /* with what has come */
    rig_until(acc.len == 6);
    cr_assert_arr_eq(acc.got, "onetwo", 6);
    cr_assert_eq(con.drained, 1);
    cr_assert_eq(acc.drained, 0, "it has written nothing");
}

Test(stream_tls, many_writes_of_a_turn_are_one_record) {
    size_t lens[8];
    rig_secured_pair();
    stream_pause(acc.s);
    for (int i = 0; i < 100; i++)
        stream_write(con.s, "0123456789", 10);
    stream_write_ref(con.s, "abc", 3, NULL, NULL);
    rig_turn();
    cr_assert_eq(records_at(&acc, lens, 8), 1);
    cr_assert_eq(lens[0], 1003 + 17, "the kind, and the tag");
    stream_write(con.s, big, 20000);
    rig_turn();
    cr_assert_eq(records_at(&acc, lens, 8), 3);
    cr_assert(lens[1] == 16384 + 17 && lens[2] == 20000 - 16384 + 17);
    stream_resume(acc.s);
    rig_until(acc.len == 21003);
}

static void count_release(void *arg) { ++*(int *)arg; }

Test(stream_tls, much_in_both_directions_at_once_arrives_as_it_was) {
    int released = 0;
    fill_big();
    rig_secured_pair();
    stream_write(acc.s, "a", 1);
    stream_write_ref(acc.s, big, sizeof big, count_release, &released);
    stream_write(con.s, "c", 1);
    stream_write_ref(con.s, big, sizeof big, count_release, &released);
    rig_until(acc.len == sizeof big + 1 && con.len == sizeof big + 1);
    cr_assert_arr_eq(acc.got + 1, big, sizeof big);
    cr_assert_arr_eq(con.got + 1, big, sizeof big);
    rig_until(acc.drained == 1 && con.drained == 1);
    cr_assert_eq(released, 2);
    cr_assert_eq(stream_unsent(acc.s), 0);
}

Test(stream_tls, without_time_one_record_is_read_at_once_and_all_in_the_end) {
    size_t lens[8];
    rig_secured_pair();
    stream_pause(acc.s);
    for (int i = 0; i < 5; i++) {
        stream_write(con.s, "record", 6);
        rig_turn();
    }
    cr_assert_eq(records_at(&acc, lens, 8), 5);
    no_time = true;
    stream_resume(acc.s);
    rig_until(acc.len == 30);
    cr_assert_eq(acc.calls, 5);
    fill_big();
    stream_write_ref(con.s, big, 500000, NULL, NULL);
    rig_until(acc.len == 500030);
    cr_assert_arr_eq(acc.got + 30, big, 500000);
    no_time = false;
}

Test(stream_tls, holds_no_more_plain_bytes_than_its_limit) {
    fill_big();
    rig_secured_pair();
    int released = 0;
    stream_set_read_limit(acc.s, 1000);
    acc.leave = true;
    stream_write_ref(con.s, big, sizeof big, count_release, &released);
    rig_turns(30);
    cr_assert_eq(released, 0, "not all of it is encrypted");
    cr_assert_eq(stream_available(acc.s), 1000);
    cr_assert_gt(stream_unsent(con.s), sizeof big / 2, "and the rest waits at the other side");
    acc.leave = false;
    acc.take = 7;
    stream_drain(acc.s, 400); /* makes room */
    for (int i = 0; i < 20; i++) {
        rig_turn();
        cr_assert_leq(stream_available(acc.s), 1000);
    }
    cr_assert_gt(acc.len, 0);
    acc.take = 0;
    rig_until(acc.len == sizeof big - 400);
    cr_assert_arr_eq(acc.got, big + 400, sizeof big - 400);
}

Test(stream_tls, does_not_read_while_paused_and_goes_on_when_resumed) {
    rig_secured_pair();
    acc.pause_when_readable = true;
    acc.take = 2;
    stream_write(con.s, "abcd", 4);
    rig_until(acc.len == 2);
    stream_write(con.s, "ef", 2);
    rig_turns(5);
    cr_assert_eq(acc.len, 2);
    acc.pause_when_readable = false;
    acc.take = 0;
    stream_resume(acc.s);
    rig_until(acc.len == 6);
    cr_assert_arr_eq(acc.got, "abcdef", 6);
}

Test(stream_tls, the_handshake_goes_on_while_paused) {
    rig_pair();
    stream_pause(acc.s);
    rig_start(&acc);
    rig_start(&con);
    stream_write(con.s, "later", 5);
    rig_until(acc.secured && con.secured && stream_unsent(con.s) == 0);
    rig_turns(5);
    cr_assert_eq(acc.calls, 0);
    stream_resume(acc.s);
    rig_until(acc.len == 5);
}

Test(stream_tls, what_was_left_is_reported_again_when_asked) {
    rig_secured_pair();
    acc.take = 1;
    stream_write(con.s, "ab", 2);
    rig_until(acc.len == 1);
    cr_assert_arr_eq(stream_peek(acc.s, 1), "b", 1);
    stream_read_later(acc.s);
    rig_until(acc.len == 2);
}

Test(stream_tls, finish_sends_what_waits_also_if_the_handshake_is_not_done) {
    fill_big();
    rig_start_pair();
    stream_write_ref(con.s, big, sizeof big, NULL, NULL);
    stream_finish(TAKE_PTR(con.s), clock_now_ns() + 10 * NS_PER_S);
    rig_ends(&acc, 0);
    cr_assert_eq(acc.len, sizeof big);
    cr_assert_arr_eq(acc.got, big, sizeof big);
    cr_assert_eq(con.secured + con.closed + con.drained, 0, "no callbacks");
}

Test(stream_tls, finish_says_the_end) {
    size_t lens[8];
    rig_secured_pair();
    stream_pause(acc.s);
    stream_write(con.s, "bye", 3);
    stream_finish(TAKE_PTR(con.s), clock_now_ns() + 10 * NS_PER_S);
    rig_turn();
    cr_assert_eq(records_at(&acc, lens, 8), 2);
    cr_assert_eq(lens[1], 2 + 17, "close_notify");
    stream_resume(acc.s);
    rig_ends(&acc, 0);
    cr_assert_arr_eq(acc.got, "bye", 3);
    rig_turns(3);
    cr_assert_eq(acc.closed, 1);
}

Test(stream_tls, finish_with_nothing_to_send_ends_at_once_also_in_the_handshake) {
    rig_start_pair();
    stream_finish(TAKE_PTR(con.s), clock_now_ns() + 10 * NS_PER_S);
    rig_until(acc.closed);
    cr_assert_eq(acc.secured, 0);
}

Test(stream_tls, finish_closes_at_its_deadline_when_the_peer_does_not_answer) {
    rig_start_one(&con);
    stream_write(con.s, "x", 1);
    stream_finish(TAKE_PTR(con.s), clock_now_ns() + 20 * NS_PER_MS);
    uint8_t got[4096];
    ssize_t n;
    do {
        rig_turn();
        n = recv(rig_peer, got, sizeof got, MSG_DONTWAIT);
    } while (n != 0);
}

/* The end is reported after the last bytes, also if these are taken slowly. */
Test(stream_tls, the_end_waits_until_unread_bytes_were_reported) {
    rig_secured_pair();
    acc.pause_when_readable = true;
    acc.take = 3;
    stream_write(con.s, "abcdef", 6);
    stream_finish(TAKE_PTR(con.s), clock_now_ns() + 10 * NS_PER_S);
    rig_until(acc.len == 3);
    rig_turns(5);
    cr_assert_eq(acc.closed, 0);
    stream_resume(acc.s);
    rig_until(acc.len == 6);
    cr_assert_eq(acc.closed, 0);
    stream_resume(acc.s);
    rig_until(acc.closed);
    cr_assert_arr_eq(acc.got, "abcdef", 6);
}

/* The peer goes on with nothing: neither is told by the socket. */
Test(stream_tls, an_end_or_an_error_behind_data_is_told_when_the_data_is_taken) {
    uint8_t records[64];
    for (int good = 0; good < 2; good++) {
        secured_foreign();
        size_t n = foreign_record(0, SSL3_RT_APPLICATION_DATA, "data", 4, records);
        n += foreign_record(1, SSL3_RT_ALERT, "\1", 2, records + n); /* warning, close_notify */
        records[n - 1] ^= good ? 0 : 1;
        acc.pause_when_readable = true;
        acc.take = 2;
        cr_assert_eq(write(rig_peer, records, n), (ssize_t)n);
        rig_until(acc.len == 2);
        rig_turns(5);
        cr_assert_eq(acc.closed, 0);
        stream_resume(acc.s);
        rig_until(acc.len == 4);
        rig_turns(5);
        cr_assert_eq(acc.closed, 0, "it is paused again");
        stream_resume(acc.s);
        rig_until(acc.closed);
        cr_assert_eq(acc.code, good ? 0 : -EPROTO);
        cr_assert_arr_eq(acc.got, "data", 4);
    }
}

Test(stream_tls, an_end_without_close_notify_is_an_end) {
    rig_secured_pair();
    stream_write(con.s, "last", 4);
    rig_turn();
    stream_free(TAKE_PTR(con.s));
    rig_ends(&acc, 0);
    cr_assert_arr_eq(acc.got, "last", 4);
    cr_assert_null(stream_tls_why(acc.s));
}

Test(stream_tls, an_end_inside_a_record_is_an_error) {
    uint8_t record[64];
    secured_foreign();
    size_t n = foreign_record(0, SSL3_RT_APPLICATION_DATA, "cut", 3, record);
    cr_assert_eq(write(rig_peer, record, n - 1), (ssize_t)n - 1);
    rig_peer_leaves();
    rig_ends(&acc, -EPROTO);
    cr_assert_eq(acc.len, 0);
    cr_assert_str_eq(stream_tls_why(acc.s), "the connection ended inside a TLS record");
}

Test(stream_tls, a_peer_that_has_closed_its_half_still_reads) {
    char got[16];
    secured_foreign();
    cr_assert_eq(SSL_write(foreign.ssl, "ask", 3), 3);
    cr_assert_eq(SSL_shutdown(foreign.ssl), 0);
    cr_assert_eq(shutdown(rig_peer, SHUT_WR), 0);
    rig_ends(&acc, 0);
    cr_assert_arr_eq(acc.got, "ask", 3);
    stream_write(acc.s, "answer", 6);
    rig_until(stream_unsent(acc.s) == 0);
    cr_assert_eq(SSL_read(foreign.ssl, got, sizeof got), 6);
    stream_finish(TAKE_PTR(acc.s), clock_now_ns() + NS_PER_S);
    cr_assert_eq(SSL_read(foreign.ssl, got, sizeof got), 0);
    cr_assert_eq(SSL_get_error(foreign.ssl, 0), SSL_ERROR_ZERO_RETURN, "it said the end, too");
}

Test(stream_tls, is_freed_in_any_state_and_in_its_callbacks) {
    rig_start_pair();
    con.free_when_secured = true;
    stream_write_ref(con.s, big, 1000, NULL, NULL);
    rig_until(acc.closed);
    cr_assert_null(con.s);
    rig_one(&con);
    rig_peer_leaves();
    rig_start(&con);
    stream_free(TAKE_PTR(con.s)); /* before the handshake */
    rig_turns(2);
}

/* --- what is no TLS of ours -----------------------------------------------------------------------------------------
 */

static void peer_sends(const void *data, size_t len) { cr_assert_eq(write(rig_peer, data, len), (ssize_t)len); }

Test(stream_tls, plain_text_in_place_of_tls_is_refused_at_once) {
    static const char *const texts[] = {"GET / HTTP/1.0\r\n\r\n",
                                        "SSH-2.0-x\r\n",
                                        "\x40\0\0\0{\"kind\":\"hello\"}",
                                        "\x16\x02",
                                        "\x15\x03\x01\xff\xff",
                                        "\x80\x2e\x01\x03\x01",
                                        "\0\0\0\0\0\0\0\0\0\0"};
    static const size_t lens[] = {18, 11, 20, 2, 5, 5, 10};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(texts); i++) {
        struct end *e = i % 2 == 0 ? &acc : &con;
        rig_start_one(e);
        peer_sends(texts[i / 2], lens[i / 2]);
        rig_turns(5);
        cr_assert(e->closed == 1 || i / 2 == 3 || i / 2 == 5, "%zu", i);
        rig_peer_leaves(); /* the short ones */
        rig_until(e->closed);
        cr_assert(e->code == -EKEYREJECTED || ((e->code == 0 || e->code == -ECONNRESET) && (i / 2 == 3 || i / 2 == 5)),
                  "%zu: %d", i, e->code);
        cr_assert_not_null(stream_tls_why(e->s));
        cr_assert_eq(e->secured + e->calls, 0);
    }
}

Test(stream_tls, a_refused_peer_is_sent_the_alert) {
    uint8_t got[64];
    rig_start_one(&acc);
    peer_sends("\x16\x03\x01\0\4junk", 9);
    rig_until(acc.closed);
    cr_assert_eq(recv(rig_peer, got, sizeof got, MSG_DONTWAIT), 7);
    cr_assert_eq(got[0], SSL3_RT_ALERT);
}

Test(stream_tls, silence_is_waited_for_and_an_end_in_the_handshake_is_an_end) {
    rig_start_one(&acc);
    rig_turns(10);
    cr_assert_eq(acc.closed, 0);
    cr_assert_eq(stream_unsent(acc.s), 0);
    rig_peer_leaves();
    rig_ends(&acc, 0);
    cr_assert_str_eq(stream_tls_why(acc.s), "the connection ended in the TLS handshake");
}

/* Somebody between the two forwards one byte in each turn. */
static void relayed_pair(void) {
    rig_start_one(&acc);
    int peer = rig_peer;
    rig_peer = -1;
    rig_start_one(&con);
    stream_write(con.s, "from c", 6);
    stream_write(acc.s, "from a", 6);
    const int from[] = {peer, rig_peer}, to[] = {rig_peer, peer};
    while (acc.len < 6 || con.len < 6) {
        rig_turn();
        for (int i = 0; i < 2; i++) {
            uint8_t byte;
            if (recv(from[i], &byte, 1, MSG_DONTWAIT) == 1)
                cr_assert_eq(write(to[i], &byte, 1), 1);
        }
    }
    (void)close(peer);
}

Test(stream_tls, bytes_that_come_one_by_one_are_understood) {
    relayed_pair();
    cr_assert_arr_eq(acc.got, "from c", 6);
    cr_assert_arr_eq(con.got, "from a", 6);
    rig_ends(&acc, 0);
}

Test(stream_tls, a_changed_byte_breaks_the_session) {
    uint8_t record[64];
    size_t n = 64;
    for (size_t i = 0; i < n; i++) {
        secured_foreign();
        n = foreign_record(0, SSL3_RT_APPLICATION_DATA, "data", 4, record);
        record[i] ^= i == 3 ? 0x80 : 1; /* a length that none has; else longer by one, or shorter */
        peer_sends(record, n);
        peer_sends("", 1); /* completes a record that claims to be longer */
        rig_until(acc.closed);
        cr_assert_eq(acc.code, -EPROTO, "byte %zu: %d", i, acc.code);
        cr_assert_eq(acc.len, 0);
        cr_assert_not_null(stream_tls_why(acc.s));
    }
}

/* --- floods ---------------------------------------------------------------------------------------------------------
 */

Test(stream_tls, new_keys_are_taken_and_answered_but_not_without_end) {
    char got[16];
    secured_foreign();
    for (size_t i = 0; i < 100; i++) {
        cr_assert_eq(SSL_key_update(foreign.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_write(foreign.ssl, "data", 4), 4);
        rig_until(acc.len == 4 * (i + 1));
        stream_write(acc.s, "back", 4);
        rig_until(stream_unsent(acc.s) == 0);
        cr_assert_eq(SSL_read(foreign.ssl, got, sizeof got), 4);
    }
    for (int i = 0; i < 200 && !acc.closed; i++) {
        cr_assert_eq(SSL_key_update(foreign.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(foreign.ssl), 1);
        rig_turn();
    }
    rig_ends(&acc, -EPROTO);
    cr_assert_str_eq(stream_tls_why(acc.s), "the other side sends only records without data");
}

Test(stream_tls, a_peer_that_asks_for_new_keys_and_reads_no_answer_is_dropped) {
    size_t most = 0;
    secured_foreign();
    for (int i = 0; i < 200000 && !acc.closed; i++) {
        if (SSL_key_update(foreign.ssl, SSL_KEY_UPDATE_REQUESTED) == 1)
            (void)SSL_write(foreign.ssl, "x", 1);
        rig_turn();
        most = MAX2(most, stream_unsent(acc.s));
    }
    cr_assert_eq(acc.closed, 1);
    cr_assert_eq(acc.code, -EPROTO);
    cr_assert_str_eq(stream_tls_why(acc.s), "the other side asks for answers and does not read them");
    cr_assert_lt(most, 32768);
}

Test(stream_tls, records_without_data_are_taken_but_not_without_end) {
    uint8_t record[64];
    secured_foreign();
    uint64_t n = 0;
    for (; n < 20; n++)
        peer_sends(record, foreign_record(n, SSL3_RT_APPLICATION_DATA, NULL, 0, record));
    peer_sends(record, foreign_record(n++, SSL3_RT_APPLICATION_DATA, "data", 4, record));
    rig_until(acc.len == 4);
    for (uint64_t end = n + 200; n < end && !acc.closed; n++)
        peer_sends(record, foreign_record(n, SSL3_RT_APPLICATION_DATA, NULL, 0, record));
    rig_ends(&acc, -EPROTO);
}

/* In the handshake they are allowed, in clear, and mean nothing (RFC 8446 §5). */
Test(stream_tls, a_handshake_of_meaningless_records_ends) {
    uint8_t hello[4096];
    static const uint8_t nothing[] = {SSL3_RT_CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1};
    rig_start_one(&con);
    ssize_t n;
    do
        rig_turn();
    while ((n = recv(rig_peer, hello, sizeof hello, MSG_DONTWAIT)) <= 0);
    rig_start_one(&acc);
    peer_sends(hello, (size_t)n);
    for (int i = 0; i < 500 && !acc.closed; i++) {
        if (write(rig_peer, nothing, sizeof nothing) < 0)
            break;
        rig_turn();
    }
    cr_assert_eq(acc.closed, 1);
    cr_assert_eq(acc.code, -EKEYREJECTED);
}

/* A message of the handshake that comes in two parts: nothing can be encrypted in between. */
Test(stream_tls, a_later_message_of_the_handshake_may_come_in_parts) {
    uint8_t record[64];
    static const uint8_t key_update[] = {24, 0, 0, 1, 0};
    secured_foreign();
    peer_sends(record, foreign_record(0, SSL3_RT_HANDSHAKE, key_update, 4, record));
    rig_turns(3);
    stream_write(acc.s, "waits", 5);
    stream_write(acc.s, "too", 3);
    rig_turns(5);
    cr_assert_eq(stream_unsent(acc.s), 8);
    peer_sends(record, foreign_record(1, SSL3_RT_HANDSHAKE, key_update + 4, 1, record));
    rig_until(stream_unsent(acc.s) == 0);
    char got[16];
    cr_assert_eq(SSL_read(foreign.ssl, got, sizeof got), 8);
    cr_assert_eq(acc.closed, 0);
}
