#include "watchdog/evidence/gather_io.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "io/net/addr.h"
#include "io/process/reaper.h"
#include "rig/tree.h"
#include "watchdog/evidence/disturb.h"

static struct loop *loop;
static struct child_reaper *reaper;
static struct evidence got;
static unsigned calls;
static pid_t waiter;
static uint16_t store_port;
static bool native; /* only native stacks */
static struct tree tree;
static char named[160]; /* a path in it */

static void begin(void) {
    tree_new(&tree);
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
}

static void finish(void) {
    if (waiter > 0)
        (void)kill(-waiter, SIGKILL);
    tree_remove(&tree);
    evidence_fini(&got);
    child_reaper_free(reaper);
    loop_free(loop);
}
TestSuite(gather, .init = begin, .fini = finish);

static void on_evidence(void *arg, const struct helper_answer *a) {
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    size_t len;
    const char *line = helper_answer_line(a, &len);
    strbuf_add_bytes(&json, line, len);
    if (len == 0)
        gather_none("b", a->code, 0, &json);
    calls++;
    cr_assert_eq(evidence_read(strbuf_text(&json), json.len, &got, &err), 0, "%s", err.text);
    loop_quit(loop);
}

/* Starts a process that leads a group and runs fn; it writes a byte to `ready` when it is about to wait. */
static pid_t start(void (*fn)(int ready)) {
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    waiter = fork();
    cr_assert_geq(waiter, 0);
    if (waiter == 0) {
        (void)setpgid(0, 0);
        (void)alarm(120);
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* as a worker: its reader is no ancestor */
        fn(ready[1]);
        _exit(0);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return waiter;
}

static void gather(const struct gather_worker *workers, size_t n, uint64_t timeout_ns) {
    struct gather_ask ask = {
        .node = "b", .workers = workers, .n = n, .store_port = store_port, .timeout_ns = timeout_ns, .native = native};
    struct helper_call *g = NULL;
    evidence_fini(&got);
    calls = 0;
    cr_assert_eq(gather_new(loop, &ask, on_evidence, NULL, &g), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(calls, 1);
}

/* Again until its main thread is seen in this system call: it may still be on its way there. */
static const struct evidence_worker *look(pid_t pid, const char *call) {
    struct gather_worker a = {
        .of.rank = 2, .of.local_rank = 1, .of.pid = pid, .of.still_ns = 31 * NS_PER_S, .of.step = 4};
    do {
        gather(&a, 1, 100 * NS_PER_S);
        cr_assert_eq(got.n_workers, 1);
        cr_assert_geq(got.workers[0].n_threads, 1, "%s", got.workers[0].n_gaps > 0 ? got.workers[0].gaps[0] : "");
    } while (strcmp(got.workers[0].threads[0].syscall, call) != 0);
    return &got.workers[0];
}

static void *second_thread(void *ready) {
    (void)prctl(PR_SET_NAME, "telemetry");
    (void)!write(*(int *)ready, "x", 1);
    for (;;)
        pause();
    return NULL;
}

static void wait_at_a_pipe(int ready) {
    int fds[2];
    pthread_t t;
    char byte;
    if (pipe(fds) != 0)
        return;
    pid_t loader = fork();
    if (loader == 0) {
        (void)prctl(PR_SET_NAME, "loader");
        for (;;)
            pause();
    }
    (void)pthread_create(&t, NULL, second_thread, &ready);
    (void)!read(fds[0], &byte, 1);
}

Test(gather, sees_the_threads_of_a_worker_and_its_children) {
    pid_t pid = start(wait_at_a_pipe);
    const struct evidence_worker *w = look(pid, "read");
    cr_expect_str_eq(got.node, "b");
    cr_expect(w->rank == 2 && w->local_rank == 1 && w->pid == pid && w->still_ns == 31 * NS_PER_S && w->step == 4);
    cr_expect_eq(w->threads[0].tid, pid);
    cr_expect_eq(w->threads[0].state, 'S');
    cr_expect_str_eq(w->threads[0].target, "pipe");
    cr_expect_eq(w->threads[0].stack, -1);
    cr_assert_eq(w->n_threads, 2);
    cr_expect_str_eq(w->threads[1].name, "telemetry");
    cr_assert_eq(w->n_children, 1);
    cr_expect_eq(w->children[0].parent, pid);
    cr_expect(w->children[0].main.tid == w->children[0].pid && w->children[0].main.state != 0);
    cr_expect_not(got.cut);
}

/* Thousands of threads and children must not cost the time for what comes after /proc, nor that of other workers. */
Test(gather, without_time_left_the_main_thread_is_looked_at_all_the_same) {
    pid_t pid = start(wait_at_a_pipe);
    (void)look(pid, "read");
    cr_assert(got.workers[0].n_threads == 2 && got.workers[0].n_children == 1);
    struct gather_worker workers[] = {{.of.rank = 0, .of.pid = pid}, {.of.rank = 1, .of.local_rank = 1, .of.pid = pid}};
    struct gather_ask ask = {.node = "b", .workers = workers, .n = ARRAY_SIZE(workers), .timeout_ns = 1};
    evidence_fini(&got);
    gather_now(&ask, &got);
    cr_assert_eq(got.n_workers, 2);
    for (uint32_t i = 0; i < got.n_workers; i++) {
        const struct evidence_worker *w = &got.workers[i];
        cr_assert_eq(w->n_threads, 1);
        cr_expect_str_eq(w->threads[0].syscall, "read");
        cr_expect(w->threads_cut && w->children_cut && w->n_children == 0);
    }
}

static const char *host;
static enum { LISTENS, TALKS, SENDS, LEFT } kind; /* SENDS: more than is read; LEFT: the other end has */

static void wait_at_a_socket(int ready) {
    static const char much[1 << 16];
    struct addr a, at;
    cr_assert_eq(addr_from_literal(host, 0, &a), 0);
    int fd = socket(a.ss.ss_family, SOCK_STREAM, 0), other = socket(a.ss.ss_family, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a.ss, a.len) != 0 || listen(fd, 1) != 0 || addr_of_socket(fd, &at) != 0)
        return;
    addr_set_port(&a, addr_port(&at));
    int theirs = kind == LISTENS || connect(other, (struct sockaddr *)&a.ss, a.len) != 0 ? -1 : accept(fd, NULL, NULL);
    while (kind == SENDS && send(other, much, sizeof much, MSG_DONTWAIT) > 0)
        ;
    if (kind == LEFT)
        (void)close(theirs);
    struct pollfd p[2] = {{.fd = kind == LISTENS ? fd : other}, {.fd = ready}};
    (void)!write(ready, "x", 1);
    (void)ppoll(p, 2, NULL, NULL); /* poll(2) is not on all architectures */
}

Test(gather, names_the_socket_that_a_worker_polls) {
    static const char *const rows[][3] = {
        [LISTENS] = {"127.0.0.1", "tcp 127.0.0.1:", " listening and 1 more"},
        [TALKS] = {"127.0.0.1", "tcp 127.0.0.1:", " established and 1 more"},
        [SENDS] = {"::ffff:127.0.0.1", "tcp 127.0.0.1:", " bytes unsent and 1 more"},
        [LEFT] = {"127.0.0.1", "tcp 127.0.0.1:", " close-wait and 1 more"},
    };
    for (kind = LISTENS; kind <= LEFT; kind++) {
        host = rows[kind][0];
        const char *target = look(start(wait_at_a_socket), "ppoll")->threads[0].target;
        cr_expect(strncmp(target, rows[kind][1], strlen(rows[kind][1])) == 0, "%s", target);
        cr_expect(strstr(target, rows[kind][2]) != NULL && (kind == LISTENS) == (strstr(target, " -> ") == NULL), "%s",
                  target);
        (void)kill(-waiter, SIGKILL);
    }
}

/* A FIFO that nobody writes. Its path is across the border of two pages. */
static void wait_in_open(int ready) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return;
    memcpy(at + page - 8, named, sizeof named);
    (void)!write(ready, "x", 1);
    (void)!open(at + page - 8, O_RDONLY);
}

