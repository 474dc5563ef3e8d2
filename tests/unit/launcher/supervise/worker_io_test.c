#include "launcher/supervise/worker_io.h"

#include <sys/prctl.h>

#include "../../../process/rig.h"
#include "base/text/log.h"
#include "launcher/supervise/sweep_io.h"
#include "rig/fds.h"
#include "rig/loop_rig.h"

enum { N_MAX = 8 };

/* The group of a test, and what it has reported. */
struct local_workers {
    struct rig rig;
    struct loop *loop;
    struct child_reaper *reaper;
    struct worker_group *group;
    struct worker_group_config config;
    char *const *const *argvs;            /* of the workers */
    const struct child_spec *spec;        /* the spec of all of them, with its argv; NULL: argvs */
    struct envlist env;                   /* of the one that is being started */
    uint32_t open_fds, n, n_made, unmade; /* a worker that can't be prepared; 0: none */
    bool slow;                            /* each takes a whole turn */
    struct worker_exit exits[N_MAX];
    struct err failures[N_MAX];
    int n_exits[N_MAX], n_failures[N_MAX], all_gone;
    bool free_on_exit, stop_on_exit, held_at_all_gone;
    int quit_after_exits; /* 0: run until all are gone */
};

static char *w, *hold, *say; /* the program of all workers, and words of its rig */

static void on_exit_of(void *arg, uint32_t index, const struct worker_exit *how) {
    struct local_workers *c = arg;
    c->exits[index] = *how;
    c->n_exits[index]++;
    if (c->free_on_exit) {
        worker_group_free(c->group);
        c->group = NULL;
        loop_quit(c->loop);
    }
    if (c->stop_on_exit)
        worker_group_stop(c->group, SIGTERM, RIG_DEADLINE_MS * NS_PER_MS);
    if (c->quit_after_exits > 0 && --c->quit_after_exits == 0)
        loop_quit(c->loop);
}

static void on_spawn_failed(void *arg, uint32_t index, const struct err *err) {
    struct local_workers *c = arg;
    c->failures[index] = *err;
    c->n_failures[index]++;
}

static void on_over(void *arg) {
    struct local_workers *c = arg;
    c->all_gone++;
    c->held_at_all_gone = !rig_all_gone(&c->rig);
    loop_quit(c->loop);
}

static void on_all_gone(void *arg) {}

static int make(void *arg, uint32_t index, const char *marker, struct child_spec *ret, struct err *err) {
    struct local_workers *c = arg;
    envlist_copy(&c->env, environ);
    envlist_set(&c->env, WORKER_MARKER, marker);
    ret->envp = envlist_items(&c->env);
    while (c->slow && !loop_slice_is_over(c->loop))
        ;
    ret->argv = c->spec != NULL ? c->spec->argv : c->argvs[index];
    if (c->spec != NULL)
        ret->stdout_fd = c->spec->stdout_fd;
    return c->unmade != 0 && index == c->unmade ? err_set(err, -ENOSPC, "no room") : 0;
}

static void made(void *arg, uint32_t index) {
    struct local_workers *c = arg;
    cr_assert_eq(index, c->n_made);
    c->n_made++;
    envlist_fini(&c->env);
}

static const struct worker_group_ops ops = {.make = make,
                                            .made = made,
                                            .on_exit = on_exit_of,
                                            .on_spawn_failed = on_spawn_failed,
                                            .on_all_gone = on_all_gone,
                                            .on_over = on_over};

