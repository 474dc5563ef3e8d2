#include "watchdog/evidence/waits.h"

#include <asm/unistd.h>

#include "rig/unit.h"

Test(waits, reads_a_system_call) {
    struct waits_call c;
    static const char text[] = "0 0x5 0x7f1e4c0 0x1 0x0 0x0 0x0 0x7ffd5 0x7f1e\n";
    cr_assert(waits_call_read(text, sizeof text - 1, &c));
    cr_expect(c.number == 0 && c.args[0] == 5 && c.args[1] == 0x7f1e4c0);
    cr_expect(c.stack == 0x7ffd5 && c.code == 0x7f1e);
    cr_assert(waits_call_read("-1 0x7ffd5 0x7f1e", 17, &c));
    cr_expect_eq(c.number, -1);
    cr_expect_not(waits_call_read("running\n", 8, &c));
    cr_expect_not(waits_call_read("", 0, &c));
}

Test(waits, names_a_system_call) {
    cr_expect_str_eq(waits_call_name(__NR_read), "read");
    cr_expect_str_eq(waits_call_name(__NR_futex), "futex");
    cr_expect_null(waits_call_name(100000));
    cr_expect_eq(waits_kind(__NR_read), WAITS_DATA);
    cr_expect_eq(waits_kind(__NR_write), WAITS_FD);
    cr_expect_eq(waits_kind(__NR_ppoll), WAITS_POLL);
    cr_expect_eq(waits_kind(__NR_wait4), WAITS_CHILD);
    cr_expect_eq(waits_kind(__NR_execve), WAITS_PATH);
    cr_expect_eq(waits_kind(__NR_openat), WAITS_PATH_AT);
    cr_expect_eq(waits_kind(100000), WAITS_OTHER);
}

