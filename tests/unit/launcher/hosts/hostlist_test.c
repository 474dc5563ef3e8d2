#include "launcher/hosts/hosts.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

static struct err err;

/* The names, with blanks between them; NULL: refused. Freed by the caller. */
static char *expanded(const char *list) {
    struct hostlist hosts;
    err = (struct err){0};
    if (hostlist_expand(list, &hosts, &err) < 0)
        return NULL;
    struct strbuf out = {0};
    for (size_t i = 0; i < hosts.n; i++)
        strbuf_printf(&out, "%s%s", i > 0 ? " " : "", hosts.names[i]);
    hostlist_fini(&hosts);
    return strbuf_take(&out);
}

static void assert_expands(const char *list, const char *names) {
    _cleanup_(freep) char *out = expanded(list);
    if (names == NULL)
        cr_assert_null(out, "%s: %s", list, out);
    else
        cr_assert(out != NULL && strcmp(out, names) == 0, "%s: %s %s", list, out == NULL ? "refused," : out, err.text);
}

#define REFUSED NULL

/* The first half is what `scontrol show hostnames` of Slurm 22.05.8 printed, except where a comment says what it did. */
static const char *const vectors[][2] = {
    {"a[1-2]b[03-04]", "a1b03 a1b04 a2b03 a2b04"},
    {"a[1-2][3-4]", "a13 a14 a23 a24"},
    {"r[1-2]c[1-2]n[1-2]", "r1c1n1 r1c1n2 r2c1n1 r2c1n2 r1c2n1 r1c2n2 r2c2n1 r2c2n2"},
    {"n[001-003,007,10]", "n001 n002 n003 n007 n10"},
    {"n[9-11]", "n9 n10 n11"},
    {"n[09-11]", "n09 n10 n11"},
    {"n[008-011]", "n008 n009 n010 n011"},
    {"n[98-101]", "n98 n99 n100 n101"},
    {"n[00-01,1]", "n00 n01 n1"},
    {"a,b,c", "a b c"},
    {" a b,c", "a b c"},
    {"n[1-3],n[2-4]", "n1 n2 n3 n2 n3 n4"},
    {"a-1-[1-3]", "a-1-1 a-1-2 a-1-3"},
    {"gpu-a100-[01-02],cpu[1-2]", "gpu-a100-01 gpu-a100-02 cpu1 cpu2"},
    {"[1-3]", "1 2 3"},
    {"n1-3", "n1-3"},
    {"n[1-]", "n1"},
    {"n[1", REFUSED},                  /* Slurm: n], which no host is called */
    {"n]1", REFUSED},                  /* Slurm: n]1 */
    {"d[9-11]-x", "d9-x d10-x d11-x"}, /* Slurm refused it; newer releases do not */
    {"x[1-2].y", "x1.y x2.y"},         /* Slurm refused it, too */
    {"n[3-1]", REFUSED},
    {"n[-3]", REFUSED},
    /* more */
    {"n", "n"},
    {",\t a ,,\nb \r\n", "a b"},
    {"n[7]", "n7"},
    {"n[0-0]", "n0"},
    {"n[5-,7]", "n5 n7"},
    {"azAZ09-_.", "azAZ09-_."},
    {"n[1-0002]", "n1 n2"}, /* the width is that of the first number */
    {"n[0001-2]", "n0001 n0002"},
    {"n[1-2]_[1,2-3]", "n1_1 n1_2 n1_3 n2_1 n2_2 n2_3"},
    {"a[1-2]b[1-2]c[1-2]d[1-2]", "a1b1c1d1 a1b1c1d2 a2b1c1d1 a2b1c1d2 a1b2c1d1 a1b2c1d2 a2b2c1d1 a2b2c1d2 "
                                 "a1b1c2d1 a1b1c2d2 a2b1c2d1 a2b1c2d2 a1b2c2d1 a1b2c2d2 a2b2c2d1 a2b2c2d2"},
    {"n[999999999999999998-999999999999999999]", "n999999999999999998 n999999999999999999"},
};

Test(hostlist, lists_are_expanded_as_slurm_does) {
    for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
        assert_expands(vectors[i][0], vectors[i][1]);
}

