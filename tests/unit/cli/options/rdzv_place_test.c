#include "cli/options/rdzv_text.h"

#include "rig/unit.h"

/* "host h 80", "dir /a", "etcd http|https ENDPOINTS PREFIX USER PASSWORD", "-" for a missing part; or how the error
 * begins. */
static char *told(enum job_backend backend, const char *text) {
    _cleanup_(rdzv_place_fini) struct rdzv_place p = {0};
    struct err err = {0};
    int r = backend == 0 ? rdzv_place_parse(text, &p, &err) : rdzv_place_parse_as(backend, text, &p, &err);
    if (r < 0) {
        cr_assert_null(p.host);
        cr_assert_null(p.dir);
        cr_assert_null(p.etcd_endpoints);
        cr_assert_eq(err.text[0] != '\0', r == -EINVAL);
        const char *why = r == -EINVAL ? strstr(err.text, "\": ") : NULL;
        return why != NULL ? xasprintf("%.20s", why + 3) : xstrdup(r == -ENODATA ? "nothing" : "?");
    }
    if (p.backend == JOB_BACKEND_C10D)
        return xasprintf("host %s %d", p.host, p.ports.n > 0 ? p.ports.list[0] : -1);
    if (p.backend == JOB_BACKEND_DIR)
        return xasprintf("dir %s", p.dir);
    _cleanup_(strbuf_fini) struct strbuf hosts = {0};
    for (char **e = p.etcd_endpoints; *e != NULL; e++)
        strbuf_printf(&hosts, "%s%s", hosts.len > 0 ? "," : "", *e);
    return xasprintf("etcd %s %s %s %s %s", p.etcd_tls ? "https" : "http", strbuf_text(&hosts),
                     p.etcd_prefix != NULL ? p.etcd_prefix : "-", p.user != NULL ? p.user : "-",
                     p.password != NULL ? p.password : "-");
}

struct place_case {
    const char *text, *want;
};

static void check(int kind, const struct place_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        _cleanup_(freep) char *got = told(kind, cases[i].text);
        cr_expect_str_eq(got, cases[i].want, "\"%s\": %s", cases[i].text, got);
    }
}

Test(rdzv_place, tells_by_its_form_what_a_text_names) {
    static const struct place_case cases[] = {
        {"a:80", "host a 80"},
        {" a ", "host a -1"},
        {"[::1]:80", "host ::1 80"},
        {"", "nothing"},
        {" \t", "nothing"},
        {"dir:/a/b", "dir /a/b"},
        {"dir:///a/b/", "dir /a/b"},
        {"dir:/", "dir /"},
        {"dir:a/b", "dir a/b"},
        {"dir:", "no directory is name"},
        {"dir:/a\nb", "a directory's name m"},
        {"/a/b", "dir /a/b"},
        {"dir:29400", "host dir 29400"},
        {"dir:29400/x", "dir 29400/x"},
        {"dir:5-7", "host dir 5"},
        {"etcd:2379", "host etcd 2379"},
        {"etcd:5-7,9", "host etcd 5"},
        {"etcd:5-b", "etcd http 5-b:2379 - - -"},
        {"etcd", "host etcd -1"},
        {"etcd://a", "etcd http a:2379 - - -"},
        {"etcd:a:1,b", "etcd http a:1,b:2379 - - -"},
        {"etcd://a:1,[::1]:2,::2,10.0.0.1/x/y/", "etcd http a:1,[::1]:2,[::2]:2379,10.0.0.1:2379 "
                                                 "/x/y - -"},
        {"etcds://a/", "etcd https a:2379 - - -"},
        {"etcd+https://a//", "etcd https a:2379 - - -"},
        {"etcd+http://a", "etcd http a:2379 - - -"},
        {"etcds://me@a", "etcd https a:2379 - me -"},
        {"etcds://me:s%40cr%2Fet:@a:1/p", "etcd https a:1 /p me s@cr/et:"},
        {"etcd://me:a@b@c", "etcd http c:2379 - me a@b"},
        {"etcd://:x@a", "before the @ must be"},
        {"etcd://me:@a", "before the @ must be"},
        {"etcd://me:%0@a", "before the @ must be"},
        {"etcd://me:%00@a", "before the @ must be"},
        {"etcd://", "a host of etcd is mi"},
        {"etcd:///x", "a host of etcd is mi"},
        {"etcd://a,,b", "a host of etcd is mi"},
        {"etcd://a,", "a host of etcd is mi"},
        {"etcd://a:0", "etcd has no port 0"},
        {"etcd://a:65536", "each host of etcd mu"},
        {"etcd://a b", "each host of etcd mu"},
        {"etcd://a/x?min_workers=1", "what follows the hos"},
        {"http://a:80", "must be HOST:PORT, d"},
        {"zookeeper://a:80", "must be HOST:PORT, d"},
    };
    check(0, cases, ARRAY_SIZE(cases));
}