static void local_workers_init(struct local_workers *c) {
    *c = (struct local_workers){.open_fds = rig_open_fds()};
    rig_init(&c->rig);
    w = c->rig.worker;
    hold = c->rig.hold;
    say = c->rig.say;
    cr_assert(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    cr_assert(loop_new(&c->loop) == 0);
    c->reaper = child_reaper_new(c->loop);
}

static void local_workers_fini(struct local_workers *c) {
    worker_group_free(c->group);
    child_reaper_run(c->reaper);
    child_reaper_free(c->reaper);
    loop_free(c->loop);
    rig_fini(&c->rig);
    cr_expect_eq(rig_open_fds(), c->open_fds, "descriptors are left");
}

static struct local_workers fix;
static void begin(void) { local_workers_init(&fix); }
static void finish(void) { local_workers_fini(&fix); }
TestSuite(worker_io, .init = begin, .fini = finish);

/* In a test of several rounds: the group of the next one. */
static void begin_again(void) {
    finish();
    begin();
}

static void local_workers_start(struct local_workers *c, char *const *const argvs[], uint32_t n) {
    c->argvs = argvs;
    c->n = n;
    c->n_made = 0;
    worker_group_start(c->loop, c->reaper, n, &c->config, &ops, c, &c->group);
}

/* Workers with one command line, all of which have reported that they run. */
static void local_workers_start_alike(struct local_workers *c, char *const *argv, uint32_t n) {
    static char *const *argvs[N_MAX];
    for (uint32_t i = 0; i < n; i++)
        argvs[i] = argv;
    local_workers_start(c, argvs, n);
    rig_await_ready(&c->rig, n, NULL);
}

static void on_begin(void *arg) {
    struct local_workers *c = arg;
    local_workers_start(c, c->argvs, c->n);
    loop_quit(c->loop);
}

/* A turn of the loop has time only for the first ones. */
static void local_workers_begin(struct local_workers *c, char *const *const argvs[], uint32_t n) {
    c->argvs = argvs;
    c->n = n;
    c->slow = true;
    loop_defer(c->loop, LOOP_PRIO_CHILD, on_begin, c);
    rig_loop_run(c->loop);
}

static void local_workers_run(struct local_workers *c) { rig_loop_run(c->loop); }

static void local_workers_run_to_the_end(struct local_workers *c) {
    if (c->all_gone == 0) /* a kill can be enough */
        local_workers_run(c);
    cr_expect_eq(c->all_gone, 1);
    cr_expect_not(c->held_at_all_gone, "told that all are gone while processes are left");
    cr_expect(worker_group_gone(c->group));
}

static const unsigned kernels[] = {0, CHILD_WITHOUT_PIDFD, CHILD_WITHOUT_CLOSE_RANGE};

Test(worker_io, tells_each_end_and_then_that_all_are_gone) {
    for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
        begin_again();
        fix.config.without = kernels[k];
        local_workers_start(&fix,
                            (char *const *[]){ARGV(w, "exit=0", NULL), ARGV(w, "exit=3", NULL),
                                              ARGV(w, hold, "daemon", "signal=9", NULL)},
                            3);
        local_workers_run_to_the_end(&fix);
        for (int i = 0; i < 3; i++)
            cr_expect_eq(fix.n_exits[i], 1);
        cr_expect(child_succeeded(&fix.exits[0].status));
        cr_expect(!fix.exits[1].status.signalled && fix.exits[1].status.code == 3);
        cr_expect(child_killed_by(&fix.exits[2].status, SIGKILL));
        cr_expect(!fix.exits[2].sent_by_us && !fix.exits[2].oom);
        cr_expect(fix.exits[2].ran_ns > 0 && fix.exits[2].ran_ns < RIG_DEADLINE_MS * NS_PER_MS);
        cr_expect_eq(worker_group_alive(fix.group), 0);
    }
}

Test(worker_io, stops_with_grace_and_kills_after_it) {
    uint64_t least_ns = UINT64_MAX; /* a single try can be slow, if the machine pauses */
    for (int i = 0; i < 3; i++) {
        begin_again();
        local_workers_start(
            &fix,
            (char *const *[]){ARGV(w, hold, "child", "daemon", "on-term=5", say, "wait", NULL),
                              ARGV(w, hold, "ignore=15", "child", "daemon", "bare-daemon", say, "wait", NULL),
                              ARGV(w, hold, say, "stop", "wait", NULL)},
            3);
        rig_await_ready(&fix.rig, 3, NULL);
        uint64_t from_ns = clock_now_ns();
        worker_group_stop(fix.group, SIGTERM, 200 * NS_PER_MS);
        local_workers_run_to_the_end(&fix);
        uint64_t took_ns = clock_now_ns() - from_ns;
        cr_expect_geq(took_ns, 200 * NS_PER_MS);
        least_ns = MIN2(least_ns, took_ns);
        cr_expect(fix.exits[0].status.code == 5 && fix.exits[0].sent_by_us);
        cr_expect(child_killed_by(&fix.exits[1].status, SIGKILL) && fix.exits[1].sent_by_us);
        cr_expect(child_killed_by(&fix.exits[2].status, SIGTERM) && fix.exits[2].sent_by_us, "a stopped one too");
    }
    cr_expect_lt(least_ns, 2 * NS_PER_S);
}