Test(hostlist, an_error_quotes_the_list_and_names_the_place) {
    static const struct {
        const char *list;
        int code;
        const char *place, *reason;
    } cases[] = {
        {"n[1", -EINVAL, "\"n[1\": at character 2 ", "not closed"},
        {"n]1", -EINVAL, "at character 2 ", "not opened"},
        {"n[1]]", -EINVAL, "at character 5 ", "not opened"},
        {"n[]", -EINVAL, "at character 3 ", "a number"},
        {"n[1,,2]", -EINVAL, "at character 5 ", "a number, as in n[1-3,7]"},
        {"n[1-2,]", -EINVAL, "at character 7 ", "a number"},
        {"n[1, 2]", -EINVAL, "at character 5 ", "a number"},
        {"n[a-b]", -EINVAL, "at character 3 ", "a number"},
        {"n[1--2]", -EINVAL, "at character 5 ", "a number"},
        {"n[1-2-3]", -EINVAL, "at character 6 ", "\",\" or \"]\""},
        {"n[0x10]", -EINVAL, "at character 4 ", "\",\" or \"]\""},
        {"n[1[2]]", -EINVAL, "at character 4 ", "\",\" or \"]\""},
        {"a,n[7,3-1]", -EINVAL, "at character 7 ", "backwards"},
        {"a,-b", -EINVAL, "at character 3 ", "begins with"},
        {"a;b", -EINVAL, "at character 2 ", "letters, digits"},
        {"a$(b)", -EINVAL, "at character 2 ", "letters, digits"},
        {"caf\xc3\xa9", -EINVAL, "at character 4 ", "letters, digits"},
        {"gpu{4}", -EINVAL, "at character 4 ", "function of Slurm"},
        {"a\x1b[1]", -EINVAL, "\"a?[1]\": at character 2 ", "letters, digits"},
        {"n[1-100000]", -ERANGE, "at character 3 ", "65536"},
        {"n[1000000000000000000]", -ERANGE, "at character 3 ", "18 digits"},
        {"", -EINVAL, "", "is empty"},
        {" ,\n", -EINVAL, "", "is empty"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hostlist hosts = {.n = 4711};
        err = (struct err){0};
        int r = hostlist_expand(cases[i].list, &hosts, &err);
        cr_assert_eq(r, cases[i].code, "%s: %d %s", cases[i].list, r, err.text);
        cr_assert_eq(hosts.n, 4711);
        cr_assert(strstr(err.text, cases[i].place) != NULL && strstr(err.text, cases[i].reason) != NULL, "%s",
                  err.text);
        cr_assert_eq(hostlist_expand(cases[i].list, &hosts, NULL), r);
    }
}

Test(hostlist, a_long_list_is_quoted_around_the_place) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    for (int i = 0; i < 100; i++)
        strbuf_printf(&list, "node%02d,", i);
    strbuf_add(&list, "bad[,");
    for (int i = 0; i < 100; i++)
        strbuf_printf(&list, "node%02d,", i);
    struct hostlist hosts;
    cr_assert_eq(hostlist_expand(strbuf_text(&list), &hosts, &err), -EINVAL);
    cr_assert(strstr(err.text, "\"...") != NULL && strstr(err.text, ",node99,bad[,node00,") != NULL &&
                  strstr(err.text, "...\": at character 705 ") != NULL,
              "%s", err.text);
    cr_assert_lt(strlen(err.text), 250);
}

static int count_of(const char *list) {
    _cleanup_(hostlist_fini) struct hostlist hosts = {0};
    err = (struct err){0};
    int r = hostlist_expand(list, &hosts, &err);
    return r < 0 ? r : (int)hosts.n;
}

Test(hostlist, a_list_has_limits) {
    static const struct {
        const char *list;
        int count;
    } cases[] = {
        {"n[1-65536]", 65536},
        {"n[0-65535]", 65536},
        {"n[1-65537]", -ERANGE},
        {"n[1-65535,7]", 65536},
        {"n[1-65535,7,8]", -ERANGE},
        {"n[1-65535],a", 65536},
        {"n[1-65535],a,b", -ERANGE},
        {"a,b,n[1-65535]", -ERANGE},
        {"a[1-256]b[1-256]", 65536},
        {"a[1-256]b[1-257]", -ERANGE},
        {"a[1-65536]b[1-65536]c[1-65536]d[1-65536]", -ERANGE},
        {"a[1][1][1][1][1][1][1][1]", 1},
        {"a[1][1][1][1][1][1][1][1][1]", -ERANGE},
        {"n[000000000000000000000000000000000007-9]", 3}, /* zeros do not count as digits */
        {"n[0-18446744073709551616]", -ERANGE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_assert_eq(count_of(cases[i].list), cases[i].count, "%s: %s", cases[i].list, err.text);
}

Test(hostlist, a_name_has_a_limit) {
    char name[HOSTLIST_NAME_MAX + 8];
    memset(name, 'a', sizeof name);
    (void)snprintf(name + HOSTLIST_NAME_MAX - 2, 10, "[8-99]");
    cr_assert_eq(count_of(name), 92, "%s", err.text);
    (void)snprintf(name + HOSTLIST_NAME_MAX - 2, 10, "[8-100]");
    cr_assert_eq(count_of(name), -ERANGE);
    assert_has(err.text, "255 bytes");
    memset(name, '0', sizeof name);
    name[0] = '[';
    (void)snprintf(name + HOSTLIST_NAME_MAX, 8, "1]"); /* "[", 254 zeros, "1]" */
    cr_assert_eq(count_of(name), 1, "%s", err.text);
    (void)snprintf(name + HOSTLIST_NAME_MAX, 8, "01]");
    cr_assert_eq(count_of(name), -ERANGE);
}

Test(hostlist, the_longest_names_may_be_many) {
    char list[HOSTLIST_NAME_MAX + 16] = "[10000-75535]";
    size_t len = strlen(list);
    memset(list + len, 'x', HOSTLIST_NAME_MAX - 5);
    list[len + HOSTLIST_NAME_MAX - 5] = '\0';
    cr_assert_eq(count_of(list), 65536, "%s", err.text);
}

Test(hostlist, a_text_has_a_limit) {
    _cleanup_(freep) char *list = xmalloc(HOSTLIST_TEXT_MAX + 2);
    memset(list, ',', HOSTLIST_TEXT_MAX + 1);
    list[0] = 'a';
    list[HOSTLIST_TEXT_MAX] = '\0';
    cr_assert_eq(count_of(list), 1);
    list[HOSTLIST_TEXT_MAX] = ',';
    list[HOSTLIST_TEXT_MAX + 1] = '\0';
    cr_assert_eq(count_of(list), -ERANGE);
}
