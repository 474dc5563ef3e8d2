#include "launcher/supervise/sweep_io.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>

#include "../../../process/rig.h"
#include "io/process/child.h"
#include "rig/unit.h"

static const unsigned kernels[] = {0, SWEEP_WITHOUT_PIDFD, SWEEP_WITHOUT_CHILDREN_FILE,
                                   SWEEP_WITHOUT_PIDFD | SWEEP_WITHOUT_CHILDREN_FILE};

static pid_t start(const struct rig *rig, const char *const modes[], char *const *envp) {
    const char *argv[16] = {rig->worker, "ignore=15", rig->hold};
    int n = 3;
    for (; *modes != NULL; modes++)
        argv[n++] = *modes;
    argv[n++] = rig->say;
    argv[n++] = "wait";
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.argv = (char *const *)(uintptr_t)argv;
    spec.envp = envp;
    spec.setsid = true;
    struct child c;
    struct err err = {0};
    cr_assert(child_spawn(&spec, &c, &err) == 0, "%s", err.text);
    pid_t pid = c.pid;
    child_fini(&c);
    return pid;
}

static const char *const family[] = {"child", "daemon", "bare-daemon", NULL};
static const char *const none[] = {NULL};

static void become_sweeper(struct rig *rig) {
    rig_init(rig);
    cr_assert(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

Test(sweep_io, leaves_nothing_with_every_kind_of_kernel) {
    for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
        struct rig rig;
        become_sweeper(&rig);
        for (int i = 0; i < 4; i++)
            (void)start(&rig, family, NULL);
        rig_await_ready(&rig, 4, NULL);
        sweep_all(&(struct sweep_except){.without = kernels[k]}, NS_PER_S, NULL, NULL);
        cr_expect(rig_all_gone(&rig), "kernel %zu", k);
        cr_expect(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
        rig_fini(&rig);
    }
}

Test(sweep_io, outruns_processes_that_fork) {
    static const char *const storm[] = {"fork-storm=2000", "fork-storm=2000", NULL};
    for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
        struct rig rig;
        become_sweeper(&rig);
        (void)start(&rig, storm, NULL);
        rig_await_ready(&rig, 1, NULL);
        sweep_all(&(struct sweep_except){.without = kernels[k]}, NS_PER_S, NULL, NULL);
        cr_expect(rig_all_gone(&rig), "kernel %zu", k);
        rig_fini(&rig);
    }
}

static int spare_one(void *arg, pid_t pid, bool own) { return pid == *(pid_t *)arg ? SWEEP_SPARE : SIGKILL; }

Test(sweep_io, spares_the_excepted_and_what_is_below_them) {
    static const char *const child[] = {"child", NULL};
    struct rig rig, spared;
    become_sweeper(&rig);
    rig_init(&spared);
    (void)start(&rig, family, NULL);
    pid_t pids[2] = {start(&spared, child, NULL), start(&spared, none, NULL)};
    (void)start(&rig, family, NULL);
    rig_await_ready(&rig, 2, NULL);
    rig_await_ready(&spared, 2, NULL);
    sweep_all(&(struct sweep_except){.also = pids[0], .seen = spare_one, .arg = &pids[1]}, NS_PER_S, NULL, NULL);
    cr_expect(rig_all_gone(&rig));
    cr_expect_not(rig_all_gone(&spared));
    cr_expect_eq(kill(pids[0], 0), 0);
    cr_expect_eq(kill(-pids[0], SIGTERM), 0);
    sweep_all(NULL, NS_PER_S, NULL, NULL);
    cr_expect(rig_all_gone(&spared));
    rig_fini(&spared);
    rig_fini(&rig);
}

Test(sweep_io, a_variable_is_read_by_its_whole_name) {
    static const char *const child[] = {"child", NULL};
    struct rig rig;
    become_sweeper(&rig);
    char big[6000] = "BIG=", value[8] = "";
    memset(big + 4, 'x', sizeof big - 5);
    pid_t pid = start(&rig, child, ARGV(big, "MARK2=MARK=1", "XMARK=2", "MAR=3", "MARK=1.0.aabc", NULL));
    rig_await_ready(&rig, 1, NULL);
    cr_expect(sweep_read_variable(pid, "MARK", value, sizeof value));
    cr_expect_str_eq(value, "1.0.aab", "as far as it fits");
    cr_expect_not(sweep_read_variable(pid, "MA", value, sizeof value));
    sweep_all(NULL, NS_PER_S, NULL, NULL);
    rig_fini(&rig);
}

Test(sweep_io, below_a_frozen_process_all_is_killed_but_itself) {
    struct rig rig;
    become_sweeper(&rig);
    static const char script[] = "\"$0\" $1 child daemon wait & \"$0\" $1 child daemon wait & \"$0\" $2; wait";
    pid_t top = fork();
    if (top == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        execlp("sh", "sh", "-c", script, rig.worker, rig.hold, rig.say, (char *)NULL);
        _exit(1);
    }
    rig_await_ready(&rig, 1, NULL);
    kill(top, SIGSTOP);
    struct sweep_result result;
    unsigned passes = 0;
    do
        sweep_pass_below(top, NULL, &result);
    while (result.alive > 0 && ++passes < 100000);
    cr_expect(rig_all_gone(&rig));
    cr_expect_eq(kill(top, 0), 0);
    sweep_all(NULL, NS_PER_S, NULL, NULL);
    rig_fini(&rig);
}

static void tell_pid(void *arg, pid_t pid) {
    if (write(*(int *)arg, &pid, sizeof pid) != sizeof pid)
        _exit(3);
}

/* Starts a debugger that stops `pid`, and then does nothing. */
static pid_t trace(pid_t pid) {
    int said[2];
    cr_assert(pipe2(said, O_CLOEXEC) == 0);
    pid_t tracer = fork();
    if (tracer == 0) {
        bool ok = ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0 && waitpid(pid, NULL, __WALL) == pid;
        (void)!write(said[1], &ok, sizeof ok);
        for (;;)
            (void)pause();
    }
    bool ok = false;
    cr_assert(read(said[0], &ok, sizeof ok) == sizeof ok);
    if (!ok)
        cr_skip_test("nothing can be traced here");
    close(said[0]);
    close(said[1]);
    return tracer;
}

Test(sweep_io, names_the_tracer_of_what_it_holds) {
    struct rig rig;
    become_sweeper(&rig);
    pid_t worker = start(&rig, none, NULL);
    rig_await_ready(&rig, 1, NULL);
    pid_t tracer = trace(worker);
    char name[SWEEP_NAME_MAX], words[64];
    sweep_describe(worker, name);
    snprintf(words, sizeof words, " (state t, traced by process %d, ", (int)tracer);
    expect_has(name, words);
    struct sweep_except except = {.also = tracer};
    struct sweep_result result = {0};
    while (result.zombies == 0)
        sweep_pass(&except, &result); /* SIGKILL ends it, but it can't be reaped */
    cr_expect_eq(result.zombie, worker);
    cr_expect_eq(sweep_stuck_one(&result), worker);
    sweep_describe(worker, name);
    snprintf(words, sizeof words, " (it has ended, and is held by its tracer, process %d, ", (int)tracer);
    expect_has(name, words);
    cr_expect_eq(waitpid(worker, NULL, WNOHANG), 0);
    sweep_all(NULL, NS_PER_S, NULL, NULL);
    rig_fini(&rig);
}

/* As another user: a process that has become root's can't be killed; it is said, and waited for. */
Test(sweep_io, says_what_cannot_be_killed_and_waits_for_it) {
    if (geteuid() != 0)
        cr_skip_test("needs root, to give a process to another user");
    struct rig rig;
    become_sweeper(&rig);
    int said[2];
    cr_assert(pipe(said) == 0);
    pid_t sweeper = fork();
    if (sweeper == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        pid_t stubborn = fork();
        if (stubborn == 0)
            for (;;)
                pause();
        if (setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        struct sweep_result result;
        sweep_pass(NULL, &result);
        if (result.unkillable != stubborn || write(said[1], &stubborn, sizeof stubborn) != sizeof stubborn)
            _exit(2);
        sweep_all(NULL, 20 * NS_PER_MS, tell_pid, &said[1]);
        _exit(0);
    }
    pid_t stubborn = 0;
    cr_assert(read(said[0], &stubborn, sizeof stubborn) == sizeof stubborn);
    char text[SWEEP_NAME_MAX];
    sweep_describe(stubborn, text);
    expect_has(text, "(state ");
    pid_t stuck = 0;
    cr_assert(read(said[0], &stuck, sizeof stuck) == sizeof stuck);
    cr_expect_eq(stuck, stubborn);
    siginfo_t si = {0};
    cr_assert(waitid(P_PID, (id_t)sweeper, &si, WEXITED | WNOHANG | WNOWAIT) == 0);
    cr_assert_eq(si.si_pid, 0, "the sweeper gave up");
    kill(stubborn, SIGKILL); /* by a process that may */
    int status = rig_await_exit(sweeper);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    close(said[0]), close(said[1]);
    rig_fini(&rig);
}
