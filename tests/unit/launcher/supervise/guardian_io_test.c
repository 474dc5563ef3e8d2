#include "launcher/supervise/guardian_io.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../../../process/rig.h"
#include "io/clock.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "io/process/child.h"
#include "rig/unit.h"

/* One "muster run" of a test: this process forks it; it splits into guardian and agent. The agent starts workers, each
 * with three descendants that ignore SIGTERM; two of them are daemons. */
struct run {
    struct rig rig;
    struct addr listener;
    int events_fd; /* what the agent writes */
    pid_t guardian, agent;
};

enum { N_WORKERS = 3, REPEATS = 3 };

static int events_w; /* in the agent: for its signal handlers */
static struct guardian_link link_of_agent;

static void tell(char c) {
    ssize_t n = write(events_w, &c, 1);
    (void)n;
}

static void on_term(int signo) {
    tell('t');
    _exit(7);
}

static void on_usr1(int signo) { tell(guardian_fences(&link_of_agent) > 0 ? 'F' : 'n'); }

/* In the agent, where no assertion of Criterion works. */
static void start_workers(const struct rig *rig) {
    for (int i = 0; i < N_WORKERS; i++) {
        struct child_spec spec = CHILD_SPEC_INIT;
        spec.argv = ARGV(rig->worker, "ignore=15", rig->hold, "child", "daemon", "bare-daemon", rig->say, "wait", NULL);
        spec.setsid = true;
        struct child c;
        struct err err = {0};
        if (child_spawn(&spec, &c, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            _exit(90);
        }
    }
}

struct setup {
    enum job_contain contain;
    uint64_t lease_ns; /* from the start; 0: none */
    bool sigchld_ignored;
    int exit_status;                         /* >= 0: the agent exits with it at once */
    void (*in_agent)(const struct run *run); /* NULL: start_workers */
};
#define SETUP_INIT \
    { .contain = JOB_CONTAIN_NONE, .exit_status = -1 }

_noreturn_ static void muster_main(struct run *run, const struct setup *setup, int listener_fd) {
    if (setup->sigchld_ignored)
        signal(SIGCHLD, SIG_IGN);
    struct guardian_config config = {.listener_fd = listener_fd, .contain = setup->contain};
    struct err err = {0};
    struct guardian_link link = GUARDIAN_LINK_INIT;
    if (guardian_fork(&config, &link, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(91);
    }
    link_of_agent = link;
    (void)alarm(60); /* if the test fails, all these processes end by themselves */
    signal(SIGTERM, on_term);
    signal(SIGUSR1, on_usr1);
    if (setup->exit_status >= 0)
        _exit(setup->exit_status);
    if (setup->in_agent != NULL)
        setup->in_agent(run);
    else
        start_workers(&run->rig);
    if (setup->lease_ns != 0)
        guardian_lease(&link, clock_now_ns() + setup->lease_ns);
    tell('r');
    for (;;)
        pause();
}

static char next_event(struct run *run) {
    struct pollfd p = {.fd = run->events_fd, .events = POLLIN};
    char c = 0;
    cr_assert(poll(&p, 1, RIG_DEADLINE_MS) == 1, "no event");
    return read(run->events_fd, &c, 1) == 1 ? c : '-';
}

static void await_event(struct run *run, char expected) {
    char c = next_event(run);
    cr_assert_eq(c, expected, "event %c instead of %c", c, expected);
}

static void run_start(struct run *run, const struct setup *setup) {
    rig_init(&run->rig);
    cr_assert(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    struct addr any;
    int listener_fd, events[2];
    struct err err = {0};
    cr_assert(addr_from_literal("127.0.0.1", 0, &any) == 0);
    cr_assert(listen_socket(&any, 1024, &listener_fd, &err) == 0, "%s", err.text);
    cr_assert(addr_of_socket(listener_fd, &run->listener) == 0);
    cr_assert(pipe2(events, O_CLOEXEC) == 0);
    run->events_fd = events[0];
    run->guardian = fork();
    cr_assert(run->guardian >= 0);
    if (run->guardian == 0) {
        close(events[0]);
        events_w = events[1];
        muster_main(run, setup, listener_fd);
    }
    close(listener_fd);
    close(events[1]);
    if (setup->exit_status >= 0)
        return;
    await_event(run, 'r');
    run->agent = rig_first_child(run->guardian);
    if (setup->in_agent == NULL)
        rig_await_ready(&run->rig, N_WORKERS, NULL);
    cr_assert_not(rig_all_gone(&run->rig) && setup->in_agent == NULL);
}

static void run_end(struct run *run) {
    close(run->events_fd);
    rig_fini(&run->rig);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool refused(const struct run *run) {
    int fd = socket(run->listener.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0);
    int r = connect(fd, (const struct sockaddr *)&run->listener.ss, run->listener.len);
    bool is = r < 0 && errno == ECONNREFUSED;
    close(fd);
    return is;
}

/* The witness: a peer whose connection is refused treats the node as gone, so then no process may be left. */
static void await_refused(struct run *run) {
    uint64_t deadline_ns = clock_now_ns() + RIG_DEADLINE_MS * NS_PER_MS;
    while (!refused(run)) {
        cr_assert(clock_now_ns() < deadline_ns, "the listener stays");
        (void)poll(NULL, 0, 1); /* a full backlog makes a probe wait for 1 s */
    }
    cr_assert(rig_all_gone(&run->rig), "the listener has gone while processes are left");
}

enum victims { AGENT, GUARDIAN, BOTH };

static void killed(enum victims who, enum job_contain contain) {
    for (int i = 0; i < REPEATS; i++) {
        struct run run;
        struct setup setup = *WITH(((struct setup)SETUP_INIT), .contain = contain);
        run_start(&run, &setup);
        if (who == BOTH) { /* neither can act */
            kill(run.guardian, SIGSTOP);
            kill(run.agent, SIGSTOP);
        }
        if (who != AGENT)
            kill(run.guardian, SIGKILL);
        if (who != GUARDIAN)
            kill(run.agent, SIGKILL);
        await_refused(&run);
        int status = rig_await_exit(run.guardian);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
        if (who != AGENT)
            (void)rig_await_exit(run.agent); /* it became our child */
        run_end(&run);
    }
}

Test(guardian_io, nothing_outlives_a_killed_agent) { killed(AGENT, JOB_CONTAIN_NONE); }

Test(guardian_io, nothing_outlives_a_killed_guardian) { killed(GUARDIAN, JOB_CONTAIN_NONE); }

Test(guardian_io, ends_the_workers_of_a_frozen_agent_and_spares_it) {
    uint64_t least_ns = UINT64_MAX; /* a single try can be slow, if the machine pauses */
    bool in_time = false;           /* and a single try can be early: the agent's last renewal can be some time ago */
    for (int i = 0; i < REPEATS; i++) {
        struct run run;
        struct setup setup = *WITH(((struct setup)SETUP_INIT), .lease_ns = 300 * NS_PER_MS);
        run_start(&run, &setup);
        uint64_t end_ns = clock_now_ns() + setup.lease_ns; /* at the latest */
        kill(run.agent, SIGSTOP);
        (void)rig_await_gone(&run.rig);
        uint64_t gone_ns = clock_now_ns();
        least_ns = MIN2(least_ns, gone_ns - MIN2(gone_ns, end_ns));
        in_time = in_time || gone_ns >= end_ns - 100 * NS_PER_MS;
        cr_assert_eq(kill(run.agent, 0), 0);
        kill(run.agent, SIGCONT);
        kill(run.agent, SIGUSR1);
        await_event(&run, 'F');
        cr_assert_not(refused(&run));
        kill(run.guardian, SIGTERM);
        await_event(&run, 't');
        await_refused(&run);
        int status = rig_await_exit(run.guardian);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        run_end(&run);
    }
    cr_assert(in_time, "too early");
    /* and before the leader counts the node lost: after the lease and a margin of 1 s */
    cr_assert_leq(least_ns, 950 * NS_PER_MS, "later than the lease + 0.95 s");
}

Test(guardian_io, wakes_a_frozen_agent_to_end_it) {
    struct run run;
    struct setup setup = SETUP_INIT;
    run_start(&run, &setup);
    kill(run.agent, SIGSTOP);
    kill(run.guardian, SIGTERM);
    await_event(&run, 't');
    await_refused(&run);
    (void)rig_await_exit(run.guardian);
    run_end(&run);
}

Test(guardian_io, passes_the_exit_status_on) {
    static const int statuses[] = {0, 1, 3, 255};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        struct run run;
        struct setup setup =
            *WITH(((struct setup)SETUP_INIT), .exit_status = statuses[i], .sigchld_ignored = i % 2 == 1);
        run_start(&run, &setup);
        int status = rig_await_exit(run.guardian);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == statuses[i], "status %x", status);
        run_end(&run);
    }
}

static void dumps_core(const struct run *run) {
    tell('r');                                      /* the caller's setting would come too late */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* for the agent; the guardian sets its own */
    signal(SIGSEGV, SIG_DFL);
    (void)kill(getpid(), SIGSEGV);
}

Test(guardian_io, dies_of_the_agents_signal_without_a_core) {
    struct run run;
    struct setup setup = *WITH(((struct setup)SETUP_INIT), .in_agent = dumps_core);
    rig_init(&run.rig);
    rig_fini(&run.rig);
    pid_t pid = fork();
    if (pid == 0) {
        int events[2];
        if (pipe(events) < 0)
            _exit(1);
        events_w = events[1];
        struct rlimit core;
        getrlimit(RLIMIT_CORE, &core);
        core.rlim_cur = core.rlim_max;
        setrlimit(RLIMIT_CORE, &core);
        if (chdir("/tmp") < 0)
            _exit(1);
        muster_main(&run, &setup, -1);
    }
    int status = rig_await_exit(pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !WCOREDUMP(status), "status %x", status);
}

static bool can_contain(enum job_contain contain) {
    pid_t pid = fork();
    if (pid == 0) {
        struct guardian_config config = {.listener_fd = -1, .contain = contain};
        struct guardian_link link;
        struct err err = {0};
        if (guardian_fork(&config, &link, &err) < 0) {
            fprintf(stderr, "SKIPPED, %s\n", err.text);
            _exit(1);
        }
        _exit(0);
    }
    return rig_await_exit(pid) == 0;
}

static void contained(enum job_contain contain) {
    if (!can_contain(contain))
        cr_skip_test("not possible here");
    for (enum victims who = AGENT; who <= BOTH; who++)
        killed(who, contain);
}

Test(guardian_io, nothing_outlives_both_in_a_pid_namespace) { contained(JOB_CONTAIN_PIDNS); }

Test(guardian_io, nothing_outlives_both_in_a_cgroup) { contained(JOB_CONTAIN_CGROUP); }