Test(gather, names_the_path_that_a_worker_opens) {
    tree_pipe(&tree, "fifo");
    (void)snprintf(named, sizeof named, "%s/fifo", tree.root);
    cr_expect_str_eq(look(start(wait_in_open), "openat")->threads[0].target, named);
}

Test(gather, says_what_is_missing_of_a_process_that_is_gone) {
    struct gather_worker a[] = {{.of.rank = 0, .of.pid = INT32_MAX},
                                {.of.rank = 1, .of.pid = INT32_MAX, .of.ended = true}};
    gather(a, 2, 100 * NS_PER_S);
    cr_assert_eq(got.n_workers, 2);
    cr_assert_eq(got.workers[0].n_gaps, 1);
    expect_has(got.workers[0].gaps[0], "No such process");
    cr_expect(got.workers[1].ended && got.workers[1].n_gaps == 0);
}

Test(gather, sees_who_has_moved_meanwhile) {
    pid_t pid = start(wait_at_a_pipe);
    uint64_t ran_ns = look(pid, "read")->threads[0].ran_ns;
    struct gather_worker a[] = {{.of.pid = pid, .of.still_ns = 9 * NS_PER_S, .ran_ns = MAX2(ran_ns, (uint64_t)1)},
                                {.of.pid = getpid(), .of.still_ns = 9 * NS_PER_S, .ran_ns = 1},
                                {.of.pid = getpid(), .of.still_ns = 9 * NS_PER_S},
                                {.of.pid = INT32_MAX, .of.still_ns = 9 * NS_PER_S, .ran_ns = 1}};
    gather(a, 4, 100 * NS_PER_S);
    cr_expect_eq(got.workers[0].still_ns, 9 * NS_PER_S, "it waits");
    cr_expect_eq(got.workers[1].still_ns, 0, "it has run");
    cr_expect_eq(got.workers[2].still_ns, 9 * NS_PER_S, "what it had run before is not known");
    cr_expect_eq(got.workers[3].still_ns, 0, "it is gone");
}

