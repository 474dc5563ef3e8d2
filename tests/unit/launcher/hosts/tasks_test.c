#include "launcher/hosts/tasks.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(tasks, nodes_and_the_least_and_most_of_one_are_read) {
    static const struct {
        const char *text;
        struct tasks tasks;
    } cases[] = {
        {"1", {1, 1, 1}},       {"1(x3)", {3, 1, 1}},
        {"2(x3),1", {4, 1, 2}}, {"2,2", {2, 2, 2}},
        {"4(x1)", {1, 4, 4}},   {"1,8(x2),3", {4, 1, 8}},
        {"0,2", {2, 0, 2}},     {"65536(x65536)", {65536, 65536, 65536}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tasks t;
        struct err err = {0};
        cr_assert_eq(tasks_read(cases[i].text, &t, &err), 0, "%s", err.text);
        cr_assert_eq(t.nodes, cases[i].tasks.nodes, "%s: %u", cases[i].text, t.nodes);
        cr_assert_eq(t.least, cases[i].tasks.least, "%s: %u", cases[i].text, t.least);
        cr_assert_eq(t.most, cases[i].tasks.most, "%s: %u", cases[i].text, t.most);
    }
}

Test(tasks, each_node_has_its_count) {
    static const uint32_t counts[] = {1, 8, 8, 3};
    uint32_t n = 4711;
    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
        cr_assert_eq(tasks_of_node("1,8(x2),3", i, &n, NULL), 0);
        cr_assert_eq(n, counts[i], "node %u: %u", i, n);
    }
    struct err err = {0};
    n = 4711;
    cr_assert_eq(tasks_of_node("1,8(x2),3", 4, &n, &err), -ERANGE);
    cr_assert(strstr(err.text, "\"1,8(x2),3\"") != NULL && strstr(err.text, "4 nodes") != NULL, "%s", err.text);
    cr_assert_eq(tasks_of_node("1", UINT32_MAX, &n, NULL), -ERANGE);
    cr_assert_eq(tasks_of_node("1,", 0, &n, NULL), -EINVAL, "all of the text is checked");
    cr_assert_eq(n, 4711);
}

Test(tasks, an_error_names_the_place) {
    static const struct {
        const char *text;
        int code;
        const char *place;
    } cases[] = {
        {"", -EINVAL, "\"\": at character 1 "},
        {"a", -EINVAL, "at character 1 "},
        {"-1", -EINVAL, "at character 1 "},
        {"1,", -EINVAL, "at character 3 "},
        {",1", -EINVAL, "at character 1 "},
        {"1 ,2", -EINVAL, "at character 2 "},
        {"1(3)", -EINVAL, "at character 2 "},
        {"1(x)", -EINVAL, "at character 4 "},
        {"1(x2", -EINVAL, "at character 5 "},
        {"1(x2)3", -EINVAL, "at character 6 "},
        {"1(x0)", -EINVAL, "at character 4 is a count for no node"},
        {"1,65537", -ERANGE, "at character 3 "},
        {"99999999999999999999", -ERANGE, "at character 1 "},
        {"1(x65537)", -ERANGE, "at character 4 "},
        {"1(x65536),1", -ERANGE, "at character 11 there are more than 65536 nodes"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tasks t = {.nodes = 4711};
        struct err err = {0};
        int r = tasks_read(cases[i].text, &t, &err);
        cr_assert_eq(r, cases[i].code, "%s: %d", cases[i].text, r);
        cr_assert(strstr(err.text, cases[i].place) != NULL, "%s", err.text);
        cr_assert_eq(t.nodes, 4711);
        cr_assert_eq(tasks_read(cases[i].text, &t, NULL), r);
    }
}
