#include "nccl_env/facts/facts.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

static struct nccl_conf parse(const char *text) {
    struct nccl_conf c;
    nccl_conf_parse("/etc/nccl.conf", text, strlen(text), &c);
    return c;
}

static void expect(const char *text, const char *name, const char *value, uint32_t line) {
    _cleanup_(nccl_conf_fini) struct nccl_conf c = parse(text);
    const struct nccl_conf_entry *e = nccl_conf_find(&c, name);
    cr_assert_not_null(e, "%s in %s", name, text);
    cr_assert_str_eq(e->value, value);
    cr_assert_eq(e->line, line);
}

Test(nccl_conf, splits_at_the_first_equals_sign) {
    expect("NCCL_SOCKET_IFNAME==eth0\n", "NCCL_SOCKET_IFNAME", "=eth0", 1);
    expect("A=1\nNCCL_IB_HCA=^=mlx5_2", "NCCL_IB_HCA", "^=mlx5_2", 2);
    expect("A=", "A", "", 1);
}

Test(nccl_conf, trims_nothing_and_knows_no_quotes) {
    expect("X = 1\n", "X ", " 1", 1);
    expect("X=\"1\" \r\n", "X", "\"1\" \r", 1);
    expect(" #X=1\n", " #X", "1", 1);
}

Test(nccl_conf, comments_and_lines_without_a_sign_are_nothing) {
    _cleanup_(nccl_conf_fini) struct nccl_conf c = parse("#A=1\n\nB\n=2\n#\n");
    cr_assert_eq(c.n, 0u);
    cr_assert_null(nccl_conf_find(&c, "A"));
    cr_assert_null(nccl_conf_find(&c, ""));
}

Test(nccl_conf, the_first_of_two_entries_counts) { expect("#\nA=1\nA=2\n", "A", "1", 2); }

Test(nccl_conf, a_line_ends_at_a_nul) {
    static const char text[] = "A=1\0B=2\nC=3";
    _cleanup_(nccl_conf_fini) struct nccl_conf c;
    nccl_conf_parse("x", text, sizeof text - 1, &c);
    cr_assert_eq(c.n, 2u);
    cr_assert_str_eq(nccl_conf_find(&c, "A")->value, "1");
    cr_assert_eq(nccl_conf_find(&c, "C")->line, 2u);
}

Test(nccl_conf, long_parts_are_cut_as_nccl_cuts_them) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, "A=");
    for (int i = 0; i < 2000; i++)
        strbuf_add_char(&text, 'x');
    _cleanup_(nccl_conf_fini) struct nccl_conf c = parse(strbuf_text(&text));
    cr_assert_eq(strlen(c.entries[0].value), 1023u);
}

Test(nccl_conf, holds_as_many_entries_as_its_bound_says) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (int i = 0; i < NCCL_CONF_ENTRIES_MAX + 5; i++)
        strbuf_printf(&text, "A%d=%d\n", i, i);
    _cleanup_(nccl_conf_fini) struct nccl_conf c = parse(strbuf_text(&text));
    cr_assert_eq(c.n, (uint32_t)NCCL_CONF_ENTRIES_MAX);
    cr_assert_not_null(nccl_conf_find(&c, "A1023"));
}
