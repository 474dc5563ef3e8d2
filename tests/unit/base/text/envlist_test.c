#include "base/text/envlist.h"

#include "rig/unit.h"

static char *const outer[] = {(char *)(uintptr_t) "A=1",
                              (char *)(uintptr_t) "B=two=2",
                              (char *)(uintptr_t) "broken",
                              (char *)(uintptr_t) "=x",
                              (char *)(uintptr_t) "A=second",
                              (char *)(uintptr_t) "E=",
                              NULL};

static struct envlist e;

static void finish(void) { envlist_fini(&e); }
TestSuite(envlist, .fini = finish);

Test(envlist, copies_names_once_and_leaves_out_what_is_no_variable) {
    envlist_copy(&e, outer);
    cr_assert_eq(e.n, 3);
    cr_assert_str_eq(envlist_get(&e, "A"), "1");
    cr_assert_str_eq(envlist_get(&e, "B"), "two=2");
    cr_assert_str_eq(envlist_get(&e, "E"), "");
    cr_assert_null(envlist_get(&e, "broken"));
    cr_assert_null(e.items[e.n]);
}

Test(envlist, a_name_is_not_its_beginning) {
    envlist_set(&e, "RANK_X", "1");
    cr_assert_null(envlist_get(&e, "RANK"));
    envlist_set(&e, "RANK", "2");
    cr_assert_str_eq(envlist_get(&e, "RANK_X"), "1");
    cr_assert_str_eq(envlist_get(&e, "RANK"), "2");
}

Test(envlist, set_replaces_in_place) {
    envlist_copy(&e, outer);
    envlist_setf(&e, "A", "%d-%s", 7, "x");
    cr_assert_eq(e.n, 3);
    cr_assert_str_eq(envlist_items(&e)[0], "A=7-x");
}

Test(envlist, unset_removes_one_or_all_of_a_prefix) {
    envlist_copy(&e, outer);
    envlist_set(&e, "MUSTER_A", "1");
    envlist_set(&e, "MUSTER_B", "1");
    envlist_set(&e, "MUSTER", "stays");
    envlist_unset_prefix(&e, "MUSTER_");
    envlist_unset(&e, "A");
    envlist_unset(&e, "not there");
    cr_assert_eq(e.n, 3);
    cr_assert_null(envlist_get(&e, "MUSTER_A"));
    cr_assert_null(envlist_get(&e, "A"));
    cr_assert_str_eq(envlist_get(&e, "MUSTER"), "stays");
    cr_assert_null(envlist_items(&e)[3]);
}

Test(envlist, forget_overwrites_and_removes) {
    envlist_set(&e, "KEY", "secret");
    envlist_set(&e, "B", "2");
    envlist_forget(&e, "KEY");
    envlist_forget(&e, "KEY");
    cr_assert_null(envlist_get(&e, "KEY"));
    cr_assert_str_eq(envlist_items(&e)[0], "B=2");
    cr_assert_eq(e.n, 1);
}

Test(envlist, an_empty_list_is_an_environment_too) {
    envlist_copy(&e, NULL);
    envlist_unset(&e, "A");
    cr_assert_not_null(envlist_items(&e));
    cr_assert_null(envlist_items(&e)[0]);
}

Test(envlist, grows_beyond_its_first_block) {
    for (int i = 0; i < 200; i++)
        envlist_setf(&e, rig_text("N%d", i), "%d", i);
    cr_assert_eq(e.n, 200);
    cr_assert_str_eq(envlist_get(&e, "N199"), "199");
    cr_assert_null(e.items[200]);
}

Test(envlist, env_get_reads_a_plain_environment) {
    cr_assert_str_eq(env_get(outer, "B"), "two=2");
    cr_assert_null(env_get(outer, "C"));
    cr_assert_null(env_get(NULL, "A"));
}
