#include "launcher/srun/hold_io.h"

#include "rig/tree.h"

static struct tree tree;
static char name[HOLD_NAME_MAX];
static int claimed = -1; /* what hold_claim() returned: only the agent has it */

static void begin(void) {
    tree_new(&tree);
    cr_assert_eq(setenv("MUSTER_RUN_DIR", tree.root, 1), 0);
    hold_name("cluster.28.0", 3, name);
    (void)alarm(60);
}

static void end(void) { tree_remove(&tree); }

static bool file_exists(void) { return access(tree_at(&tree, name), F_OK) == 0; }

static pid_t start_holder_number(uint32_t me, uint32_t others, uint64_t start_ns) {
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0 && claimed >= 0)
        (void)close(claimed);
    if (pid == 0)
        _exit(hold_wait(name, others, me, start_ns));
    return pid;
}

static pid_t start_holder(uint32_t others, uint64_t start_ns) {
    static uint32_t me;
    return start_holder_number(++me, others, start_ns);
}

static void tell(int status) {
    hold_tell(claimed, status);
    claimed = -1;
}

/* It has opened the file, or is about to: a process that waits for a lock shows it. */
static void await_holder(pid_t pid) {
    char text[256];
    bool waits = false;
    const char *path = rig_text("/proc/%d/syscall", pid);
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
    tell(UINT8_MAX);
    cr_assert_eq(rig_status(early), UINT8_MAX);
    cr_assert_eq(rig_status(late), UINT8_MAX);
    cr_assert_not(file_exists(), "the last one removes it");
}

Test(hold_io, no_signal_ends_one_that_holds) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    pid_t pid = start_holder(1, HOLD_START_NS);
    unsigned long long ignored = 0;
    while ((ignored >> (SIGTERM - 1) & 1) == 0) { /* the last of these that it ignores */
        char line[256];
        FILE *f = fopen(rig_text("/proc/%d/status", pid), "re");
        cr_assert_not_null(f);
        while (fgets(line, sizeof line, f) != NULL)
            if (strncmp(line, "SigIgn:", 7) == 0)
                ignored = strtoull(line + 7, NULL, 16);
        (void)fclose(f);
    }
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        cr_assert_eq(kill(pid, signals[i]), 0);
    tell(143);
    cr_assert_eq(rig_status(pid), 143);
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
    cr_assert_eq(rig_status(guardian), -SIGKILL);
    cr_assert_eq(rig_status(pid), 0);
}

Test(hold_io, a_killed_agent_is_noticed) {
    pid_t agent = fork();
    if (agent == 0) {
        if (hold_claim(name, &claimed, NULL) < 0)
            _exit(1);
        (void)kill(getpid(), SIGKILL);
    }
    pid_t pid = start_holder(1, HOLD_START_NS);
    cr_assert_eq(rig_status(agent), -SIGKILL);
    cr_assert_eq(rig_status(pid), HOLD_EXIT_LOST);
}

Test(hold_io, an_agent_that_never_comes_is_not_waited_for) {
    cr_assert_eq(rig_status(start_holder(1, 50 * NS_PER_MS)), HOLD_EXIT_LOST);
}

/* A script with two lines "muster run": the tasks come to the second at different times. */
Test(hold_io, each_task_waits_for_the_run_that_is_its_next) {
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    tell(9);
    cr_assert_eq(rig_status(start_holder_number(1, 2, HOLD_START_NS)), 9);
    pid_t early = start_holder_number(1, 2, HOLD_START_NS); /* before the second run begins */
    await_holder(early);
    cr_assert_eq(waitpid(early, NULL, WNOHANG), 0, "it must not take the first run's status");
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    cr_assert_eq(rig_status(start_holder_number(2, 2, HOLD_START_NS)), 9, "in the first until now");
    tell(4);
    cr_assert_eq(rig_status(early), 4);
    cr_assert(file_exists(), "one task has not left the second run");
    cr_assert_eq(rig_status(start_holder_number(2, 2, HOLD_START_NS)), 4);
    cr_assert_not(file_exists());
}

Test(hold_io, a_killed_run_is_over_for_each_task) {
    pid_t agent = fork();
    if (agent == 0) {
        if (hold_claim(name, &claimed, NULL) < 0)
            _exit(1);
        (void)kill(getpid(), SIGKILL);
    }
    cr_assert_eq(rig_status(agent), -SIGKILL);
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    tell(3);
    cr_assert_eq(rig_status(start_holder_number(1, 1, HOLD_START_NS)), HOLD_EXIT_LOST);
    cr_assert_eq(rig_status(start_holder_number(1, 1, HOLD_START_NS)), 3);
    cr_assert_not(file_exists());
}

/* Processes of an agent whose guardian was killed: they must not stop the next run. */
Test(hold_io, a_run_begins_although_the_last_has_not_ended) {
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    int first = claimed;
    cr_assert_eq(hold_claim(name, &claimed, NULL), 0);
    cr_assert_eq(claimed, first + 1, "a descriptor is left");
    pid_t pid = start_holder(1, HOLD_START_NS);
    await_holder(pid);
    tell(5);
    cr_assert_eq(rig_status(pid), 5);
    cr_assert_eq(close(first), 0);
}

Test(hold_io, old_files_are_removed) {
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    const char *path = tree_at(&tree, "hold-n0-cluster.1.0");
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
