#include "tree.h"

#include <ftw.h>

#include "rig/unit.h"

static char root[64];

void tree_new(void) {
    (void)snprintf(root, sizeof root, "/tmp/muster-tree-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

void tree_remove(void) {
    if (root[0] != '\0')
        cr_assert_eq(nftw(root, drop, 8, FTW_DEPTH | FTW_PHYS), 0);
    root[0] = '\0';
}

const char *tree_root(void) { return root; }

static void make_parents(char *path) {
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        cr_assert(mkdir(path, 0755) == 0 || errno == EEXIST, "%s", path);
        *p = '/';
    }
}

void tree_bytes(const char *path, const void *data, size_t len) {
    _cleanup_(freep) char *full = xasprintf("%s%s", root, path);
    make_parents(full);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0, "%s", full);
    cr_assert_eq(write(fd, data, len), (ssize_t)len);
    cr_assert_eq(close(fd), 0);
}

void tree_file(const char *path, const char *text) { tree_bytes(path, text, strlen(text)); }

void tree_folder(const char *path) {
    _cleanup_(freep) char *full = xasprintf("%s%s/", root, path);
    make_parents(full);
}