Test(worker_io, can_be_stopped_before_any_program_runs) {
    for (int i = 0; i < 5; i++) {
        begin_again();
        char *const *argv = ARGV(w, hold, "wait", NULL);
        local_workers_start(&fix, (char *const *[]){argv, argv, argv, argv}, 4);
        worker_group_stop(fix.group, SIGTERM, 3600 * NS_PER_S);
        local_workers_run_to_the_end(&fix);
    }
}

Test(worker_io, what_an_ended_worker_left_is_asked_to_end_and_its_sibling_keeps_its_daemon) {
    struct rig sibling; /* of processes that the group must spare */
    rig_init(&sibling);
    local_workers_start(&fix,
                        (char *const *[]){ARGV(w, hold, "polite-daemon", say, "wait", NULL),
                                          ARGV(w, "daemon", sibling.hold, "daemon", sibling.say, "wait", NULL)},
                        2);
    rig_await_ready(&fix.rig, 1, NULL);
    rig_await_ready(&sibling, 1, NULL);
    kill(worker_group_pid(fix.group, 0), SIGKILL);
    fix.quit_after_exits = 1;
    local_workers_run(&fix);
    while (!rig_all_gone(&fix.rig)) /* its daemon ends, too */
        cr_assert(loop_turn(fix.loop) == 0);
    cr_expect_eq(worker_group_alive(fix.group), 1);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    cr_expect(rig_all_gone(&sibling));
    rig_fini(&sibling);
}

static int look_only(void *arg, pid_t pid, bool own) { return 0; }

Test(worker_io, what_a_group_left_is_killed_beside_the_next_group_whose_processes_are_spared) {
    struct local_workers next = {.loop = fix.loop, .reaper = fix.reaper};
    struct sweep_result left;
    rig_init(&next.rig);
    fix.config.grace_ns = 100 * NS_PER_S;
    local_workers_start(&fix, (char *const *[]){ARGV(w, hold, "daemon", say, NULL)}, 1);
    while (!worker_group_gone(fix.group))
        cr_assert(loop_turn(fix.loop) == 0);
    local_workers_start_alike(&next, ARGV(w, next.rig.hold, "bare-daemon", next.rig.say, "wait", NULL), 1);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    sweep_pass(&(struct sweep_except){.seen = look_only}, &left);
    cr_expect_eq(left.alive, 2, "the worker, and its daemon without a marker");
    worker_group_free(next.group);
    rig_fini(&next.rig);
}

static void on_helper_exit(void *arg, const struct child_status *status) { ++*(int *)arg; }

Test(worker_io, helpers_and_what_is_below_them_are_spared) {
    struct rig helpers; /* of processes that the group must spare */
    rig_init(&helpers);
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.argv = ARGV(w, "child", helpers.hold, "child", helpers.say, "wait", NULL);
    spec.setsid = true;
    struct child child;
    struct child_watch *watch;
    int ended = 0;
    cr_assert(child_spawn(&spec, &child, NULL) == 0);
    watch = child_watch_new(fix.reaper, &child, NULL, on_helper_exit, &ended);
    rig_await_ready(&helpers, 1, NULL);
    local_workers_start_alike(&fix, ARGV(w, hold, "daemon", "bare-daemon", say, "wait", NULL), 2);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    cr_expect_eq(ended, 0, "the helper was killed");
    cr_expect_not(rig_all_gone(&helpers));
    cr_assert(child_watch_kill_group(watch, SIGKILL) == 0);
    (void)rig_await_gone(&helpers);
    while (ended == 0)
        cr_assert(loop_turn(fix.loop) == 0);
    child_watch_free(watch);
    rig_fini(&helpers);
}

/* Its parent, a helper, has ended: it is a child of this process, as what workers leave is. */
static pid_t leave_a_helpers_helper(void) {
    int fds[2];
    pid_t pid = 0;
    char byte;
    cr_assert(pipe2(fds, O_CLOEXEC) == 0);
    pid_t helper = fork();
    if (helper == 0) {
        pid = fork();
        if (pid > 0)
            _exit(0);
        (void)prctl(PR_SET_NAME, "muster-log-tail");
        pid = getpid();
        (void)alarm(300);
        (void)!write(fds[1], &pid, sizeof pid);
        close(fds[1]);
        for (;;)
            pause();
    }
    close(fds[1]);
    cr_assert(waitpid(helper, NULL, 0) == helper);
    cr_assert(read(fds[0], &pid, sizeof pid) == sizeof pid);
    (void)!read(fds[0], &byte, 1);
    close(fds[0]);
    return pid;
}

