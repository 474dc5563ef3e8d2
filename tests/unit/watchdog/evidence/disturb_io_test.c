/* Which process does the work of a worker. */
#include "watchdog/evidence/disturb.h"

#include <sched.h>
#include <sys/prctl.h>

#include "io/process/proc.h"
#include "rig/unit.h"

static pid_t worker;
static char script[] = "/tmp/muster-disturb-XXXXXX";

static void finish(void) {
    if (worker > 0) {
        (void)kill(-worker, SIGKILL);
        (void)waitpid(worker, NULL, 0);
    }
    (void)unlink(script);
}
TestSuite(disturb_io, .fini = finish, .timeout = 120);

/* A Python program, and what it needs; its own arguments begin its children, which wait. */
#define HEAD                                           \
    "import os, subprocess, sys\n"                     \
    "def wait():\n"                                    \
    "    while True: os.read(os.pipe()[0], 1)\n"       \
    "def call():\n"                                    \
    "    return [sys.executable, __file__, 'child']\n" \
    "if sys.argv[1:] == ['child']: wait()\n"           \
    "if __name__ == '__main__':\n"                     \
    "    "

static void start(const char *program) {
    int fd = mkstemp(script);
    cr_assert_geq(fd, 0);
    cr_assert_eq(dprintf(fd, HEAD "%s\n", program), (int)(strlen(HEAD) + strlen(program) + 1));
    (void)close(fd);
    worker = fork();
    cr_assert_geq(worker, 0);
    if (worker == 0) {
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execlp("python3", "python3", script, (char *)NULL);
        _exit(127);
    }
}

/* python3 can be a shell at first. */
static bool is_python(pid_t pid) {
    char path[PROC_PATH_MAX], exe[256];
    proc_path(path, pid, "/exe");
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    return strstr(exe, "/python") != NULL;
}

/* Until its main thread waits for a child. */
static void is_waiting(pid_t pid) {
    char wchan[32];
    do {
        (void)sched_yield();
        ssize_t n = proc_read(pid, "/wchan", wchan, sizeof wchan - 1);
        wchan[n > 0 ? n : 0] = '\0';
    } while (!is_python(pid) || strcmp(wchan, "do_wait") != 0);
}

static void take(void *arg, int pid) { *(pid_t *)arg = pid; }

static pid_t child_of(pid_t pid) {
    pid_t child = 0;
    proc_each_child(pid, true, take, &child);
    return child;
}

static void assert_is_the_program(const char *program) {
    start(program);
    is_waiting(worker);
    for (int i = 0; i < 100; i++) /* also while the children begin */
        cr_assert_eq(disturb_program(worker), worker);
}

Test(disturb_io, the_program_that_a_launcher_of_python_waits_for) {
    start("subprocess.call(call())");
    is_waiting(worker);
    cr_assert_eq(disturb_program(worker), child_of(worker));
}

Test(disturb_io, also_below_a_shell_between_the_two) {
    start("os.system(' '.join(call()) + '; true')");
    is_waiting(worker);
    pid_t shell = child_of(worker), program;
    do /* until it is Python */
        program = disturb_program(worker);
    while (program == worker);
    cr_assert_eq(program, child_of(shell));
}

Test(disturb_io, a_copy_of_itself_is_none) { assert_is_the_program("os.waitpid(os.fork() or wait(), 0)"); }

Test(disturb_io, nor_one_of_several) { assert_is_the_program("subprocess.Popen(call()); subprocess.call(call())"); }

Test(disturb_io, nor_one_that_is_no_python) { assert_is_the_program("subprocess.call(['sleep', '1000'])"); }

Test(disturb_io, nor_a_process_of_multiprocessing) {
    assert_is_the_program("import multiprocessing; p = multiprocessing.get_context('spawn').Process(target=wait);"
                          " p.start(); p.join()");
}

Test(disturb_io, nor_one_that_it_does_not_wait_for) {
    start("subprocess.Popen(call()); wait()");
    while (!is_python(worker) || !is_python(child_of(worker)))
        (void)sched_yield();
    for (int i = 0; i < 100; i++)
        cr_assert_eq(disturb_program(worker), worker);
}
