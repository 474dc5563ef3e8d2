/* Trees of machines: synthetic ones from tools/make_tree.py, and recorded ones. */
#pragma once

#include <spawn.h>

#include "recorded.h"
#include "rig/tree.h"

/* Runs a program from PATH to its end, and returns its exit status, or -1. */
static inline int tree_run(const char *const argv[]) {
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
        return -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* In memory if possible, because trees are thousands of small files. */
static inline void tree_new_in_memory(struct tree *t) {
    const char *tmp = getenv("TMPDIR");
    tree_new_in(t, tmp != NULL ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

/* With this many cores in each NUMA node. */
static inline void tree_machine(struct tree *t, const char *preset, unsigned cores, unsigned smt) {
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    const char *script = rig_text("%s/tools/make_tree.py", tests != NULL ? tests : "tests");
    tree_new_in_memory(t);
    cr_assert_eq(tree_run((const char *[]){"python3", script, preset, t->root, rig_text("cores=%u", cores),
                                           rig_text("smt=%u", smt), NULL}),
                 0, "%s %s", script, preset);
}

/* With one CPU per NUMA node: only the devices matter, and files take time. */
static inline void tree_preset(struct tree *t, const char *preset) { tree_machine(t, preset, 1, 1); }

/* Unpacks an archive of shared/topologies, without its top folder, into the folder `under` ("": the root), with or
 * without CPUs and NUMA nodes, and without what nobody reads. Returns false and makes nothing if it is missing. */
static inline bool tree_recorded(struct tree *t, const char *archive, const char *under, bool cpus) {
    static const char *const unread[] = {"power",     "memory[0-9]*", "LNXSYSTM:00", "usb[0-9]*",
                                         "ata[0-9]*", "cpufreq",      "cpuidle"};
    char path[RECORDED_PATH_MAX];
    if (!recorded_path(path, archive))
        return false;
    tree_new_in_memory(t);
    tree_folder(t, under);
    const char *argv[ARRAY_SIZE(unread) + 10] = {"tar", "-xf", path, "--strip-components=1", "-C", tree_at(t, under)};
    size_t n = 6;
    for (size_t i = 0; i < ARRAY_SIZE(unread); i++)
        argv[n++] = rig_text("--exclude=*/%s", unread[i]);
    if (!cpus) {
        argv[n++] = "--exclude=*/system/*";
        argv[n++] = "--exclude=*/bus/cpu/*";
        argv[n++] = "--exclude=*/sys/firmware/*";
    }
    cr_assert_eq(tree_run(argv), 0);
    return true;
}
