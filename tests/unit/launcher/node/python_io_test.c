#include "launcher/node/python_io.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    static const char *const names[] = {"python3", "python", "mine"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
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
    if (python_find(envp, &python, err) == 0) {
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
    cr_assert_not_null(strstr(err.text, "PYTHON_EXEC=other can't be run"), "%s", err.text);
}

Test(python_io, says_what_to_do_when_there_is_none) {
    struct err err = {0};
    cr_assert_str_eq(found("A=", &err), "");
    cr_assert_str_eq(err.text, "no python3 or python on PATH; set PYTHON_EXEC or use --no-python");
}
