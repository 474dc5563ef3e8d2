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

Test(waits, reads_a_connection_back) {
    struct waits_ends e;
    cr_assert(waits_connection("tcp [::1]:4242 -> 10.0.0.2:29500, 5 bytes unsent", &e));
    cr_expect_str_eq(e.own, "[::1]");
    cr_expect_str_eq(e.other, "10.0.0.2");
    cr_expect(e.own_port == 4242 && e.other_port == 29500);
    cr_expect_not(waits_connection("tcp 127.0.0.1:80 listening", &e));
    cr_expect_not(waits_connection("pipe", &e));
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
