#include "launcher/place/place_io.h"

#include <sys/prctl.h>

#include "rig/unit.h"

/* What a child of this process sees; `between`: the name of a process between the two, or NULL. The
 * exit status is a digit for each fact. */
static int seen_below(const char *name, const char *between) {
    pid_t pid = fork();
    if (pid == 0) {
        int status;
        if (between != NULL) {
            (void)prctl(PR_SET_NAME, between);
            pid_t inner = fork();
            if (inner > 0)
                _exit(waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 99);
        }
        struct place_facts here;
        place_facts_read(NULL, &here);
        bool named = here.parent != NULL && strcmp(here.parent, between != NULL ? between : name) == 0;
        _exit((here.stepd != NULL ? 1 : 0) + (here.stepd_is_parent ? 2 : 0) + (named ? 4 : 0) +
              (here.cgroup != NULL ? 8 : 0));
    }
    return rig_status(pid);
}

static int kernel_has_groups(void) { return access("/proc/self/cgroup", R_OK) == 0 ? 8 : 0; }

Test(place_io, finds_the_nearest_slurmstepd) {
    (void)prctl(PR_SET_NAME, "slurmstepd");
    cr_expect_eq(seen_below("slurmstepd", NULL), 1 + 2 + 4 + kernel_has_groups());
    cr_expect_eq(seen_below("slurmstepd", "bash"), 1 + 4 + kernel_has_groups());
}

Test(place_io, finds_none_where_there_is_none) {
    (void)prctl(PR_SET_NAME, "slurmd");
    cr_expect_eq(seen_below("slurmd", NULL) & ~1, 4 + kernel_has_groups());
}

Test(place_io, a_folder_of_this_machine_is_not_shared) { cr_expect_null(shared_folder("/proc")); }

/* A team can have one working folder, and the first of them has made the folder in it. */
Test(place_io, another_users_folder_is_not_used) {
    char top[] = "/tmp/place_io.XXXXXX", path[64], file[64];
    cr_assert_not_null(mkdtemp(top));
    (void)snprintf(path, sizeof path, "%s/.muster", top);
    (void)snprintf(file, sizeof file, "%s/file", top);
    bool made_later = folder_is_usable(path);
    int r = mkdir(path, 0700);
    bool own = folder_is_usable(path);
    r += chmod(path, 0770);
    bool open_to_others = folder_is_usable(path);
    r += chmod(path, 0700) + (geteuid() == 0 ? chown(path, 12345, 0) : 0);
    bool of_another = geteuid() == 0 && folder_is_usable(path);
    r += mkdir(file, 0700) + rmdir(file) + symlink(top, file);
    bool link = folder_is_usable(file);
    r += unlink(file) + rmdir(path);
    r += rmdir(top);
    cr_assert_eq(r, 0);
    cr_expect(made_later && own);
    cr_expect(!open_to_others && !of_another && !link);
    cr_expect_not(folder_is_usable(path), "nothing is above it");
}