Test(worker_io, a_helpers_helper_that_a_disk_holds_is_spared) {
    struct spare spare = {0};
    pid_t held = leave_a_helpers_helper();
    cr_assert_not(spare_lives(&spare, "muster-log-tail"));
    spare_add(&spare, held);
    fix.config.spare = &spare;
    local_workers_start(&fix, (char *const *[]){ARGV(w, hold, "exit=3", NULL)}, 1);
    local_workers_run_to_the_end(&fix);
    cr_expect(spare_lives(&spare, "muster-log-tail"), "it was killed");
    spare_end(&spare, NS_PER_S);
    cr_expect_not(spare_lives(&spare, "muster-log-tail"));
}

Test(worker_io, knows_which_processes_are_its_workers) {
    local_workers_start(&fix,
                        (char *const *[]){ARGV(w, hold, "child", "daemon", say, "wait", NULL),
                                          ARGV("sh", "-c", "\"$0\" \"$1\" \"$2\" wait & wait", w, hold, say, NULL)},
                        2);
    pid_t pids[2];
    rig_await_ready(&fix.rig, 2, pids);
    uint32_t which = UINT32_MAX;
    for (uint32_t i = 0; i < 2; i++) {
        cr_expect(worker_group_holds(fix.group, worker_group_pid(fix.group, i), &which) && which == i);
        which = UINT32_MAX;
        cr_expect(worker_group_holds(fix.group, rig_first_child(worker_group_pid(fix.group, i)), &which) && which == i);
        cr_expect(worker_group_holds(fix.group, pids[i], &which), "a worker, or one below it");
    }
    cr_expect_not(worker_group_holds(fix.group, getpid(), &which));
    cr_expect_not(worker_group_holds(fix.group, getppid(), &which));
    cr_expect_not(worker_group_holds(fix.group, 1, &which));
    cr_expect_not(worker_group_holds(fix.group, 0, &which));
    /* A child of this process that is not a worker. */
    pid_t stranger = fork();
    if (stranger == 0) {
        pause();
        _exit(0);
    }
    cr_expect_not(worker_group_holds(fix.group, stranger, &which));
    cr_assert(kill(stranger, SIGKILL) == 0);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    cr_expect_not(worker_group_holds(fix.group, pids[0], &which), "it has ended");
}

Test(worker_io, a_start_that_fails_is_told_with_its_step) {
    for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
        begin_again();
        fix.config.without = kernels[k];
        local_workers_start(&fix,
                            (char *const *[]){ARGV(w, "exit=0", NULL), ARGV("/no/such/x", NULL),
                                              ARGV("muster-no-such-program", NULL), ARGV("/etc/passwd", NULL)},
                            4);
        cr_expect_eq(fix.n_failures[1], 0, "called back from inside the start");
        local_workers_run_to_the_end(&fix);
        cr_expect_eq(fix.n_exits[0], 1);
        for (int i = 1; i < 4; i++) {
            cr_expect_eq(fix.n_failures[i], 1);
            cr_expect_eq(fix.n_exits[i], 0);
        }
        cr_expect_str_eq(fix.failures[1].text, "cannot run /no/such/x: No such file or directory");
        cr_expect_eq(fix.failures[1].code, -ENOENT);
        expect_has(fix.failures[2].text, "not found on PATH");
        cr_expect_str_eq(fix.failures[3].text, "cannot run /etc/passwd: Permission denied");
    }
}

Test(worker_io, may_be_freed_in_a_callback_and_kills_what_is_left) {
    fix.free_on_exit = true;
    local_workers_start(&fix,
                        (char *const *[]){ARGV(w, hold, say, "cat", "wait", NULL),
                                          ARGV(w, hold, "daemon", "bare-daemon", say, "wait", NULL)},
                        2);
    rig_await_ready(&fix.rig, 2, NULL);
    kill(worker_group_pid(fix.group, 0), SIGKILL);
    local_workers_run(&fix);
    cr_expect_eq(fix.n_exits[0], 1);
    (void)rig_await_gone(&fix.rig);
}