Test(rdzv_place, takes_plain_forms_where_it_is_known_what_they_name) {
    static const struct place_case etcd[] = {
        {"a:80", "etcd http a:80 - - -"},
        {"a", "etcd http a:2379 - - -"},
        {"etcd:2379,b", "etcd http etcd:2379,b:2379 - - -"},
        {"etcd", "etcd http etcd:2379 - - -"},
        {"a/p", "etcd http a:2379 /p - -"},
        {"https://a:80", "etcd https a:80 - - -"},
        {"http://a", "etcd http a:2379 - - -"},
        {"https:80", "etcd http https:80 - - -"},
        {"etcds://u:p@a", "etcd https a:2379 - u p"},
        {"ftp://a", "must be HOST:PORT of"},
        {"/a", "must be HOST:PORT of"},
        {"", "nothing"},
    };
    static const struct place_case dir[] = {
        {"/a", "dir /a"},     {"dir:/a", "dir /a"},     {"a", "dir a"},
        {"dir:12", "dir 12"}, {"etcd:a", "dir etcd:a"}, {"", "nothing"},
    };
    check(JOB_BACKEND_ETCD, etcd, ARRAY_SIZE(etcd));
    check(JOB_BACKEND_DIR, dir, ARRAY_SIZE(dir));
}

Test(rdzv_place, takes_sixteen_hosts_of_etcd_and_no_more) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add(&s, "etcd://a");
    for (int i = 1; i < 16; i++)
        strbuf_add(&s, ",a");
    _cleanup_(freep) char *sixteen = told(0, strbuf_text(&s));
    cr_assert_eq(strncmp(sixteen, "etcd http a:2379,", 17), 0, "%s", sixteen);
    strbuf_add(&s, ",a");
    _cleanup_(freep) char *seventeen = told(0, strbuf_text(&s));
    cr_assert_str_eq(seventeen, "at most 16 hosts of ");
}

Test(rdzv_place, never_shows_a_password) {
    static const struct place_case cases[] = {
        {"etcd://me:secret@a:1/p", "etcd://me:***@a:1/p"},
        {"  etcds:me:secret@a", "  etcds:me:***@a"},
        {"https://me:se:cr@et@a", "https://me:***@a"},
        {"me:secret@a", "me:***@a"},
        {"etcd://me@a:1", "etcd://me@a:1"},
        {"host:80", "host:80"},
        {"dir:/a", "dir:/a"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *shown = rdzv_place_shown(cases[i].text);
        cr_expect_str_eq(shown, cases[i].want);
    }
    static const char *const wrong[] = {"etcd://me:secret@a:0", "etcd://me:secret@", "ftp://me:secret@a",
                                        "etcd://me:secret%@a", "etcd://me:secret@a/?"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        _cleanup_(rdzv_place_fini) struct rdzv_place p = {0};
        struct err err = {0};
        cr_assert_eq(rdzv_place_parse(wrong[i], &p, &err), -EINVAL);
        cr_expect_null(strstr(err.text, "secret"), "%s", err.text);
        expect_has(err.text, "***");
    }
}

Test(rdzv_place, makes_a_directory_absolute) {
    static const struct {
        const char *dir, *cwd, *want;
    } cases[] = {
        {"/a", "/home/u", "/a"},
        {"a/b", "/home/u", "/home/u/a/b"},
        {"./a", "/home/u", "/home/u/a"},
        {".", "/home/u", "/home/u"},
        {"a", "/", "/a"},
        {".", "/", "/"},
        {"../a", "/home/u", "/home/u/../a"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rdzv_place_fini) struct rdzv_place p = {0};
        struct err err = {0};
        cr_assert_eq(rdzv_place_parse_as(JOB_BACKEND_DIR, cases[i].dir, &p, &err), 0);
        rdzv_place_absolute(&p, cases[i].cwd);
        cr_expect_str_eq(p.dir, cases[i].want);
    }
}

Test(rdzv_place, normalises_prefixes) {
    static const struct place_case cases[] = {
        {"/a/b", "/a/b"}, {"a", "/a"}, {"/a//", "/a"}, {"/", ""}, {"", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *got = rdzv_prefix_normal(cases[i].text, strlen(cases[i].text));
        cr_expect_str_eq(got, cases[i].want);
    }
    cr_expect_null(rdzv_prefix_normal("/a?b", 4));
    cr_expect_null(rdzv_prefix_normal("/a\n", 3));
}
