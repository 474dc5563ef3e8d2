#include "tree_rig.h"

#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "recorded.h"

int tree_run(const char *const argv[]) {
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
        return -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void tree_new(struct tree *t) {
    const char *tmp = getenv("TMPDIR");
    if (tmp == NULL)
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* thousands of small files */
    (void)snprintf(t->root, sizeof t->root, "%s/muster-tree-XXXXXX", tmp);
    cr_assert_not_null(mkdtemp(t->root));
}

void tree_machine(struct tree *t, const char *preset, unsigned cores, unsigned smt) {
    char script[TREE_PATH_MAX], cores_word[32], smt_word[32];
    (void)snprintf(cores_word, sizeof cores_word, "cores=%u", cores);
    (void)snprintf(smt_word, sizeof smt_word, "smt=%u", smt);
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    (void)snprintf(script, sizeof script, "%s/tools/make_tree.py", tests != NULL ? tests : "tests");
    tree_new(t);
    cr_assert_eq(tree_run((const char *[]){"python3", script, preset, t->root, cores_word, smt_word, NULL}), 0, "%s %s",
                 script, preset);
}

void tree_preset(struct tree *t, const char *preset) { tree_machine(t, preset, 1, 1); }

bool tree_recorded(struct tree *t, const char *archive, const char *under) {
    char path[RECORDED_PATH_MAX], into[TREE_PATH_MAX * 2];
    if (!recorded_path(path, archive))
        return false;
    tree_new(t);
    (void)snprintf(into, sizeof into, "%s/%s", t->root, under);
    cr_assert_eq(tree_run((const char *[]){"mkdir", "-p", into, NULL}), 0);
    cr_assert_eq(
        tree_run((const char *[]){"tar", "-xf", path, "--strip-components=1", "-C", into, "--exclude=*/system/*",
                                  "--exclude=*/bus/cpu/*", "--exclude=*/sys/firmware/*", NULL}),
        0);
    return true;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) { return remove(path); }

void tree_remove(struct tree *t) {
    if (t->root[0] != '\0')
        (void)nftw(t->root, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    t->root[0] = '\0';
}

/* Makes its folders, and removes what exists there. */
static void place(const struct tree *t, const char *path, char full[TREE_PATH_MAX * 2]) {
    (void)snprintf(full, TREE_PATH_MAX * 2, "%s/%s", t->root, path);
    for (char *slash = full + strlen(t->root); (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    (void)remove(full);
}

void tree_write_bytes(const struct tree *t, const char *path, const void *bytes, size_t len) {
    char full[TREE_PATH_MAX * 2];
    place(t, path, full);
    FILE *f = fopen(full, "w");
    cr_assert_not_null(f, "%s", full);
    cr_assert_eq(fwrite(bytes, 1, len, f), len);
    cr_assert_eq(fclose(f), 0);
}

void tree_write(const struct tree *t, const char *path, const char *text) {
    tree_write_bytes(t, path, text, strlen(text));
}

void tree_link(const struct tree *t, const char *path, const char *target) {
    char full[TREE_PATH_MAX * 2];
    place(t, path, full);
    cr_assert_eq(symlink(target, full), 0, "%s", full);
}

void tree_delete(const struct tree *t, const char *path) {
    char full[TREE_PATH_MAX * 2];
    place(t, path, full);
    cr_assert_neq(access(full, F_OK), 0, "%s is still there", full);
}

void tree_pipe(const struct tree *t, const char *path) {
    char full[TREE_PATH_MAX * 2];
    place(t, path, full);
    cr_assert_eq(mkfifo(full, 0644), 0, "%s", full);
}
