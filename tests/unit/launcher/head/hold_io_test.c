#include "launcher/head/hold_io.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

static char dir[64];
static char name[HOLD_NAME_MAX];
static int claimed = -1; /* what hold_claim() returned: only the agent has it */

static void begin(void) {
    (void)snprintf(dir, sizeof dir, "/tmp/muster-hold-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(setenv("MUSTER_RUN_DIR", dir, 1), 0);
    hold_name("cluster.28.0", 3, name);
    (void)alarm(60);
}

static void end(void) {
    char path[sizeof dir + sizeof name];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)unlink(path);
    (void)rmdir(dir);
}

static bool file_exists(void) {
    char path[sizeof dir + sizeof name];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static pid_t start_holder(uint32_t others, uint64_t start_ns) {
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0 && claimed >= 0)
        (void)close(claimed);
    if (pid == 0)
        _exit(hold_wait(name, others, start_ns));
    return pid;
}

static int status_of(pid_t pid) {
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void tell(int status) {
    hold_tell(claimed, status);
    claimed = -1;
}

/* It has opened the file, or is about to: a process that waits for a lock shows it. */
static void await_holder(pid_t pid) {
    char path[64], text[256];
    bool waits = false;
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", pid);
    while (!waits) {
        FILE *f = fopen(path, "re");
        cr_assert_not_null(f);
        waits = fgets(text, sizeof text, f) != NULL && strncmp(text, "running", 7) != 0;
        (void)fclose(f);
    }
}

TestSuite(hold_io, .init = begin, .fini = end);

Test(hold_io, the_others_end_with_the_agents_status) {
    pid_t early = start_holder(2, HOLD_START_NS);
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    pid_t late = start_holder(2, HOLD_START_NS);
    await_holder(early);
    await_holder(late);
    tell(7);
    cr_assert_eq(status_of(early), 7);
    cr_assert_eq(status_of(late), 7);
    cr_assert_not(file_exists(), "the last one removes it");
}

Test(hold_io, no_signal_ends_one_that_holds) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    pid_t pid = start_holder(1, HOLD_START_NS);
    unsigned long long ignored = 0;
    while ((ignored >> (SIGUSR2 - 1) & 1) == 0) { /* the last that it ignores */
        char path[64], line[256];
        (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
        FILE *f = fopen(path, "re");
        cr_assert_not_null(f);
        while (fgets(line, sizeof line, f) != NULL)
            if (strncmp(line, "SigIgn:", 7) == 0)
                ignored = strtoull(line + 7, NULL, 16);
        (void)fclose(f);
    }
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        cr_assert_eq(kill(pid, signals[i]), 0);
    tell(143);
    cr_assert_eq(status_of(pid), 143);
}

/* A guardian that lives longer than the agent kills what is left: nobody may end before. */
Test(hold_io, the_others_wait_for_all_processes_of_the_agent) {
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    pid_t guardian = fork();
    if (guardian == 0)
        for (;;)
            (void)pause();
    tell(0);
    pid_t pid = start_holder(1, HOLD_START_NS);
    await_holder(pid);
    cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0);
    cr_assert_eq(kill(guardian, SIGKILL), 0);
    cr_assert_eq(status_of(guardian), -SIGKILL);
    cr_assert_eq(status_of(pid), 0);
}

Test(hold_io, a_killed_agent_is_noticed) {
    pid_t agent = fork();
    if (agent == 0) {
        if (hold_claim(name, &claimed, NULL) < 0)
            _exit(1);
        (void)kill(getpid(), SIGKILL);
    }
    pid_t pid = start_holder(1, HOLD_START_NS);
    cr_assert_eq(status_of(agent), -SIGKILL);
    cr_assert_eq(status_of(pid), HOLD_EXIT_LOST);
}

Test(hold_io, an_agent_that_never_comes_is_not_waited_for) {
    cr_assert_eq(status_of(start_holder(1, 50 * NS_PER_MS)), HOLD_EXIT_LOST);
}

Test(hold_io, what_an_earlier_run_left_is_replaced) {
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    tell(9);
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    pid_t pid = start_holder(1, HOLD_START_NS);
    tell(0);
    cr_assert_eq(status_of(pid), 0);
}

Test(hold_io, old_files_are_removed) {
    char path[sizeof dir + 32];
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    (void)snprintf(path, sizeof path, "%s/hold-n0-cluster.1.0", dir);
    int other = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(other, 0);
    (void)close(other);
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    cr_assert_eq(access(path, F_OK), -1);
    tell(0);
}

Test(hold_io, names_are_file_names) {
    char of[HOLD_NAME_MAX];
    hold_name("../../a b", 2, of);
    cr_assert_str_eq(of, "hold-n2-.._.._a_b");
}
