#include "base/list.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

struct item {
    struct list link;
    char name;
};

static const char *names(struct strbuf *s, struct list *head) {
    strbuf_clear(s);
    LIST_FOR_EACH(struct item, it, head, link)
        strbuf_add_char(s, it->name);
    return strbuf_text(s);
}

Test(list, append_and_prepend_keep_their_ends) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct list head = LIST_INIT(head);
    struct item a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    list_append(&head, &b.link);
    list_append(&head, &c.link);
    list_prepend(&head, &a.link);
    cr_assert_str_eq(names(&s, &head), "abc");
    cr_assert_eq(LIST_FIRST(struct item, &head, link), &a);
}

Test(list, removal_at_front_middle_and_end) {
    struct item it[5] = {{.name = 'a'}, {.name = 'b'}, {.name = 'c'}, {.name = 'd'}, {.name = 'e'}};
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct list head = LIST_INIT(head);
    for (size_t i = 0; i < ARRAY_SIZE(it); i++)
        list_append(&head, &it[i].link);
    list_remove(&it[2].link);
    cr_assert_str_eq(names(&s, &head), "abde");
    list_remove(&it[0].link);
    cr_assert_str_eq(names(&s, &head), "bde");
    list_remove(&it[4].link);
    cr_assert_str_eq(names(&s, &head), "bd");
    list_remove(&it[1].link);
    list_remove(&it[3].link);
    cr_assert(list_empty(&head));
}

Test(list, linked_says_whether_an_element_is_in_a_list) {
    struct list head = LIST_INIT(head);
    struct item a = {.name = 'a'}, zeroed = {.name = 'z'};
    list_init(&a.link);
    cr_assert_not(list_linked(&a.link));
    cr_assert_not(list_linked(&zeroed.link));
    list_remove(&zeroed.link); /* does no harm */
    cr_assert_not(list_linked(&zeroed.link));
    list_append(&head, &a.link);
    cr_assert(list_linked(&a.link));
    list_remove(&a.link);
    cr_assert_not(list_linked(&a.link));
}

Test(list, an_element_can_leave_while_the_list_is_walked) {
    struct item it[4] = {{.name = 'a'}, {.name = 'b'}, {.name = 'c'}, {.name = 'd'}};
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct list head = LIST_INIT(head), other = LIST_INIT(other);
    for (size_t i = 0; i < ARRAY_SIZE(it); i++)
        list_append(&head, &it[i].link);
    LIST_FOR_EACH(struct item, e, &head, link) {
        if (e->name == 'a' || e->name == 'd') {
            list_remove(&e->link);
            list_prepend(&other, &e->link);
        }
    }
    cr_assert_str_eq(names(&s, &head), "bc");
    cr_assert_str_eq(names(&s, &other), "da");
}
