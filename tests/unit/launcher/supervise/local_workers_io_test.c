#include "launcher/supervise/local_workers_io.h"

#include <sys/prctl.h>
#include <sys/un.h>

#include "../../../process/rig.h"
#include "rig/loop_rig.h"
#include "topology/discover/discovery_io.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static const struct generation g23 = {2, 3};

/* Local workers with one worker, and what they have reported. */
struct fixture {
    struct rig rig;
    struct loop *loop;
    struct child_reaper *reaper;
    struct console *console;
    struct writer *writer;
    struct guardian_link link;
    struct job_spec spec;
    enum bind_mode bind;
    unsigned look_for; /* LOOK_*; 0: no discovery */
    struct node_discovery *discovery;
    struct node_discovery *to_lend; /* once; NULL: nothing */
    int n_prepared;
    struct generation prepared;
    struct local_workers *local_workers;
    int n_safe_points, all_gone;
    struct generation safe_point;
};

static void on_event(void *arg, const struct member_event *event) {
    struct fixture *f = arg;
    if (event->kind == MEMBER_EVENT_ALL_GONE) {
        cr_expect_eq(event->generation.epoch, g23.epoch);
        f->all_gone++;
        loop_quit(f->loop);
    } else if (event->kind == MEMBER_EVENT_SAFE_POINT) {
        f->n_safe_points++;
        f->safe_point = event->generation;
        loop_quit(f->loop);
    } else {
        cr_assert_neq(event->kind, MEMBER_EVENT_UNKILLABLE, "%s", event->reason);
    }
}
static void on_prepared(void *arg, struct generation g, const struct err *err) {
    struct fixture *f = arg;
    cr_expect_null(err);
    f->n_prepared++;
    f->prepared = g;
    loop_quit(f->loop);
}

static pid_t writer_pid;

static void on_writer(void *arg, pid_t pid) { writer_pid = pid; }

static struct node_discovery *lend(void *arg, const char *leader) {
    struct fixture *f = arg;
    cr_expect_str_eq(leader, "198.51.100.7");
    return TAKE_PTR(f->to_lend);
}

