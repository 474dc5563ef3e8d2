#include "launcher/slurm/place_io.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
        struct slurm_here here;
        slurm_here_read(&here);
        bool named = here.facts.parent != NULL && strcmp(here.facts.parent, between != NULL ? between : name) == 0;
        _exit((here.facts.stepd != NULL ? 1 : 0) + (here.facts.stepd_is_parent ? 2 : 0) + (named ? 4 : 0) +
              (here.facts.cgroup != NULL ? 8 : 0));
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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