static bool has_gap(const struct evidence_worker *w, const char *text) {
    bool has = false;
    for (uint32_t i = 0; i < w->n_gaps; i++)
        has = has || strstr(w->gaps[i], text) != NULL;
    return has;
}

/* With so many lines: "line 1", ... Returns its path. */
static const char *make_log(unsigned lines) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (unsigned i = 1; i <= lines; i++)
        strbuf_printf(&text, "line %u\n", i);
    tree_write(&tree, "log", strbuf_text(&text));
    return tree_at(&tree, "log");
}

Test(gather, keeps_the_last_lines_of_a_log) {
    struct gather_worker a = {.of.pid = getpid(), .logs = {"/nonexistent", make_log(2000)}};
    gather(&a, 1, 100 * NS_PER_S);
    const char *tail = got.workers[0].log_tail;
    cr_assert_not_null(tail);
    cr_expect(strncmp(tail, "line 1971\n", 10) == 0 && strcmp(tail + strlen(tail) - 10, "line 2000\n") == 0, "%s",
              tail);
    a.logs[1] = make_log(1);
    gather(&a, 1, 100 * NS_PER_S);
    cr_expect_str_eq(got.workers[0].log_tail, "line 1\n");
    tree_delete(&tree, "log");
    tree_pipe(&tree, "fifo");
    a.logs[0] = tree_at(&tree, "fifo");
    gather(&a, 1, 100 * NS_PER_S);
    cr_expect_null(got.workers[0].log_tail);
}

struct spare {
    bool holds; /* a helper that reads logs */
    pid_t touched;
};

static bool spared(struct spare *s, const char *name) {
    cr_assert_str_eq(name, GATHER_LOG_NAME);
    return s->holds;
}

static void spare(struct spare *s, pid_t pid) { s->touched = pid; }

static bool env(const struct local_workers *w, uint32_t local_rank, struct envlist *ret) {
    (void)w, (void)local_rank, (void)ret;
    return false;
}