/* args: arguments of `program`; NULL: of the test worker. */
static void fixture_init(struct fixture *f, const char *program, char **args) {
    *f = (struct fixture){.link = GUARDIAN_LINK_INIT, .bind = f->bind, .look_for = f->look_for};
    rig_init(&f->rig);
    cr_assert(setenv("NAME_FILE", rig_text("%s/name", f->rig.dir), 1) == 0 &&
              setenv("READY", rig_path(f->rig.say), 1) == 0);
    cr_assert(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    cr_assert(loop_new(&f->loop) == 0);
    f->reaper = child_reaper_new(f->loop);
    f->console = console_new(f->loop, STDOUT_FILENO, STDERR_FILENO);
    f->spec = (struct job_spec){.nproc = 1,
                                .run_id = TEXT("job7"),
                                .role = TEXT("default"),
                                .entry = JOB_ENTRY_PROGRAM,
                                .script = program != NULL ? TEXT(program) : f->rig.worker,
                                .args = args,
                                .log_dir = TEXT("/dev/null"),
                                .shutdown_timeout_ns = 3600 * NS_PER_S,
                                .bind = f->bind,
                                .bind_memory = BIND_MEMORY_OFF};
    f->writer = writer_new(f->loop, f->console, &f->spec, on_writer, NULL);
    struct err err = {0};
    struct node_discovery_config discovery = {.what = f->look_for};
    if (f->look_for != 0)
        cr_assert_eq(node_discovery_new(f->loop, &discovery, &f->discovery, &err), 0, "%s", err.text);
    static const struct local_workers_ops ops = {.on_event = on_event, .on_prepared = on_prepared, .lend = lend};
    struct local_workers_config config = {.place = {.spec = &f->spec, .envp = environ, .discovery = f->discovery},
                                          .host = "h",
                                          .incarnation = 7,
                                          .link = &f->link,
                                          .reaper = f->reaper,
                                          .writer = f->writer};
    f->local_workers = local_workers_new(f->loop, &config, &ops, f);
}

static const struct form alone = {
    .n_nodes = 1, .world_size = 1, .role_world_size = 1, .store_host = "127.0.0.1", .store_port = 1};

static void start(struct fixture *f) {
    struct err err = {0};
    cr_assert(local_workers_prepare(f->local_workers, g23, &alone, &err) == 0, "%s", err.text);
    cr_assert(local_workers_start(f->local_workers, NULL, &err) == 0, "%s", err.text);
}

static void fixture_fini(struct fixture *f) {
    node_discovery_free(f->discovery);
    local_workers_free(f->local_workers);
    writer_free(f->writer);
    console_free(f->console);
    child_reaper_free(f->reaper);
    loop_free(f->loop);
    rig_fini(&f->rig);
}

static void stop(struct fixture *f) {
    local_workers_stop(f->local_workers, SIGTERM, 3600 * NS_PER_S);
    while (f->all_gone == 0)
        rig_loop_run(f->loop);
    fixture_fini(f);
}

Test(local_workers_io, is_prepared_when_the_node_was_looked_at) {
    struct fixture f = {.bind = BIND_CORE, .look_for = DISCOVER_CPUS};
    char *args[] = {TEXT("notify=MUSTER_SAFE_POINT=1"), TEXT("wait"), NULL};
    struct err err = {0};
    fixture_init(&f, NULL, args);
    cr_assert_eq(local_workers_prepare(f.local_workers, (struct generation){2, 2}, &alone, &err),
                 LOCAL_WORKERS_E_LATER);
    cr_assert_eq(local_workers_prepare(f.local_workers, g23, &alone, &err), LOCAL_WORKERS_E_LATER,
                 "the next group forms before that");
    rig_loop_run(f.loop);
    cr_expect_eq(f.n_prepared, 1);
    cr_expect_eq(generation_compare(f.prepared, g23), 0);
    cr_assert_not_null(node_discovery_found(f.discovery)->topology);
    cr_assert(local_workers_start(f.local_workers, NULL, &err) == 0, "%s", err.text);
    rig_loop_run(f.loop);
    cr_expect_eq(f.n_safe_points, 1);
    cr_expect_eq(generation_compare(f.safe_point, g23), 0);
    stop(&f);
}

/* A group with other hosts: workers need the interface that leads to the leader. */
static const struct form far = {
    .n_nodes = 2, .world_size = 2, .role_world_size = 2, .store_host = "198.51.100.7", .store_port = 1};

/* This process's children but the log writer, oldest first. Returns how many there are. */
static unsigned children(pid_t ret[4]) {
    char text[256] = "", *at = text;
    unsigned n = 0;
    FILE *f = fopen(rig_text("/proc/self/task/%d/children", (int)getpid()), "re");
    cr_assert_not_null(f);
    (void)fgets(text, sizeof text, f);
    (void)fclose(f);
    for (char *end; n < 4 && (ret[n] = (pid_t)strtol(at, &end, 10), end != at); at = end)
        n += ret[n] != writer_pid;
    return n;
}

static void on_lent_ended(void *arg) { loop_quit(arg); }

static struct node_discovery *begin_to_lend(struct fixture *f) {
    struct node_discovery_config config = {
        .what = DISCOVER_NICS, .netifs_first = true, .facts = true, .route_to = far.store_host, .envp = environ};
    struct err err = {0};
    cr_assert_eq(node_discovery_new(f->loop, &config, &f->to_lend, &err), 0, "%s", err.text);
    return f->to_lend;
}

Test(local_workers_io, uses_what_another_has_discovered_of_the_network) {
    struct fixture f = {0};
    pid_t pids[4];
    struct err err = {0};
    fixture_init(&f, NULL, NULL);
    f.spec.nccl_env = NCCL_ENV_FULL;
    struct node_discovery *lent = begin_to_lend(&f);
    cr_assert_eq(local_workers_prepare(f.local_workers, g23, &far, &err), LOCAL_WORKERS_E_LATER);
    cr_expect_eq(children(pids), 1u, "one process examines this node");
    rig_loop_run(f.loop);
    cr_expect_eq(f.n_prepared, 1);
    cr_expect(node_discovery_found(lent)->ended);
    f.to_lend = lent;
    cr_assert_eq(local_workers_prepare(f.local_workers, (struct generation){2, 4}, &far, &err), 0,
                 "it has ended: there is nothing to wait for");
    node_discovery_free(lent);
    fixture_fini(&f);
}

/* The end of what an earlier group has borrowed is not the end of what this one has asked. False: this one's process
 * had answered before it could be stopped, so nothing was shown. */
static bool lent_ends_before_its_own(void) {
    struct fixture f = {0};
    pid_t pids[4];
    struct err err = {0};
    fixture_init(&f, NULL, NULL);
    f.spec.nccl_env = NCCL_ENV_FULL;
    struct node_discovery *lent = begin_to_lend(&f);
    cr_assert_eq(local_workers_prepare(f.local_workers, g23, &far, &err), LOCAL_WORKERS_E_LATER);
    struct generation next = {2, 4};
    cr_assert_eq(local_workers_prepare(f.local_workers, next, &far, &err), LOCAL_WORKERS_E_LATER);
    siginfo_t end = {0};
    bool shown = children(pids) == 2 && kill(pids[1], SIGSTOP) == 0 &&
                 waitid(P_PID, (id_t)pids[1], &end, WSTOPPED | WEXITED | WNOWAIT) == 0 && end.si_code == CLD_STOPPED;
    node_discovery_wait(lent, on_lent_ended, f.loop);
    if (shown) {
        rig_loop_run(f.loop);
        cr_assert(node_discovery_found(lent)->ended);
        cr_expect_eq(f.n_prepared, 0);
        cr_assert_eq(kill(pids[1], SIGCONT), 0);
    }
    while (f.n_prepared == 0 || !node_discovery_found(lent)->ended)
        rig_loop_run(f.loop);
    cr_expect_eq(f.n_prepared, 1);
    cr_expect_eq(generation_compare(f.prepared, next), 0);
    node_discovery_free(lent);
    fixture_fini(&f);
    while (wait(NULL) > 0) /* none is left that the next attempt would count */
        continue;
    return shown;
}

Test(local_workers_io, waits_for_its_own_discovery_after_a_borrowed_one) {
    unsigned attempts = 0;
    while (!lent_ends_before_its_own())
        cr_assert_lt(++attempts, 50u);
}

static void say_to(const char *name, const char *text) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path + 1, name + 1, strlen(name) - 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t sent = sendto(fd, text, strlen(text), 0, (struct sockaddr *)&addr, size);
    cr_assert_eq(sent, (ssize_t)strlen(text));
    (void)close(fd);
}

