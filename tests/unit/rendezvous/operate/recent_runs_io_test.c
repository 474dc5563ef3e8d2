#include "rendezvous/operate/recent_runs_io.h"

#include <dirent.h>

#include "rendezvous/operate/registry_io.h"
#include "rig/tree.h"

static struct tree tree;
static struct err err;
static struct recent_run *list;
static size_t n;

static void begin(void) {
    tree_new(&tree);
    (void)setenv("MUSTER_RUN_DIR", tree_at(&tree, "run"), 1);
}

static void finish(void) {
    free(list);
    tree_remove(&tree);
}

TestSuite(recent_runs_io, .init = begin, .fini = finish);

static void add(const char *run_id, const char *dir) {
    cr_assert_eq(recent_runs_add(run_id, 0, dir, &err), 0, "%s", err.text);
}

static void look(void) {
    free(list);
    cr_assert_eq(recent_runs_list(&list, &n, &err), 0, "%s", err.text);
}

static void look_for(size_t expected) {
    look();
    cr_assert_eq(n, expected);
}

Test(recent_runs_io, the_newest_comes_first_and_each_once) {
    look_for(0);
    add("a \"quoted\"\n id", "/logs/a");
    add("b", NULL);
    add("a \"quoted\"\n id", "/logs/a");
    add("b", "/logs/b");
    look_for(3);
    cr_assert_str_eq(list[0].log_dir, "/logs/b");
    cr_assert_str_eq(list[1].run_id, "a \"quoted\"\n id");
    cr_assert_str_eq(list[2].log_dir, "");
    cr_assert_geq(list[0].since_wall_ns, list[1].since_wall_ns);
}

/* A node that comes late, or again, and one that has waited for others. */
Test(recent_runs_io, a_run_is_as_old_as_its_job) {
    cr_assert_eq(recent_runs_add("old", 3600 * NS_PER_S, NULL, &err), 0, "%s", err.text);
    add("new", NULL);
    cr_assert_eq(recent_runs_end("old", OUTCOME_SUCCESS, "", &err), 0, "%s", err.text);
    look_for(2);
    uint64_t ran_ns = list[1].ended_wall_ns - list[1].since_wall_ns;
    cr_assert(ran_ns >= 3600 * NS_PER_S && ran_ns < 3660 * NS_PER_S, "%llu", (unsigned long long)ran_ns);
}

Test(recent_runs_io, the_end_is_of_the_newest_run_of_that_name) {
    add("a", "/logs/1");
    add("a", "/logs/2");
    cr_assert_eq(recent_runs_end("a", OUTCOME_FAILED, "rank 0 died", &err), 0, "%s", err.text);
    look_for(2);
    cr_assert_str_eq(list[0].log_dir, "/logs/2");
    cr_assert_eq(list[0].outcome, OUTCOME_FAILED);
    cr_assert_str_eq(list[0].reason, "rank 0 died");
    cr_assert_geq(list[0].ended_wall_ns, list[0].since_wall_ns);
    cr_assert_eq(list[1].ended_wall_ns, 0);
    add("a", "/logs/2"); /* it runs again */
    cr_assert_eq(recent_runs_end("never started", OUTCOME_NONE, "x", &err), 0, "%s", err.text);
    look_for(3);
    cr_assert_eq(list[1].ended_wall_ns, 0);
    cr_assert_str_eq(list[0].run_id, "never started");
}

Test(recent_runs_io, a_name_is_a_whole_id_or_the_beginning_of_one) {
    add("digits-1", NULL);
    add("digits-1", "/logs/folder");
    add("digits-10", NULL);
    add("other", NULL);
    look();
    cr_assert_str_eq(list[recent_runs_find(list, n, "digits-1")].log_dir, "/logs/folder");
    cr_assert_str_eq(list[recent_runs_find(list, n, "folder")].run_id, "digits-1");
    cr_assert_str_eq(list[recent_runs_find(list, n, "o")].run_id, "other");
    cr_assert_eq(recent_runs_find(list, n, "digits"), -EEXIST);
    struct registry_own own;
    cr_assert_eq(registry_add("digits-10", "127.0.0.1", 1, &own, &err), 0, "%s", err.text);
    look();
    cr_assert_str_eq(list[recent_runs_find(list, n, "digits")].run_id, "digits-10", "it runs");
    cr_assert_str_eq(list[recent_runs_find(list, n, "digits-1")].run_id, "digits-1", "the whole id");
    registry_remove(&own);
    cr_assert_eq(recent_runs_find(list, n, "none"), -ENOENT);
    cr_assert_eq(recent_runs_find(list, n, ""), -ENOENT);
    cr_assert(run_id_begins("a:b", "a") && !run_id_begins("a:b", "a:"));
}

Test(recent_runs_io, a_relative_folder_is_kept_absolute) {
    cr_assert_eq(chdir(tree.root), 0);
    add("a", "logs/a");
    look();
    cr_assert_str_eq(list[0].log_dir, rig_text("%s/logs/a", tree.root));
}

Test(recent_runs_io, old_ones_are_forgotten_and_rubbish_is_ignored) {
    char name[32];
    for (int i = 0; i < 3 * RECENT_RUNS_KEPT; i++) {
        (void)snprintf(name, sizeof name, "run %d", i);
        add(name, "/logs");
    }
    tree_write(&tree, "run/run-rubbish", "{\"run_id\": 3}");
    look();
    cr_assert_leq(n, RECENT_RUNS_KEPT + RECENT_RUNS_KEPT / 4);
    cr_assert_geq(n, RECENT_RUNS_KEPT);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "run %d", 3 * RECENT_RUNS_KEPT - 1 - (int)i);
        cr_assert_str_eq(list[i].run_id, name);
    }
}

/* As a power failure leaves them. Else they would be read at each start from then on. */
Test(recent_runs_io, many_damaged_ones_are_removed) {
    add("a", "/logs");
    for (int i = 0; i < 2 * RECENT_RUNS_KEPT; i++)
        tree_write(&tree, rig_text("run/run-%016x", i), i % 2 == 0 ? "" : "{\"run_id\": 3}");
    add("b", "/logs");
    for (int i = 0; i < 2 * RECENT_RUNS_KEPT; i++)
        cr_assert_neq(access(tree_at(&tree, rig_text("run/run-%016x", i)), F_OK), 0);
    look_for(2);
}