Test(worker_io, each_worker_has_its_marker_and_session) {
    (void)signal(SIGHUP, SIG_DFL); /* the tests may run under nohup */
    begin_again();
    fix.config.generation = 12;
    int out[2];
    cr_assert(pipe2(out, O_CLOEXEC) == 0);
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.argv = ARGV(w, "env=" WORKER_MARKER, "sid", "fds", "mask", NULL);
    spec.stdout_fd = out[1];
    fix.spec = &spec;
    local_workers_start(&fix, NULL, 1);
    close(out[1]);
    local_workers_run_to_the_end(&fix);
    char text[512] = "";
    cr_assert(read(out[0], text, sizeof text - 1) > 0);
    close(out[0]);
    cr_expect(strncmp(text, "12.0.", 5) == 0 && strstr(text, "\nleader\nend\nend\n") == text + 21, "%s", text);
}

/* ---- while half of them are started ---- */

#define SLEEPERS ARGV(w, hold, "wait", NULL), ARGV(w, hold, "wait", NULL)

Test(worker_io, a_turn_of_the_loop_starts_what_it_has_time_for) {
    local_workers_begin(&fix, (char *const *[]){SLEEPERS, SLEEPERS}, 4);
    cr_expect_eq(fix.n_made, 1);
    cr_expect_eq(worker_group_alive(fix.group), 4);
    cr_expect(worker_group_pid(fix.group, 0) > 0 && worker_group_pid(fix.group, 3) == 0);
    while (fix.n_made < 4)
        cr_assert(loop_turn(fix.loop) == 0);
    cr_expect(worker_group_pid(fix.group, 3) > 0);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(fix.n_exits[i], 1);
}

Test(worker_io, a_stop_in_the_middle_starts_no_more) {
    for (int kill_them = 0; kill_them < 2; kill_them++) {
        begin_again();
        local_workers_begin(&fix, (char *const *[]){SLEEPERS, SLEEPERS}, 4);
        if (kill_them)
            worker_group_kill(fix.group);
        else
            worker_group_stop(fix.group, SIGTERM, RIG_DEADLINE_MS * NS_PER_MS);
        cr_expect_eq(worker_group_alive(fix.group), 1);
        local_workers_run_to_the_end(&fix);
        cr_expect_eq(fix.n_made, 1);
        cr_expect(fix.n_exits[0] == 1 && fix.exits[0].sent_by_us);
        for (int i = 1; i < 4; i++)
            cr_expect(fix.n_exits[i] == 0 && fix.n_failures[i] == 0);
    }
}

Test(worker_io, a_failure_in_the_middle_is_told_at_once) {
    fix.stop_on_exit = true;
    local_workers_begin(&fix, (char *const *[]){ARGV(w, "exit=3", NULL), SLEEPERS, SLEEPERS}, 5);
    siginfo_t si;
    cr_assert(waitid(P_PID, (id_t)worker_group_pid(fix.group, 0), &si, WEXITED | WNOWAIT) == 0);
    local_workers_run_to_the_end(&fix);
    cr_expect(fix.n_exits[0] == 1 && fix.exits[0].status.code == 3 && !fix.exits[0].sent_by_us);
    cr_expect_lt(fix.n_made, 5, "%u were started before the exit was heard", fix.n_made);
}

Test(worker_io, one_that_cannot_be_made_ready_is_the_last) {
    fix.unmade = 2;
    local_workers_begin(&fix, (char *const *[]){SLEEPERS, SLEEPERS}, 4);
    while (fix.n_failures[2] == 0)
        cr_assert(loop_turn(fix.loop) == 0);
    cr_expect_str_eq(fix.failures[2].text, "no room");
    cr_expect_eq(worker_group_alive(fix.group), 2);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
    cr_expect(fix.n_made == 3 && fix.n_failures[3] == 0 && fix.n_exits[3] == 0);
}

Test(worker_io, may_be_freed_in_the_middle) {
    local_workers_begin(&fix, (char *const *[]){SLEEPERS, SLEEPERS}, 4);
    worker_group_free(TAKE_PTR(fix.group));
    cr_assert(loop_turn(fix.loop) == 0);
    cr_expect_eq(fix.n_made, 1);
    (void)rig_await_gone(&fix.rig);
}

static void write_count(const char *path, int count) {
    FILE *f = fopen(path, "we");
    cr_assert(f != NULL);
    fprintf(f, "low 0\nhigh 0\nmax 7\noom 9\noom_kill %d\noom_group_kill 0\n", count);
    fclose(f);
}

