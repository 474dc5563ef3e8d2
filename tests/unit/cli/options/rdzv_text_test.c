#include "cli/options/rdzv_text.h"

#include "base/text/parse.h"
#include "rig/unit.h"

Test(rdzv_text, reads_endpoints) {
    static const struct {
        const char *text, *host, *ports; /* NULL: refused */
    } cases[] = {
        {"localhost:80", "localhost", "80"},
        {"localhost", "localhost", ""},
        {" localhost:80 ", "localhost", "80"},
        {"localhost:0", "localhost", "0"},
        {"localhost:65535", "localhost", "65535"},
        {"localhost:65536", NULL, NULL},
        {"localhost:", NULL, NULL},
        {"localhost:a", NULL, NULL},
        {"localhost:-1", NULL, NULL},
        {"localhost:000080", NULL, NULL},
        {"localhost:8 0", NULL, NULL},
        {"[::1]:90", "::1", "90"},
        {"[::1]", "::1", ""},
        {"::1:90", "::1", "90"},
        {"::1", "::1", ""},
        {"fe80::1%eth0:90", "fe80::1%eth0", "90"},
        {"[fe80::1%eth0]", "fe80::1%eth0", ""},
        {"[2001:db8::1]:1", "2001:db8::1", "1"},
        {"10.0.0.1:1", "10.0.0.1", "1"},
        {"node_1.x-y:1", "node_1.x-y", "1"},
        {":80", NULL, NULL},
        {"[]:80", NULL, NULL},
        {"[]", NULL, NULL},
        {"[", NULL, NULL},
        {"~:80", NULL, NULL},
        {"a b:80", NULL, NULL},
        {"http://a:80", NULL, NULL},
        {"h:5,6", "h", "5,6"},
        {" node1:29400-29415 ", "node1", "29400-29415"},
        {"10.0.0.1:5-7,9", "10.0.0.1", "5-7,9"},
        {"[::1]:5,6", "::1", "5,6"},
        {"a-b:5-5", "a-b", "5"},
        {"h:5,", NULL, NULL},
        {"h:5,x", NULL, NULL},
        {"h:5,5", NULL, NULL},
        {"h:6-5", NULL, NULL},
        {"h:0-5", NULL, NULL},
        {"h:5,b:6", NULL, NULL},
        {"h:1-17", NULL, NULL},
        {"a b:5,6", NULL, NULL},
        {":5,6", NULL, NULL},
        {"a-b", "a-b", ""},
        {"a-b:5", "a-b", "5"},
        {"h:-1", NULL, NULL},
        {"h:,5", NULL, NULL},
        {"::1:5,6", NULL, NULL},
        {"fe80::5-6", "fe80::5-6", ""},
        {"/a:5-6", NULL, NULL},
        {"dir:a:5-6", NULL, NULL},
        {"etcd://h:5-6", NULL, NULL},
    };
    _cleanup_(freep) char *none = NULL;
    struct rdzv_ports unused;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *text = cases[i].text;
        _cleanup_(freep) char *host = NULL;
        _cleanup_(strbuf_fini) struct strbuf ports = {0};
        struct rdzv_ports got = {.n = 77};
        struct err err = {0};
        int r = rdzv_endpoint_parse(text, &host, &got, &err);
        cr_assert_eq(r, cases[i].host != NULL ? 0 : -EINVAL, "\"%s\"", text);
        if (r < 0) {
            cr_assert(host == NULL && got.n == 77);
            assert_has(err.text, "endpoint \"");
            continue;
        }
        port_list_text(got.list, got.n, &ports);
        cr_assert_str_eq(host, cases[i].host, "\"%s\"", text);
        cr_assert_str_eq(strbuf_text(&ports), cases[i].ports, "\"%s\"", text);
    }
    cr_assert_eq(rdzv_endpoint_parse(" ", &none, &unused, NULL), -ENODATA);
    cr_assert_eq(rdzv_endpoint_parse("", &none, &unused, NULL), -ENODATA);
}