Test(waits, says_what_a_descriptor_is) {
    static const struct {
        const char *link, *target;
    } cases[] = {
        {"pipe:[17]", "pipe"},
        {"socket:[17]", "socket"},
        {"anon_inode:[eventpoll]", "eventpoll"},
        {"anon_inode:inotify", "inotify"},
        {"/data/train.bin", "/data/train.bin"},
        {"/a\xff", "/a\xef\xbf\xbd"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[64];
        waits_target(cases[i].link, text, sizeof text);
        cr_expect_str_eq(text, cases[i].target);
    }
    cr_expect_eq(waits_socket_inode("socket:[17]"), 17);
    cr_expect_eq(waits_socket_inode("pipe:[17]"), 0);
}

static const char table[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:7275 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100 0 0 10 0\n"
    "   1: 0100007F:7275 0200007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0 20 4 30 10 -1\n"
    "   2: 0100007F:7275 0200007F:A002 01 00000010:00000000 00:00000000 00000000     0        0 43 1 0 20 4 30 10 -1\n"
    "   3: 0000000000000000FFFF00000100007F:7275 0000000000000000FFFF00000200007F:A002 08 00000000:00000000 "
    "00:00000000 00000000     0        0 44 1\n"
    "   4: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 "
    "00:00000000 00000000     0        0 45 1\n";

Test(waits, finds_connections_to_a_port) {
    uint64_t inodes[4];
    cr_assert_eq(waits_connected(table, sizeof table - 1, 40961, inodes, 4), 1);
    cr_expect_eq(inodes[0], 42);
    cr_assert_eq(waits_connected(table, sizeof table - 1, 40962, inodes, 4), 1, "the other one is being closed");
    cr_expect_eq(inodes[0], 43);
    cr_expect_eq(waits_connected(table, sizeof table - 1, 40962, inodes, 0), 0);
    cr_expect_eq(waits_connected(table, sizeof table - 1, 0, inodes, 4), 0, "who listens is not connected");
    cr_expect_eq(waits_connected("", 0, 40962, inodes, 4), 0);
}

Test(waits, reads_a_connection_back) {
    struct waits_ends e;
    cr_assert(waits_connection("tcp [0:0:0:0:0:0:0:1]:4242 -> 10.0.0.2:29500, 5 bytes unsent", &e));
    cr_expect_str_eq(e.own, "[0:0:0:0:0:0:0:1]");
    cr_expect_str_eq(e.other, "10.0.0.2");
    cr_expect(e.own_port == 4242 && e.other_port == 29500);
    cr_expect_not(waits_connection("tcp 127.0.0.1:80 listening", &e));
    cr_expect_not(waits_connection("pipe", &e));
}

Test(waits, closed_connections_are_dropped) {
    static const char wait[] =
        "  17: 0100007F:A0F2 0100007F:7275 06 00000000:00000000 03:0000171F 00000000     0        0 0 3 0000\n"
        "4711: 0000000000000000FFFF00000100007F:7275 0000000000000000FFFF00000200007F:A002 06 00000000:00000000 "
        "03:0000171F 00000000     0        0 0 3\n";
    for (size_t end = 0; end < sizeof wait; end++) { /* the text may end anywhere */
        char text[2 * sizeof table + sizeof wait];
        const char *whole = memchr(wait, '\n', end) == NULL ? wait : (const char *)memchr(wait, '\n', sizeof wait) + 1;
        size_t kept = end == sizeof wait - 1 ? 0 : (size_t)(wait + end - whole);
        (void)snprintf(text, sizeof text, "%s%.*s", table, (int)end, wait);
        const char *want = rig_text("%s%.*s", table, (int)kept, whole);
        text[waits_drop_closed(text, strlen(text))] = '\0';
        cr_assert_str_eq(text, want, "%zu", end);
    }
}

Test(waits, finds_a_socket) {
    static const struct {
        uint64_t inode;
        const char *text;
    } cases[] = {
        {41, "tcp 127.0.0.1:29301 listening"},
        {42, "tcp 127.0.0.1:29301 -> 127.0.0.2:40961 established"},
        {43, "tcp 127.0.0.1:29301 -> 127.0.0.2:40962, 16 bytes unsent"},
        {44, "tcp 127.0.0.1:29301 -> 127.0.0.2:40962 close-wait"},
        {45, "tcp [0:0:0:0:0:0:0:1]:80 listening"},
    };
    char text[WAITS_SOCKET_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert(waits_socket(table, sizeof table - 1, cases[i].inode, text), "%zu", i);
        cr_expect_str_eq(text, cases[i].text);
    }
    cr_expect_not(waits_socket(table, sizeof table - 1, 4, text));
    cr_expect_not(waits_socket(table, 150, 42, text));
    cr_expect_not(waits_socket("", 0, 42, text));
}

Test(waits, knows_who_waits_for_nothing_but_time) {
    cr_expect(waits_for_time(&(struct waits_call){.number = __NR_clock_nanosleep}));
    cr_expect(waits_for_time(&(struct waits_call){.number = __NR_pselect6}));
    cr_expect_not(waits_for_time(&(struct waits_call){.number = __NR_pselect6, .args = {4}}));
    cr_expect(waits_for_time(&(struct waits_call){.number = __NR_ppoll}));
    cr_expect_not(waits_for_time(&(struct waits_call){.number = __NR_ppoll, .args = {0x7f00, 1}}));
    cr_expect_not(waits_for_time(&(struct waits_call){.number = __NR_futex}));
    cr_expect(waits_for_time(&(struct waits_call){.number = __NR_futex, .args = {1, 0x189, 0, 0x7f00}}));
    cr_expect(waits_for_time(&(struct waits_call){.number = __NR_futex, .args = {1, 0x80, 0, 0x7f00}}));
    cr_expect_not(waits_for_time(&(struct waits_call){.number = __NR_futex, .args = {1, 0x189, 0, 0}}));
    cr_expect_not(waits_for_time(&(struct waits_call){.number = __NR_futex, .args = {1, 0x81, 0, 0x7f00}}));
}
