#include "launcher/ssh/ssh_wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/frame.h"

static const uint8_t *bytes_of(const struct strbuf *s) { return (const uint8_t *)strbuf_text(s); }

/* Adds it, checks that no beginning of it is a message, and takes it. */
static struct ssh_message there_and_back(const struct ssh_message *m, struct strbuf *s) {
    struct ssh_message got;
    size_t n = 0;
    strbuf_clear(s);
    ssh_add(m, s);
    for (size_t len = 0; len < s->len; len++)
        cr_assert_eq(ssh_take(bytes_of(s), len, &got, &n, NULL), FRAME_E_MORE);
    cr_assert_eq(ssh_take(bytes_of(s), s->len, &got, &n, NULL), 0);
    cr_assert_eq(n, s->len);
    cr_assert_eq(got.kind, m->kind);
    return got;
}

Test(ssh_wire, messages_survive_the_way) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct ssh_message m = {.kind = SSH_HELLO}, got;
    m.hello = (struct ssh_hello){.version = "0.1.0", .host = "n1", .pid = 7, .addrs = "10.0.0.1,fd77::1"};
    got = there_and_back(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES,
                     "H{\"version\":\"0.1.0\",\"host\":\"n1\",\"pid\":7,\"addrs\":\"10.0.0.1,fd77::1\"}");
    cr_assert_str_eq(got.hello.addrs, "10.0.0.1,fd77::1");
    m = (struct ssh_message){.kind = SSH_VERDICT};
    m.verdict = (struct starter_verdict){.status = 143, .lost = 2, .text = "rank 3 died of SIGSEGV"};
    got = there_and_back(&m, &s);
    cr_assert_eq(got.verdict.status, 143);
    cr_assert_str_eq(got.verdict.text, "rank 3 died of SIGSEGV");
    m = (struct ssh_message){.kind = SSH_EXIT};
    m.exit = (struct ssh_exit){.signalled = true, .code = 9};
    got = there_and_back(&m, &s);
    cr_assert(got.exit.signalled && got.exit.code == 9);
    m = (struct ssh_message){.kind = SSH_FAIL};
    m.fail = (struct ssh_fail){.text = "there is no folder /data"};
    cr_assert_str_eq(there_and_back(&m, &s).fail.text, "there is no folder /data");
    m = (struct ssh_message){.kind = SSH_LISTEN, .listen = {.addr = "fd77::1", .low = 4000, .high = 4009}};
    got = there_and_back(&m, &s);
    cr_assert_str_eq(got.listen.addr, "fd77::1");
    cr_assert(got.listen.low == 4000 && got.listen.high == 4009);
    m = (struct ssh_message){.kind = SSH_PORT, .port = {.port = 4001}};
    cr_assert_eq(there_and_back(&m, &s).port.port, 4001);
    m = (struct ssh_message){.kind = SSH_STOP};
    m.signal.signo = 15;
    cr_assert_eq(there_and_back(&m, &s).signal.signo, 15);
    m = (struct ssh_message){.kind = SSH_PING};
    (void)there_and_back(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "P{}");
    m = (struct ssh_message){.kind = SSH_DROP_OUT};
    (void)there_and_back(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "d{}");
    m = (struct ssh_message){.kind = SSH_DROP_ERR};
    (void)there_and_back(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "D{}");
}

Test(ssh_wire, output_has_any_bytes_and_may_be_as_long_as_a_frame) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    static uint8_t data[SSH_DATA_MAX];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    struct ssh_message m = {.kind = SSH_OUT, .data = {data, sizeof data}}, got;
    size_t n;
    ssh_add(&m, &s);
    cr_assert_eq(s.len, SSH_FRAME_MAX);
    cr_assert_eq(ssh_take(bytes_of(&s), s.len, &got, &n, NULL), 0);
    cr_assert_eq(got.data.len, sizeof data);
    cr_assert_eq(memcmp(got.data.bytes, data, sizeof data), 0);
}

static int take(const char *payload, size_t len) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct ssh_message m;
    struct err err = {0};
    uint8_t head[FRAME_HEADER_BYTES];
    size_t n;
    frame_header(len, head);
    strbuf_add_bytes(&s, head, sizeof head);
    strbuf_add_bytes(&s, payload, len);
    int r = ssh_take(bytes_of(&s), s.len, &m, &n, &err);
    cr_assert(r == 0 || err.text[0] != '\0');
    return r;
}

Test(ssh_wire, what_is_no_message_is_refused) {
    static const char *const bad[] = {
        "?{}",
        "H{}",
        "H",
        "X{\"signalled\":true,\"code\":256}",
        "S{\"signal\":0}",
        "U{\"signal\":65}",
        "N{\"nodes\":0}",
        "F{\"text\":\"\"}",
        "A{\"more\":1}",
        "H{\"version\":\"\",\"host\":\"\",\"pid\":1,\"addrs\":\"\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(take(bad[i], strlen(bad[i])), -EINVAL, "%s", bad[i]);
    const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f}, none[] = {0, 0, 0, 0};
    struct ssh_message m;
    size_t n;
    cr_assert_eq(ssh_take(huge, sizeof huge, &m, &n, NULL), -EMSGSIZE);
    cr_assert_eq(ssh_take(none, sizeof none, &m, &n, NULL), -EMSGSIZE);
}

Test(ssh_wire, each_side_knows_what_the_other_says) {
    cr_assert(ssh_is_from_node(SSH_HELLO) && ssh_is_from_node(SSH_EXIT));
    cr_assert_not(ssh_is_from_node(SSH_BOOT) || ssh_is_from_node(SSH_EXPECT) || ssh_is_from_node(SSH_PING));
}

static int find(const char *text, size_t *n) { return ssh_find_begin((const uint8_t *)text, strlen(text), n); }