/* The test itself sends the message; it is above the worker. */
Test(local_workers_io, does_not_listen_to_strangers) {
    struct fixture f = {0};
    char *args[] = {TEXT("-c"),
                    TEXT("printf '%s' \"$MUSTER_NOTIFY_SOCKET\" >\"$NAME_FILE\"; "
                         "\"$WORKER\" \"say=$READY\" wait"),
                    NULL};
    fixture_init(&f, "/bin/sh", args);
    start(&f);
    rig_await_ready(&f.rig, 1, NULL);
    char name[108];
    FILE *file = fopen(getenv("NAME_FILE"), "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(name, sizeof name, file));
    (void)fclose(file);
    (void)unlink(getenv("NAME_FILE"));
    say_to(name, "MUSTER_SAFE_POINT=1");
    cr_assert(loop_turn(f.loop) == 0);
    stop(&f);
    cr_expect_eq(f.n_safe_points, 0);
}

/* The first group is over as soon as it is killed, because its only process has ended. */
Test(local_workers_io, kills_what_each_earlier_group_left) {
    struct fixture f = {0};
    char *args[] = {TEXT("-c"), TEXT("\"$WORKER\" \"$0\" daemon >/dev/null 2>&1"), f.rig.hold, NULL};
    struct err err = {0};
    pid_t left[4];
    fixture_init(&f, "/bin/sh", args);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(local_workers_prepare(f.local_workers, (struct generation){2, 3 + i}, &alone, &err), 0);
        cr_assert_eq(local_workers_start(f.local_workers, NULL, &err), 0);
        rig_loop_run(f.loop);
    }
    cr_assert_eq(children(left), 3u);
    cr_assert(kill(left[0], SIGKILL) == 0 && waitpid(left[0], NULL, 0) == left[0]);
    local_workers_kill(f.local_workers);
    rig_loop_until(f.loop, rig_all_gone(&f.rig));
    fixture_fini(&f);
}
