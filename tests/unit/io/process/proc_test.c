#include "io/process/proc.h"

#include <sched.h>
#include <sys/prctl.h>

#include "rig/unit.h"

#define FD 377

static unsigned n_seen, n_of_fd;

static void count(void *arg, int number) {
    n_seen++;
    n_of_fd += number == FD;
    cr_assert_gt(number, 0);
    cr_assert_eq(arg, &n_seen);
}

Test(proc, each_descriptor_is_told_once) {
    cr_assert_eq(dup2(STDERR_FILENO, FD), FD);
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_eq(n_of_fd, 1);
    (void)close(FD);
    n_of_fd = 0;
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_eq(n_of_fd, 0);
}

Test(proc, more_than_one_reading_of_the_folder_holds) {
    for (int fd = 400; fd < 800; fd++)
        cr_assert_eq(dup2(STDERR_FILENO, fd), fd);
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_geq(n_seen, 400);
    for (int fd = 400; fd < 800; fd++)
        (void)close(fd);
}

Test(proc, names_that_are_no_numbers_are_left_out) {
    cr_assert_eq(proc_each_number("/proc/sys", count, &n_seen), 0);
    cr_assert_eq(n_seen, 0);
}

Test(proc, what_is_no_folder_is_an_error) {
    cr_assert_eq(proc_each_number("/proc/self/none", count, &n_seen), -ENOENT);
    cr_assert_eq(proc_each_number("/proc/self/stat", count, &n_seen), -ENOTDIR);
}

Test(proc, a_process_is_told_by_its_name_parent_and_start) {
    struct proc_stat self, by_pid, none;
    cr_assert_eq(prctl(PR_SET_NAME, "od) d (name"), 0);
    cr_assert(proc_read_stat(0, &self));
    cr_assert(proc_read_stat(getpid(), &by_pid));
    cr_assert_str_eq(self.name, "od) d (name");
    cr_assert_eq(self.parent, getppid());
    cr_assert_eq(self.state, 'R');
    cr_assert_geq(self.threads, 1);
    cr_assert_gt(self.start, 0);
    cr_assert_eq(self.start, by_pid.start);
    cr_assert_not(proc_read_stat(INT32_MAX, &none));
}

Test(proc, reads_the_text_of_a_stat) {
    static const struct {
        const char *text;
        char state; /* 0: not such a text */
    } cases[] = {
        {"12 (python) S 1 12 12 0", 'S'},
        {"12 (a) T) R 1", 'R'},
        {"12 (a\nb) t 1", 't'},
        {"12 (python", 0},
        {"", 0},
        {"12 (python)", 0},
        {"12 (python) ", 0},
    };
    uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    struct proc_stat st;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(proc_parse_stat(cases[i].text, &st) ? st.state : 0, cases[i].state, "\"%s\"", cases[i].text);
    cr_assert(proc_parse_stat("12 (a) b) S 1 12 12 0 -1 4194560 9 0 0 0 250 40 3 4 20 0 1 0 987654 10 20 30 1 2 77 8\n",
                              &st));
    cr_expect_eq(st.ran_ns, 290 * tick_ns);
    cr_expect_eq(st.children_ns, 7 * tick_ns);
    cr_expect_eq(st.start, 987654);
    cr_expect_eq(st.stack, 77);
    cr_assert(proc_parse_stat("12 (a) S 1 12 12", &st));
    cr_expect(st.ran_ns == 0 && st.start == 0 && st.stack == 0);
}

static pid_t the_child;
static unsigned n_met;

static void meet(void *arg, int pid) { n_met += pid == the_child; }

Test(proc, a_child_is_met_by_the_kernels_list_and_without_it) {
    the_child = fork();
    if (the_child == 0)
        pause();
    proc_each_child(getpid(), true, meet, NULL);
    cr_assert_eq(n_met, 1);
    proc_each_child(getpid(), false, meet, NULL);
    cr_assert_eq(n_met, 2);
    struct proc_stat st;
    cr_assert(proc_read_stat(the_child, &st));
    cr_assert_eq(st.parent, getpid());
    cr_assert_eq(st.threads, 1);
    cr_assert_eq(proc_tracer(the_child), 0);
    (void)kill(the_child, SIGKILL);
    siginfo_t ended;
    cr_assert_eq(waitid(P_PID, (id_t)the_child, &ended, WEXITED | WNOWAIT), 0);
    cr_assert(proc_read_stat(the_child, &st));
    cr_assert_eq(st.state, 'Z');
    cr_assert_eq(waitpid(the_child, NULL, 0), the_child);
}

Test(proc, this_boot_has_a_name) {
    char first[BOOT_ID_MAX], again[BOOT_ID_MAX];
    cr_assert_eq(proc_boot_id(first), 0);
    cr_assert_eq(proc_boot_id(again), 0);
    cr_expect_eq(strlen(first), 36, "a UUID, without the end of the line: %s", first);
    cr_expect_str_eq(first, again);
}

Test(proc, knows_gpus) {
    cr_expect(proc_is_gpu("/dev/nvidia0") && proc_is_gpu("/dev/nvidia15") && proc_is_gpu("/dev/kfd"));
    cr_expect_not(proc_is_gpu("/dev/nvidiactl") || proc_is_gpu("/dev/nvidia-uvm") || proc_is_gpu("/dev/null"));
}

Test(proc, counts_the_cpus_of_the_affinity_mask) {
    uint32_t before = cpu_count_allowed();
    cr_assert_geq(before, 1);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(cpu_count_allowed(), 1);
}
