#include "cli/options/rdzv_text.h"

#include "base/text/parse.h"
#include "rig/unit.h"

Test(rdzv_text, reads_endpoints) {
    static const struct {
        const char *text;
        int r;
        const char *host;
        int32_t port;
    } cases[] = {
        {"localhost:80", 0, "localhost", 80},
        {"localhost", 0, "localhost", -1},
        {" localhost:80 ", 0, "localhost", 80},
        {"localhost:0", 0, "localhost", 0},
        {"localhost:65535", 0, "localhost", 65535},
        {"localhost:65536", -EINVAL, NULL, 0},
        {"localhost:", -EINVAL, NULL, 0},
        {"localhost:a", -EINVAL, NULL, 0},
        {"localhost:-1", -EINVAL, NULL, 0},
        {"localhost:000080", -EINVAL, NULL, 0},
        {"localhost:8 0", -EINVAL, NULL, 0},
        {"[::1]:90", 0, "::1", 90},
        {"[::1]", 0, "::1", -1},
        {"::1:90", 0, "::1", 90},
        {"::1", 0, "::1", -1},
        {"fe80::1%eth0:90", 0, "fe80::1%eth0", 90},
        {"[fe80::1%eth0]", 0, "fe80::1%eth0", -1},
        {"[2001:db8::1]:1", 0, "2001:db8::1", 1},
        {"10.0.0.1:1", 0, "10.0.0.1", 1},
        {"node_1.x-y:1", 0, "node_1.x-y", 1},
        {"", -ENODATA, NULL, 0},
        {"  ", -ENODATA, NULL, 0},
        {":80", -EINVAL, NULL, 0},
        {"[]:80", -EINVAL, NULL, 0},
        {"[]", -EINVAL, NULL, 0},
        {"[", -EINVAL, NULL, 0},
        {"~:80", -EINVAL, NULL, 0},
        {"a b:80", -EINVAL, NULL, 0},
        {"http://a:80", -EINVAL, NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *host = NULL;
        int32_t port = -7;
        struct err err = {0};
        cr_assert_eq(rdzv_endpoint_parse(cases[i].text, &host, &port, &err), cases[i].r, "\"%s\"", cases[i].text);
        if (cases[i].r == 0) {
            cr_assert_str_eq(host, cases[i].host, "\"%s\"", cases[i].text);
            cr_assert_eq(port, cases[i].port, "\"%s\"", cases[i].text);
        } else {
            cr_assert_null(host);
            cr_assert_eq(port, -7);
            cr_assert_eq(err.text[0] != '\0', cases[i].r == -EINVAL);
        }
    }
}

Test(rdzv_text, reads_endpoints_of_several_ports) {
    static const struct {
        const char *text;
        bool has; /* a comma or a dash in its ports */
        const char *host, *ports;
    } cases[] = {
        {"h:5,6", true, "h", "5,6"},
        {" node1:29400-29415 ", true, "node1", "29400-29415"},
        {"10.0.0.1:5-7,9", true, "10.0.0.1", "5-7,9"},
        {"[::1]:5,6", true, "::1", "5,6"},
        {"a-b:5-5", true, "a-b", "5"},
        {"h:5,", true, NULL, NULL},
        {"h:5,x", true, NULL, NULL},
        {"h:5,5", true, NULL, NULL},
        {"h:6-5", true, NULL, NULL},
        {"h:0-5", true, NULL, NULL},
        {"h:5,b:6", false, NULL, NULL},
        {"h:1-17", true, NULL, NULL},
        {"a b:5,6", true, NULL, NULL},
        {":5,6", true, NULL, NULL},
        {"h:5", false, NULL, NULL},
        {"h", false, NULL, NULL},
        {"a-b", false, NULL, NULL},
        {"a-b:5", false, NULL, NULL},
        {"h:-1", false, NULL, NULL},
        {"h:,5", false, NULL, NULL},
        {"::1:5,6", false, NULL, NULL},
        {"fe80::5-6", false, NULL, NULL},
        {"/a:5-6", false, NULL, NULL},
        {"dir:a:5-6", false, NULL, NULL},
        {"etcd://h:5-6", false, NULL, NULL},
        {"", false, NULL, NULL},
        {" ", false, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *text = cases[i].text;
        _cleanup_(freep) char *host = NULL;
        uint16_t ports[16] = {0};
        unsigned n = 77;
        struct err err = {0};
        cr_assert_eq(rdzv_endpoint_has_ports(text), cases[i].has, "\"%s\"", text);
        if (!cases[i].has)
            continue;
        int r = rdzv_endpoint_parse_ports(text, 16, &host, ports, &n, &err);
        cr_assert_eq(r, cases[i].host != NULL ? 0 : -EINVAL, "\"%s\"", text);
        if (r < 0) {
            cr_assert_null(host);
            assert_has(err.text, "endpoint \"");
            continue;
        }
        _cleanup_(strbuf_fini) struct strbuf written = {0};
        port_list_text(ports, n, &written);
        cr_assert_str_eq(host, cases[i].host);
        cr_assert_str_eq(strbuf_text(&written), cases[i].ports, "\"%s\"", text);
    }
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