Test(gather, who_reads_logs_is_told_and_a_disk_that_holds_one_is_left_alone) {
    const char *path = make_log(1);
    static const struct hang_workers_ops ops = {.env = env, .spare = spare, .spared = spared};
    struct spare disk = {.holds = false};
    struct hang_workers from = {.ops = &ops, .spare = &disk};
    struct gather_worker workers[] = {{.of.pid = getpid(), .logs = {path}},
                                      {.of.rank = 1, .of.pid = getpid(), .logs = {path}}};
    struct gather_ask ask = {.node = "b", .workers = workers, .n = 2, .timeout_ns = 100 * NS_PER_S, .from = &from};
    gather_now(&ask, &got);
    cr_expect_str_eq(got.workers[1].log_tail, "line 1\n");
    cr_expect_gt(disk.touched, 0);
    evidence_fini(&got);
    disk = (struct spare){.holds = true};
    gather_now(&ask, &got);
    cr_expect(got.workers[0].log_tail == NULL && disk.touched == 0);
    cr_expect(has_gap(&got.workers[0], "log: not read, because the disk still holds"));
    cr_expect(has_gap(&got.workers[1], "because that of another worker"));
}

Test(gather, answers_also_without_time) {
    gather(&(struct gather_worker){.of.pid = getpid()}, 1, 0);
    if (got.n_workers == 0) { /* else the helper was quicker than the loop */
        cr_assert_eq(got.n_gaps, 1);
        cr_expect(strncmp(got.gaps[0], "nothing could be gathered: ", 27) == 0, "%s", got.gaps[0]);
        cr_expect_null(strstr(got.gaps[0], "Connection"), "there is none: %s", got.gaps[0]);
    }
}

static const char *program = "import os, sys, threading\n"
                             "def second():\n"
                             "    os.read(0, 1)\n"
                             "def wait_here():\n"
                             "    os.write(int(sys.argv[1]), b'x')\n"
                             "    os.read(0, 1)\n"
                             "threading.Thread(target=second).start()\n"
                             "wait_here()\n";

static void be_python(int ready) {
    int fds[2];
    const char *number = rig_text("%d", ready);
    if (pipe(fds) == 0 && dup2(fds[0], 0) == 0)
        (void)execlp("python3", "python3", "-S", "-c", program, number, (char *)NULL);
}

static void be_a_shell_around_python(int ready) {
    int fds[2];
    const char *line = rig_text("python3 -S -c \"$PROGRAM\" %d; true", ready);
    (void)setenv("PROGRAM", program, 1);
    if (pipe(fds) == 0 && dup2(fds[0], 0) == 0)
        (void)execlp("sh", "sh", "-c", line, (char *)NULL);
}

static const char *crowd = "import os, sys, threading\n"
                           "def second():\n"
                           "    os.read(0, 1)\n"
                           "def load():\n"
                           "    os.read(0, 1)\n"
                           "if os.fork() == 0:\n"
                           "    load()\n"
                           "for i in range(80):\n"
                           "    threading.Thread(target=second).start()\n"
                           "os.write(int(sys.argv[1]), b'x')\n"
                           "os.read(0, 1)\n";

static void be_python_with_many_threads(int ready) {
    program = crowd;
    be_python(ready);
}

static const struct evidence_stack *stack_of(const struct evidence_thread *t) {
    cr_assert(t->stack >= 0 && t->stack<(int32_t)got.n_stacks, "%d: %s", t->stack, got.workers[0].n_gaps> 0
                  ? got.workers[0].gaps[0]
                  : "no gap");
    return &got.stacks[t->stack];
}

Test(gather, reads_the_python_stacks_of_all_threads) {
    pid_t pid = start(be_python);
    const struct evidence_worker *w;
    do /* the second thread, too, may still be on its way */
        w = look(pid, "read");
    while (w->n_threads != 2 || strcmp(w->threads[1].syscall, "read") != 0);
    const struct evidence_stack *s = stack_of(&w->threads[0]);
    cr_assert_eq(s->n, 2);
    cr_expect(strcmp(s->frames[0].function, "wait_here") == 0 && s->frames[0].line == 6, "%s:%u", s->frames[0].function,
              s->frames[0].line);
    cr_expect(strcmp(s->frames[1].function, "<module>") == 0 && s->frames[1].line == 8);
    s = stack_of(&w->threads[1]);
    cr_expect(strcmp(s->frames[0].function, "second") == 0 && s->frames[0].line == 3);
}

