#include "launcher/ssh/ssh_boot.h"

#include "base/frame.h"
#include "rig/unit.h"

static const uint8_t *bytes_of(const struct strbuf *s) { return (const uint8_t *)strbuf_text(s); }

static int find(const char *text, size_t *n) { return ssh_find_begin((const uint8_t *)text, strlen(text), n); }

Test(ssh_boot, what_a_login_prints_is_skipped) {
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

Test(ssh_boot, noise_has_a_limit) {
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
        struct starter_message m;
        cr_assert_eq(starter_take(bytes_of(s) + at, s->len - at, STARTER_FROM_STARTER, &m, &n, NULL), 0);
        r = ssh_boot_take(&parts, &m, ret, NULL);
        cr_assert(r != 0 || at + n == s->len);
    }
    return r;
}

Test(ssh_boot, a_boot_of_many_parts_arrives_whole) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {.cwd = xstrdup("/home/me"), .grace_ns = UINT64_C(12345678901)},
                                             got = {0};
    _cleanup_(strbuf_fini) struct strbuf s = {0}, large = {0};
    for (size_t i = 0; i < 3 * STARTER_DATA_MAX; i++)
        strbuf_add_char(&large, (char)(1 + i % 255));
    words_add(&boot.args, &boot.n_args, xstrdup("--nnodes=2"));
    words_add(&boot.args, &boot.n_args, xstrdup(""));
    words_add(&boot.args, &boot.n_args, xstrdup("\xff\n '"));
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

Test(ssh_boot, a_boot_has_a_limit) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {.cwd = xstrdup("/")}, got = {0};
    _cleanup_(strbuf_fini) struct strbuf s = {0}, parts = {0};
    static uint8_t data[STARTER_DATA_MAX];
    struct starter_message part = {.kind = STARTER_BOOT_PART, .data = {data, sizeof data}};
    struct err err = {0};
    for (size_t i = 0; i < SSH_BOOT_MAX; i++)
        strbuf_add_char(&s, 'x');
    words_add(&boot.args, &boot.n_args, xstrdup(strbuf_text(&s)));
    strbuf_clear(&s);
    cr_assert_eq(ssh_boot_add(&boot, &s, &err), -E2BIG);
    cr_assert_eq(s.len, 0);
    for (size_t i = 0; i < SSH_BOOT_MAX / STARTER_DATA_MAX; i++)
        cr_assert_eq(ssh_boot_take(&parts, &part, &got, &err), FRAME_E_MORE);
    cr_assert_eq(ssh_boot_take(&parts, &part, &got, &err), -EMSGSIZE);
}

Test(ssh_boot, what_is_no_boot_is_refused) {
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
        struct starter_message m = {.kind = STARTER_BOOT, .data = {(const uint8_t *)bad[i].text, bad[i].len}};
        struct ssh_boot got = {0};
        struct err err = {0};
        cr_assert_eq(ssh_boot_take(&parts, &m, &got, &err), -EINVAL, "%zu", i);
        cr_assert_neq(err.text[0], '\0');
    }
}