Test(ssh_wire, what_a_login_prints_is_skipped) {
    size_t n;
    cr_assert_eq(find(SSH_BEGIN, &n), 0);
    cr_assert_eq(n, strlen(SSH_BEGIN));
    cr_assert_eq(find("Welcome to MUSTER-SSH\n" SSH_BEGIN "rest", &n), 0);
    cr_assert_eq(n, strlen("Welcome to MUSTER-SSH\n" SSH_BEGIN));
    cr_assert_eq(find("no newline" SSH_BEGIN, &n), 0);
    for (size_t len = 0; len < strlen(SSH_BEGIN); len++)
        cr_assert_eq(ssh_find_begin((const uint8_t *)SSH_BEGIN, len, &n), FRAME_E_MORE, "%zu", len);
    cr_assert_eq(find("\nMUSTER-SSH 2\n", &n), -EPROTONOSUPPORT);
    cr_assert_eq(find("\nMUSTER-SSH 12\n", &n), -EPROTONOSUPPORT);
}

Test(ssh_wire, noise_has_a_limit) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    size_t n;
    for (size_t i = 0; i < SSH_NOISE_MAX; i++)
        strbuf_add_char(&s, 'x');
    cr_assert_eq(ssh_find_begin(bytes_of(&s), s.len, &n), FRAME_E_MORE);
    strbuf_add(&s, SSH_BEGIN);
    cr_assert_eq(ssh_find_begin(bytes_of(&s), s.len, &n), 0);
    strbuf_clear(&s);
    for (size_t i = 0; i < SSH_NOISE_MAX + 100; i++)
        strbuf_add_char(&s, 'x');
    cr_assert_eq(ssh_find_begin(bytes_of(&s), s.len, &n), -EMSGSIZE);
}

/* Takes all frames of a BOOT. */
static int boot_back(const struct strbuf *s, struct ssh_boot *ret) {
    _cleanup_(strbuf_fini) struct strbuf parts = {0};
    int r = FRAME_E_MORE;
    for (size_t at = 0, n; r == FRAME_E_MORE; at += n) {
        struct ssh_message m;
        cr_assert_eq(ssh_take(bytes_of(s) + at, s->len - at, &m, &n, NULL), 0);
        r = ssh_boot_take(&parts, &m, ret, NULL);
        cr_assert(r != 0 || at + n == s->len);
    }
    return r;
}

Test(ssh_wire, a_boot_of_many_parts_arrives_whole) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {.cwd = xstrdup("/home/me"), .grace_ns = UINT64_C(12345678901)},
                                             got = {0};
    _cleanup_(strbuf_fini) struct strbuf s = {0}, large = {0};
    for (size_t i = 0; i < 3 * SSH_DATA_MAX; i++)
        strbuf_add_char(&large, (char)(1 + i % 255));
    ssh_boot_word(&boot, "--nnodes=2");
    ssh_boot_word(&boot, "");
    ssh_boot_word(&boot, "\xff\n '");
    envlist_set(&boot.env, "LARGE", strbuf_text(&large));
    envlist_set(&boot.env, "EMPTY", "");
    cr_assert_eq(ssh_boot_add(&boot, &s, NULL), 0);
    cr_assert_eq(boot_back(&s, &got), 0);
    cr_assert_str_eq(got.cwd, "/home/me");
    cr_assert_eq(got.grace_ns, UINT64_C(12345678901));
    cr_assert_eq(got.n_args, 3);
    cr_assert_str_eq(got.args[1], "");
    cr_assert_str_eq(got.args[2], "\xff\n '");
    cr_assert_null(got.args[3]);
    cr_assert_str_eq(envlist_get(&got.env, "LARGE"), strbuf_text(&large));
    cr_assert_str_eq(envlist_get(&got.env, "EMPTY"), "");
}

Test(ssh_wire, a_boot_has_a_limit) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {.cwd = xstrdup("/")}, got = {0};
    _cleanup_(strbuf_fini) struct strbuf s = {0}, parts = {0};
    static uint8_t data[SSH_DATA_MAX];
    struct ssh_message part = {.kind = SSH_BOOT_PART, .data = {data, sizeof data}};
    struct err err = {0};
    for (size_t i = 0; i < SSH_BOOT_MAX; i++)
        strbuf_add_char(&s, 'x');
    ssh_boot_word(&boot, strbuf_text(&s));
    strbuf_clear(&s);
    cr_assert_eq(ssh_boot_add(&boot, &s, &err), -E2BIG);
    cr_assert_eq(s.len, 0);
    for (size_t i = 0; i < SSH_BOOT_MAX / SSH_DATA_MAX; i++)
        cr_assert_eq(ssh_boot_take(&parts, &part, &got, &err), FRAME_E_MORE);
    cr_assert_eq(ssh_boot_take(&parts, &part, &got, &err), -EMSGSIZE);
}

Test(ssh_wire, what_is_no_boot_is_refused) {
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {
        {"", 0},
        {"c/", 2},
        {"", 1},
        {"a--nnodes=2", 12},
        {"ctmp", 5},
        {"c/\0c/", 6},
        {"c/\0eX", 6},
        {"c/\0e=x", 7},
        {"c/\0zx", 6},
        {"c/\0g-1", 7},
        {"c/\0g9223372036854775807", 24},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_(strbuf_fini) struct strbuf parts = {0};
        struct ssh_message m = {.kind = SSH_BOOT, .data = {(const uint8_t *)bad[i].text, bad[i].len}};
        struct ssh_boot got = {0};
        struct err err = {0};
        cr_assert_eq(ssh_boot_take(&parts, &m, &got, &err), -EINVAL, "%zu", i);
        cr_assert_neq(err.text[0], '\0');
    }
}
