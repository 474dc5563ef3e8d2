#include "launcher/node/python_io.h"

#include "rig/tree.h"

static struct tree tree;

static void make(const char *name, mode_t mode) {
    tree_write(&tree, name, "#!/bin/sh\n");
    cr_assert_eq(chmod(tree_at(&tree, name), mode), 0);
}

static void setup(void) { tree_new(&tree); }
static void teardown(void) { tree_remove(&tree); }

TestSuite(python_io, .init = setup, .fini = teardown);

/* What muster, called as `argv0` (in the folder, if it has a '/'; NULL: unknown), finds with these folders on PATH and
 * one more variable; "": nothing. */
static const char *found(const char *argv0, const char *path1, const char *path2, const char *more, struct err *err) {
    static char name[128];
    char *path = rig_text("PATH=%s/%s:%s/%s", tree.root, path1, tree.root, path2);
    const char *called = rig_text("%s/%s", tree.root, argv0 != NULL ? argv0 : "");
    bool in_folder = argv0 != NULL && strchr(argv0, '/') != NULL;
    char *envp[] = {path, (char *)(uintptr_t)more, NULL};
    _cleanup_(freep) char *python = NULL;
    name[0] = '\0';
    if (python_find(in_folder ? called : argv0, envp, &python, err) == 0)
        (void)snprintf(name, sizeof name, "%s", python + strlen(tree.root) + 1);
    return name;
}

Test(python_io, prefers_python3_to_python_if_it_can_be_executed) {
    struct err err = {0};
    cr_assert_str_eq(found(NULL, ".", ".", NULL, &err), "");
    cr_assert_str_eq(err.text, "no python3 or python on PATH or beside muster; set PYTHON_EXEC or use "
                               "--no-python");
    make("python", 0755);
    make("python3", 0644);
    cr_assert_str_eq(found(NULL, ".", ".", NULL, &err), "./python");
    make("python3", 0755);
    cr_assert_str_eq(found(NULL, ".", ".", NULL, &err), "./python3");
}

Test(python_io, obeys_python_exec) {
    struct err err = {0};
    make("python3", 0755);
    make("mine", 0755);
    const char *more = rig_text("PYTHON_EXEC=%s/mine", tree.root);
    cr_assert_str_eq(found(NULL, ".", ".", "PYTHON_EXEC=mine", &err), "./mine");
    cr_assert_str_eq(found(NULL, ".", ".", more, &err), "mine");
    cr_assert_str_eq(found(NULL, ".", ".", "PYTHON_EXEC=", &err), "./python3");
    cr_assert_str_eq(found(NULL, ".", ".", "PYTHON_EXEC=other", &err), "");
    assert_has(err.text, "PYTHON_EXEC=other can't be run");
}

/* env is an environment with a muster and a python3; sys has a muster, a link to that of env, and perhaps a python3. */
Test(python_io, an_environments_python_goes_before_others) {
    static const struct {
        const char *argv0, *path1, *path2;
        bool sys_python;
        const char *want;
    } cases[] = {
        {"env/bin/muster", "", "sys", true, "env/bin/python3"}, /* its own */
        {"muster", "none", "env/bin", true, "env/bin/python3"},
        {"sys/torchrun", "sys", "sys", true, "env/bin/python3"},
        {"sys/muster", "env/bin", "sys", true, "env/bin/python3"}, /* the active one */
        {"muster", "sys", "sys", true, "sys/python3"},
        {"sys/muster", ".", "sys", true, "sys/python3"}, /* before one on PATH that belongs to none */
        {"sys/muster", ".", "sys", false, "./python3"},
    };
    static const char *const programs[] = {"env/bin/muster", "env/bin/python3", "sys/muster", "python3"};
    struct err err = {0};
    make("env/pyvenv.cfg", 0644);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
        make(programs[i], 0755);
    tree_link(&tree, "sys/torchrun", "../env/bin/muster");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        make("sys/python3", cases[i].sys_python ? 0755 : 0644);
        cr_expect_str_eq(found(cases[i].argv0, cases[i].path1, cases[i].path2, NULL, &err), cases[i].want, "case %zu",
                         i);
    }
}