/* does: "wait", and it gets SIGKILL, by_us or from elsewhere; counted: the kernel's count was raised meanwhile. */
static bool told_oom(const char *does, bool by_us, bool counted) {
    begin_again();
    char path[128];
    snprintf(path, sizeof path, "%s/memory.events", fix.rig.dir);
    write_count(path, 3);
    fix.config.oom_file = path;
    local_workers_start_alike(&fix, ARGV(w, say, does, NULL), 1);
    if (counted)
        write_count(path, 4);
    if (by_us)
        worker_group_kill(fix.group);
    else if (strcmp(does, "wait") == 0)
        kill(worker_group_pid(fix.group, 0), SIGKILL);
    local_workers_run_to_the_end(&fix);
    unlink(path);
    return fix.exits[0].oom;
}

Test(worker_io, out_of_memory_is_a_foreign_kill_that_the_kernel_has_counted) {
    cr_expect(told_oom("wait", false, true));
    cr_expect_not(told_oom("wait", false, false));
    cr_expect_not(told_oom("wait", true, true));
    cr_expect(told_oom("exit=137", false, true), "a shell, whose program was killed");
    cr_expect_not(told_oom("exit=1", false, true));
}

/* ---- signals that come from elsewhere, too ---- */

Test(worker_io, a_stop_that_is_held_sends_its_signal_when_it_is_released) {
    for (int early = 0; early < 2; early++) {
        begin_again();
        local_workers_start_alike(&fix, ARGV(w, hold, "on-term=5", say, "wait", NULL), 2);
        worker_group_hold(fix.group, SIGTERM);
        if (!early)
            worker_group_stop(fix.group, SIGTERM, 3600 * NS_PER_S);
        cr_assert_eq(loop_turn(fix.loop), 0);
        cr_expect(fix.n_exits[0] == 0 && fix.n_exits[1] == 0);
        worker_group_release(fix.group, 0);
        if (early)
            worker_group_stop(fix.group, SIGTERM, 3600 * NS_PER_S);
        local_workers_run_to_the_end(&fix);
        for (int i = 0; i < 2; i++)
            cr_expect(fix.exits[i].status.code == 5 && fix.exits[i].sent_by_us);
    }
}

/* Worker 0 was started before the signal, and would be killed only after the grace; worker 1 later. */
Test(worker_io, who_has_the_signal_from_elsewhere_does_not_get_it_again) {
    char *const *argv = ARGV(w, hold, "on-term=5", say, "wait", NULL);
    local_workers_begin(&fix, (char *const *[]){argv, argv}, 2);
    uint64_t between_ns = clock_now_ns();
    rig_loop_until(fix.loop, fix.n_made >= 2);
    rig_await_ready(&fix.rig, 2, NULL);
    worker_group_hold(fix.group, SIGTERM);
    worker_group_stop(fix.group, SIGTERM, 300 * NS_PER_MS);
    worker_group_release(fix.group, between_ns);
    local_workers_run_to_the_end(&fix);
    cr_expect(child_killed_by(&fix.exits[0].status, SIGKILL), "it got no SIGTERM");
    cr_expect(!fix.exits[1].status.signalled && fix.exits[1].status.code == 5, "it got one");
    cr_expect(fix.exits[0].sent_by_us && fix.exits[1].sent_by_us);
}

static char last_line[256];
static void on_line(void *arg, const char *line, size_t len) {
    (void)snprintf(last_line, sizeof last_line, "%s", line);
}

Test(worker_io, a_kill_is_reported_and_does_not_wait_for_a_signal_that_is_held) {
    local_workers_start_alike(&fix, ARGV(w, hold, "ignore=15", say, "wait", NULL), 1);
    worker_group_hold(fix.group, SIGTERM);
    log_set_sink(on_line, NULL);
    worker_group_stop(fix.group, SIGTERM, 50 * NS_PER_MS);
    local_workers_run_to_the_end(&fix);
    log_set_sink(NULL, NULL);
    cr_expect(child_killed_by(&fix.exits[0].status, SIGKILL));
    expect_has(last_line, "killed what had not ended: rank 0, process ");
}

Test(worker_io, a_signal_that_is_passed_on_is_not_for_workers_of_later) {
    uint64_t before_ns = clock_now_ns();
    local_workers_start_alike(&fix, ARGV(w, hold, "ignore=10", say, "wait", NULL), 2);
    cr_expect_eq(worker_group_signal(fix.group, SIGUSR1, before_ns), 0);
    cr_expect_eq(worker_group_signal(fix.group, SIGUSR1, clock_now_ns()), 2);
    worker_group_kill(fix.group);
    local_workers_run_to_the_end(&fix);
}