Test(gather, a_shell_has_the_stack_of_the_program_that_it_waits_for) {
    pid_t pid = start(be_a_shell_around_python);
    const struct evidence_worker *w;
    do
        w = look(pid, "wait4");
    while (w->n_children != 1 || strcmp(w->children[0].main.syscall, "read") != 0);
    const struct evidence_stack *s = stack_of(&w->threads[0]);
    cr_expect_eq(w->threads[0].stack, w->children[0].main.stack);
    cr_expect_str_eq(s->frames[0].function, "wait_here");
}

/* They would have taken all the places. */
Test(gather, very_many_threads_leave_the_stack_of_a_child) {
    pid_t pid = start(be_python_with_many_threads);
    const struct evidence_worker *w;
    do
        w = look(pid, "read");
    while (w->n_children != 1 || strcmp(w->children[0].main.syscall, "read") != 0);
    cr_expect(w->n_threads == EVIDENCE_THREADS_MAX && w->threads_cut);
    cr_expect_str_eq(stack_of(&w->threads[0])->frames[0].function, "<module>");
    cr_expect_str_eq(stack_of(&w->children[0].main)->frames[0].function, "load");
}

static void gather_native(const struct gather_worker *workers, size_t n) {
    native = true;
    gather(workers, n, 100 * NS_PER_S);
    native = false;
}

Test(gather, reads_native_stacks_only_if_that_is_asked_for) {
    tree_write(&tree, "eu-stack", /* prints its arguments */
               "#!/bin/sh\nprintf \"PID $3\\nTID $3:\\n#0  0x1 %s\\n\" "
               "\"$*${DEBUGINFOD_URLS+ and $DEBUGINFOD_URLS}\"\n");
    cr_assert_eq(chmod(tree_at(&tree, "eu-stack"), 0700), 0);
    (void)setenv("PATH", tree.root, 1);
    (void)setenv("DEBUGINFOD_URLS", "https://example.org", 1);
    pid_t pid = start(wait_at_a_pipe);
    struct gather_worker a[6] = {{.of.pid = pid}};
    gather(a, 1, 100 * NS_PER_S);
    cr_expect_null(got.workers[0].native_stack);
    for (uint32_t i = 0; i < 6; i++)
        a[i] = (struct gather_worker){.of.rank = i, .of.pid = pid};
    gather_native(a, 6);
    const char *expected = rig_text("thread %d:\n  -m -p %d\n", (int)pid, (int)pid);
    for (uint32_t i = 0; i < 6; i++) {
        cr_assert_eq(got.workers[i].rank, i);
        cr_assert_eq(got.workers[i].n_threads, 0, "nothing else is read");
        cr_assert_not_null(got.workers[i].native_stack, "%s", got.workers[i].gaps[0]);
        cr_expect_str_eq(got.workers[i].native_stack, expected);
    }
    tree_delete(&tree, "eu-stack");
    gather_native(a, 1);
    cr_expect_null(got.workers[0].native_stack);
    cr_expect(has_gap(&got.workers[0], "eu-stack is not installed (elfutils)"));
}

