#include <string.h>

#include "io/process/child.h"

static char **copy_list(char *const *list) {
    size_t n = 0;
    if (list == NULL)
        return NULL;
    while (list[n] != NULL)
        n++;
    char **copy = xcalloc(n + 1, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(list[i]);
    return copy;
}

static void *copy_bytes(const void *bytes, size_t n) {
    if (bytes == NULL)
        return NULL;
    void *copy = xcalloc(1, MAX2(n, 1u));
    memcpy(copy, bytes, n);
    return copy;
}

struct child_spec *child_spec_copy(const struct child_spec *spec) {
    struct child_spec *copy = xcalloc(1, sizeof *copy);
    *copy = *spec;
    copy->argv = copy_list(spec->argv);
    copy->envp = copy_list(spec->envp);
    copy->cwd = spec->cwd != NULL ? xstrdup(spec->cwd) : NULL;
    copy->cpuset = copy_bytes(spec->cpuset, spec->cpuset_bytes);
    copy->memory_nodes = copy_bytes(spec->memory_nodes, spec->memory_nodes_bytes);
    return copy;
}

void child_spec_free(struct child_spec *copy) {
    if (copy == NULL)
        return;
    words_free((char **)(uintptr_t)copy->argv);
    words_free((char **)(uintptr_t)copy->envp);
    free((void *)(uintptr_t)copy->cwd);
    free((void *)(uintptr_t)copy->cpuset);
    free((void *)(uintptr_t)copy->memory_nodes);
    free(copy);
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_bytes(const void *a, size_t n, const void *b, size_t m) {
    return a == NULL || b == NULL ? a == b : n == m && memcmp(a, b, n) == 0;
}

static bool same_list(char *const *a, char *const *b) {
    size_t i = 0;
    while (a[i] != NULL && same_text(a[i], b[i]))
        i++;
    return a[i] == NULL && b[i] == NULL;
}

bool child_spec_alike(const struct child_spec *a, const struct child_spec *b) {
    return same_list(a->argv, b->argv) && same_text(a->cwd, b->cwd) && a->setsid == b->setsid &&
           a->own_group == b->own_group && a->death_signal == b->death_signal &&
           a->no_new_privs == b->no_new_privs && a->keep_nohup == b->keep_nohup &&
           a->readable == b->readable && a->no_core == b->no_core &&
           a->nofile_soft == b->nofile_soft &&
           same_bytes(a->cpuset, a->cpuset_bytes, b->cpuset, b->cpuset_bytes) &&
           a->memory == b->memory &&
           same_bytes(a->memory_nodes, a->memory_nodes_bytes, b->memory_nodes,
                      b->memory_nodes_bytes);
}
