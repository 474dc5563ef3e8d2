/* A folder of the test's own, which can replace "/". Paths are relative to it. */
#pragma once

#include <ftw.h>

#include "rig/unit.h"

#define TREE_PATH_MAX 4096

struct tree {
    char root[128]; /* "": none */
};

/* Fails the test if that is not possible. */
static inline void tree_new_in(struct tree *t, const char *where) {
    (void)snprintf(t->root, sizeof t->root, "%s/muster-test-XXXXXX", where);
    cr_assert_not_null(mkdtemp(t->root));
}
static inline void tree_new(struct tree *t) { tree_new_in(t, "/tmp"); }

static inline int tree_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    return remove(path);
}

/* Removes the folder and its contents; does nothing if there is none. */
static inline void tree_remove(struct tree *t) {
    if (t->root[0] != '\0')
        (void)nftw(t->root, tree_remove_one, 32, FTW_DEPTH | FTW_PHYS);
    t->root[0] = '\0';
}

/* Makes its folders, and removes what exists there. */
static inline void tree_place(const struct tree *t, const char *path, char full[TREE_PATH_MAX * 2]) {
    (void)snprintf(full, TREE_PATH_MAX * 2, "%s/%s", t->root, path);
    for (char *slash = full + strlen(t->root); (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    (void)remove(full);
}

/* An existing file is replaced; folders are made. */
static inline void tree_write_bytes(const struct tree *t, const char *path, const void *bytes, size_t len) {
    char full[TREE_PATH_MAX * 2];
    tree_place(t, path, full);
    FILE *f = fopen(full, "w");
    cr_assert_not_null(f, "%s", full);
    cr_assert_eq(fwrite(bytes, 1, len, f), len);
    cr_assert_eq(fclose(f), 0);
}

static inline void tree_write(const struct tree *t, const char *path, const char *text) {
    tree_write_bytes(t, path, text, strlen(text));
}

static inline void tree_link(const struct tree *t, const char *path, const char *target) {
    char full[TREE_PATH_MAX * 2];
    tree_place(t, path, full);
    cr_assert_eq(symlink(target, full), 0, "%s", full);
}

static inline void tree_delete(const struct tree *t, const char *path) {
    char full[TREE_PATH_MAX * 2];
    tree_place(t, path, full);
    cr_assert_neq(access(full, F_OK), 0, "%s is still there", full);
}

static inline void tree_pipe(const struct tree *t, const char *path) {
    char full[TREE_PATH_MAX * 2];
    tree_place(t, path, full);
    cr_assert_eq(mkfifo(full, 0644), 0, "%s", full);
}

static inline void tree_folder(const struct tree *t, const char *path) {
    char full[TREE_PATH_MAX * 2];
    tree_place(t, rig_text("%s/x", path), full);
}

/* "PATH=TEXT" and "PATH" (a folder if it ends with "/"), separated by blanks; in TEXT "~" is a blank, "|" a newline. */
static inline void tree_files(const struct tree *t, const char *files) {
    _cleanup_(freep) char *copy = xstrdup(files);
    for (char *rest = copy, *path; (path = strsep(&rest, " ")) != NULL;) {
        char *text = strchr(path, '=');
        if (text != NULL)
            *text++ = '\0';
        for (char *c = text; c != NULL && *c != '\0'; c++)
            *c = *c == '~' ? ' ' : *c == '|' ? '\n' : *c;
        if (path[0] != '\0' && path[strlen(path) - 1] == '/')
            tree_folder(t, path);
        else if (path[0] != '\0')
            tree_write(t, path, text != NULL ? text : "");
    }
}

/* A path, valid as long as a rig_text(). */
static inline const char *tree_at(const struct tree *t, const char *path) { return rig_text("%s/%s", t->root, path); }