Test(gather, the_native_stack_of_a_traced_process_is_not_read) {
    pid_t pid = start(wait_at_a_pipe);
    int status;
    cr_assert_eq(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    cr_assert_eq(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    gather_native(&(struct gather_worker){.of.pid = pid}, 1);
    cr_expect_null(got.workers[0].native_stack);
    cr_expect(has_gap(&got.workers[0], "traces it"), "%s", got.workers[0].gaps[0]);
    (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
}

Test(gather, attaches_to_no_process_that_would_hang) {
    static const struct {
        char state;
        const char *wchan;
        bool may;
    } cases[] = {
        {'S', "futex_do_wait", true},
        {'R', "0", true},
        {'T', "do_signal_stop", true},
        {'S', "request_wait_answer", false},
        {'S', "fuse_dev_do_read", false},
        {'D', "io_schedule", false},
        {'t', "ptrace_stop", false},
        {'S', "0", false},
        {'S', "", false},
        {0, "", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(disturb_may_attach(cases[i].state, cases[i].wchan), cases[i].may, "%zu", i);
}

static void wait_without_abort(int ready) {
    sigset_t abort;
    (void)sigemptyset(&abort);
    (void)sigaddset(&abort, SIGABRT);
    (void)sigprocmask(SIG_BLOCK, &abort, NULL);
    (void)!write(ready, "x", 1);
    for (;;)
        pause();
}

/* 1, and not 0: for a program that core_pattern names, the kernel takes no notice of 0. */
Test(gather, a_program_that_takes_cores_gets_none) {
    struct rlimit limit = {0};
    pid_t pid = start(wait_without_abort);
    cr_assert_eq(disturb_abort(pid), 0);
    cr_assert_eq(prlimit(pid, RLIMIT_CORE, NULL, &limit), 0);
    cr_expect_eq(limit.rlim_cur, 1);
    cr_expect_eq(disturb_abort(INT32_MAX), -ESRCH);
    cr_expect_eq(disturb_abort(0), -ESRCH);
}

static void connect_and_wait(int ready) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(store_port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        (void)!write(ready, "x", 1);
    for (;;)
        pause();
}

static void connect_in_a_child(int ready) {
    if (fork() == 0)
        connect_and_wait(ready);
    for (;;)
        pause();
}

/* Listens; the port is in *ret. */
static int listen_as_store(struct sockaddr_in *ret) {
    socklen_t len = sizeof *ret;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    cr_assert_eq(bind(fd, (const struct sockaddr *)ret, sizeof *ret), 0);
    cr_assert_eq(listen(fd, 4), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)ret, &len), 0);
    return fd;
}

/* Of a process that is connected to this port. */
static void expect_links(void (*way)(int ready), uint16_t port) {
    const uint16_t ports[] = {port, 1, 0}; /* 0: not known */
    store_port = port;
    struct gather_worker a = {.of.pid = start(way)};
    for (size_t i = 0; i < ARRAY_SIZE(ports); i++) {
        store_port = ports[i];
        gather(&a, 1, 100 * NS_PER_S);
        cr_expect_eq(got.workers[0].at_store, i == 0, "%zu", i);
        cr_expect_eq(got.workers[0].not_at_store, i == 1, "%zu", i);
    }
    (void)kill(-waiter, SIGKILL);
}

Test(gather, who_is_connected_to_the_store) {
    struct sockaddr_in at;
    int fd = listen_as_store(&at);
    store_port = ntohs(at.sin_port);
    struct gather_worker left = {.of.pid = start(connect_and_wait)};
    (void)close(accept(fd, NULL, NULL)); /* the store closes the connection */
    gather(&left, 1, 100 * NS_PER_S);
    cr_expect(got.workers[0].not_at_store && !got.workers[0].at_store);
    (void)kill(-waiter, SIGKILL);
    expect_links(connect_and_wait, ntohs(at.sin_port));
    expect_links(connect_in_a_child, ntohs(at.sin_port));
    (void)close(fd);
}

/* They are not listed. */
Test(gather, who_is_connected_among_many_closed_connections) {
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct sockaddr_in at, from = {.sin_family = AF_INET};
    int fd = -1, one = 1;
    if (unshare(CLONE_NEWNET) == 0) /* else other programs would have no ports for a minute */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        cr_skip_test("no network of its own can be made here");
    (void)close(fd);
    fd = listen_as_store(&at);
    for (uint32_t i = 0; i < 32000; i++) {
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i / 16000);
        int ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(ours, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        cr_assert_eq(bind(ours, (const struct sockaddr *)&from, sizeof from), 0);
        cr_assert_eq(connect(ours, (const struct sockaddr *)&at, sizeof at), 0, "%u", i);
        int theirs = accept(fd, NULL, NULL);
        (void)close(ours);
        (void)close(theirs);
    }
    expect_links(connect_and_wait, ntohs(at.sin_port));
    (void)close(fd);
}
