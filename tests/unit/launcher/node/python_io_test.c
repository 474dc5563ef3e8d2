#include "launcher/node/python_io.h"

#include "rig/unit.h"

static char folder[64];

static void make(const char *name, mode_t mode) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    (void)fputs("#!/bin/sh\n", f);
    cr_assert_eq(fclose(f), 0);
    cr_assert_eq(chmod(path, mode), 0);
}

static void setup(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/muster-python-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void teardown(void) {
    static const char *const names[] = {"env/bin/python3",
                                        "env/bin/muster",
                                        "env/pyvenv.cfg",
                                        "env/bin",
                                        "env",
                                        "sys/python3",
                                        "sys/muster",
                                        "sys/torchrun",
                                        "sys",
                                        "python3",
                                        "python",
                                        "mine"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    (void)rmdir(folder);
}

TestSuite(python_io, .init = setup, .fini = teardown);

/* What is found with PATH=folder and one more variable; "" and *err if nothing is found. */
static const char *found(const char *more, struct err *err) {
    static char name[128];
    char path[128];
    (void)snprintf(path, sizeof path, "PATH=%s", folder);
    char *envp[] = {path, (char *)(uintptr_t)more, NULL};
    _cleanup_(freep) char *python = NULL;
    name[0] = '\0';
    if (python_find(NULL, envp, &python, err) == 0) {
        cr_assert_eq(strncmp(python, folder, strlen(folder)), 0, "%s", python);
        (void)snprintf(name, sizeof name, "%s", python + strlen(folder) + 1);
    }
    return name;
}

Test(python_io, prefers_python3_to_python) {
    struct err err = {0};
    make("python", 0755);
    cr_assert_str_eq(found("A=", &err), "python");
    make("python3", 0755);
    cr_assert_str_eq(found("A=", &err), "python3");
}

Test(python_io, passes_over_what_can_not_be_executed) {
    struct err err = {0};
    make("python3", 0644);
    make("python", 0755);
    cr_assert_str_eq(found("A=", &err), "python");
}

Test(python_io, obeys_python_exec) {
    struct err err = {0};
    make("python3", 0755);
    make("mine", 0755);
    char more[128];
    cr_assert_str_eq(found("PYTHON_EXEC=mine", &err), "mine");
    (void)snprintf(more, sizeof more, "PYTHON_EXEC=%s/mine", folder);
    cr_assert_str_eq(found(more, &err), "mine");
    cr_assert_str_eq(found("PYTHON_EXEC=", &err), "python3");
    cr_assert_str_eq(found("PYTHON_EXEC=other", &err), "");
    assert_has(err.text, "PYTHON_EXEC=other can't be run");
}

Test(python_io, says_what_to_do_when_there_is_none) {
    struct err err = {0};
    cr_assert_str_eq(found("A=", &err), "");
    cr_assert_str_eq(err.text, "no python3 or python on PATH or beside muster; set PYTHON_EXEC or use "
                               "--no-python");
}

/* Makes env/bin with a muster, a python3 and the mark of a venv, and sys, which has a muster and
 * no mark. */
static void make_folders(bool sys_python) {
    static const char *const folders[] = {"env", "env/bin", "sys"};
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        cr_assert_eq(mkdir(path, 0755), 0);
    }
    make("env/pyvenv.cfg", 0644);
    make("env/bin/muster", 0755);
    make("env/bin/python3", 0755);
    make("sys/muster", 0755);
    if (sys_python)
        make("sys/python3", 0755);
}

/* What "argv0" (in the folder, unless it has no '/') finds with PATH="path1:path2" of the folder. */
static const char *beside(const char *argv0, const char *path1, const char *path2, const char *more) {
    static char name[128];
    char path[256], called[128];
    (void)snprintf(path, sizeof path, "PATH=%s/%s:%s/%s", folder, path1, folder, path2);
    (void)snprintf(called, sizeof called, "%s%s%s", strchr(argv0, '/') != NULL ? folder : "",
                   strchr(argv0, '/') != NULL ? "/" : "", argv0);
    char *envp[] = {path, (char *)(uintptr_t)more, NULL};
    _cleanup_(freep) char *python = NULL;
    struct err err = {0};
    cr_assert_eq(python_find(called, envp, &python, &err), 0, "%s", err.text);
    (void)snprintf(name, sizeof name, "%s", python + strlen(folder) + 1);
    return name;
}

Test(python_io, takes_the_one_of_its_own_environment) {
    make_folders(true);
    make("python3", 0755);
    cr_assert_str_eq(beside("env/bin/muster", "", "sys", NULL), "env/bin/python3");
    cr_assert_str_eq(beside("muster", "none", "env/bin", NULL), "env/bin/python3");
}

Test(python_io, obeys_python_exec_in_an_environment) {
    make_folders(true);
    char more[128];
    (void)snprintf(more, sizeof more, "PYTHON_EXEC=%s/sys/python3", folder);
    cr_assert_str_eq(beside("env/bin/muster", "env/bin", "sys", more), "sys/python3");
}

Test(python_io, of_the_system_serves_the_environment_on_path) {
    make_folders(true);
    cr_assert_str_eq(beside("sys/muster", "env/bin", "sys", NULL), "env/bin/python3");
    cr_assert_str_eq(beside("muster", "sys", "sys", NULL), "sys/python3");
}

Test(python_io, goes_before_a_python_on_path_that_belongs_to_no_environment) {
    make_folders(true);
    make("python3", 0755);
    cr_assert_str_eq(beside("sys/muster", ".", "sys", NULL), "sys/python3");
}

Test(python_io, follows_a_link_into_an_environment) {
    make_folders(true);
    char from[128];
    (void)snprintf(from, sizeof from, "%s/sys/torchrun", folder);
    cr_assert_eq(symlink("../env/bin/muster", from), 0);
    cr_assert_str_eq(beside("sys/torchrun", "sys", "sys", NULL), "env/bin/python3");
}

Test(python_io, passes_over_a_folder_without_one) {
    make_folders(false);
    make("python3", 0755);
    cr_assert_str_eq(beside("sys/muster", ".", "sys", NULL), "./python3");
}