static int parse(const char *text, struct rdzv_conf *ret, struct strbuf *warnings, struct err *err) {
    strbuf_clear(warnings);
    return rdzv_conf_parse(text, ret, warnings, err);
}

Test(rdzv_text, reads_the_configuration) {
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    struct rdzv_conf c;
    struct err err = {0};
    cr_assert_eq(parse("", &c, &warnings, &err), 0);
    cr_assert_eq(c.is_host, -1);
    cr_assert_eq(c.rank, -1);
    cr_assert_eq(c.join_timeout_ns, 0);
    cr_assert_eq(parse(" join_timeout = 5 , last_call_timeout=0.5,is_host=True,"
                       "keep_alive_interval=2,keep_alive_max_attempt=4,rank=3,timeout=9,"
                       "read_timeout=7,close_timeout=1,store_type=tcp,use_libuv=1,regroup_timeout=3",
                       &c, &warnings, &err),
                 0, "%s", err.text);
    cr_assert_eq(c.join_timeout_ns, 5 * NS_PER_S);
    cr_assert_eq(c.last_call_ns, 500 * NS_PER_MS);
    cr_assert_eq(c.is_host, 1);
    cr_assert_eq(c.keep_alive_interval_ns, 2 * NS_PER_S);
    cr_assert_eq(c.keep_alive_max_attempt, 4);
    cr_assert_eq(c.rank, 3);
    cr_assert_eq(c.timeout_ns, 9 * NS_PER_S);
    cr_assert_eq(c.read_timeout_ns, 7 * NS_PER_S);
    cr_assert_eq(c.close_timeout_ns, 1 * NS_PER_S);
    cr_assert_eq(c.regroup_ns, 3 * NS_PER_S);
    cr_assert_eq(warnings.len, 0);
    cr_assert_eq(parse("is_host=no,is_host=1,is_host=f", &c, &warnings, &err), 0);
    cr_assert_eq(c.is_host, 0);
}

Test(rdzv_text, warns_of_keys_it_does_not_know) {
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    struct rdzv_conf c;
    cr_assert_eq(parse("join_timout=5", &c, &warnings, NULL), 0);
    assert_has(strbuf_text(&warnings), "did you mean \"join_timeout\"?\n");
    cr_assert_eq(parse("colour=5,heartbeat_timeout=3", &c, &warnings, NULL), 0);
    assert_has(strbuf_text(&warnings), "unknown key \"colour\" is ignored\n");
    assert_has(strbuf_text(&warnings), "heartbeat_timeout has no effect");
    cr_assert_null(strstr(strbuf_text(&warnings), "did you mean"));
}

Test(rdzv_text, refuses_what_has_no_meaning) {
    static const char *const cases[][2] = {
        {"a", "a has no value"},
        {"a=", "a has no value"},
        {"=b", "KEY=VALUE,KEY=VALUE"},
        {"join_timeout=5,", "KEY=VALUE,KEY=VALUE"},
        {",", "KEY=VALUE,KEY=VALUE"},
        {"join_timeout=0", "above 0"},
        {"join_timeout=-1", "above 0"},
        {"join_timeout=abc", "above 0"},
        {"join_timeout=1e99", "above 0"},
        {"keep_alive_max_attempt=0", "above 0"},
        {"keep_alive_max_attempt=1.5", "above 0"},
        {"is_host=maybe", "true or false"},
        {"rank=-1", "0 or more"},
        {"rank=x", "0 or more"},
        {"store_type=zoo", "must be tcp or file"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf warnings = {0};
        struct rdzv_conf c;
        struct err err = {0};
        cr_assert_eq(parse(cases[i][0], &c, &warnings, &err), -EINVAL, "%s", cases[i][0]);
        cr_assert_not_null(strstr(err.text, cases[i][1]), "%s: %s", cases[i][0], err.text);
    }
}
