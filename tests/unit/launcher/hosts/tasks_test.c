#include "launcher/hosts/hosts.h"

#include "rig/unit.h"

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
        cr_assert_eq(tasks_read(cases[i].text, 0, &t), 0, "%s", cases[i].text);
        cr_assert_eq(t.nodes, cases[i].tasks.nodes, "%s: %u", cases[i].text, t.nodes);
        cr_assert_eq(t.least, cases[i].tasks.least, "%s: %u", cases[i].text, t.least);
        cr_assert_eq(t.most, cases[i].tasks.most, "%s: %u", cases[i].text, t.most);
    }
}

Test(tasks, each_node_has_its_count) {
    static const uint32_t counts[] = {1, 8, 8, 3};
    struct tasks t;
    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
        cr_assert_eq(tasks_read("1,8(x2),3", i, &t), 0);
        cr_assert_eq(t.of_node, counts[i], "node %u: %u", i, t.of_node);
    }
}

Test(tasks, other_texts_are_refused) {
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", -EINVAL},
        {"a", -EINVAL},
        {"-1", -EINVAL},
        {"1,", -EINVAL},
        {",1", -EINVAL},
        {"1 ,2", -EINVAL},
        {"1(3)", -EINVAL},
        {"1(x)", -EINVAL},
        {"1(x2", -EINVAL},
        {"1(x2)3", -EINVAL},
        {"1(x0)", -EINVAL},
        {"1,65537", -ERANGE},
        {"1(x65537)", -ERANGE},
        {"99999999999999999999", -ERANGE},
        {"1(x65536),1", -ERANGE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tasks t = {.nodes = 4711};
        int r = tasks_read(cases[i].text, 0, &t);
        cr_assert_eq(r, cases[i].code, "%s: %d", cases[i].text, r);
        cr_assert_eq(t.nodes, 4711);
    }
}
