/* A real interpreter, whose main thread and others wait in files of these names. */
#include "watchdog/evidence/slow.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "io/process/proc.h"
#include "rig/unit.h"
#include "watchdog/evidence/waits.h"

#define TORCH "/lib/torch/nn/modules/linear.py"

/* Arguments: the file of the main thread, those of others. Each uses more CPU time than the one before it, says its
 * tid, and waits. A line that it reads ends the last of them. */
static const char program[] =
    "import sys, threading, time\n"
    "end, lock = threading.Event(), threading.Lock()\n"
    "def at(file, fn):\n"
    "    names = {'fn': fn}\n"
    "    exec(compile('def run(): fn()', file, 'exec'), names)\n"
    "    return names['run']\n"
    "def work(i, last):\n"
    "    while time.thread_time() < 0.03 * i: pass\n"
    "    with lock: tids[i - 1] = threading.get_native_id()\n"
    "    begun.wait()\n"
    "    while not (end if last else threading.Event()).wait(0.5): pass\n"
    "def main():\n"
    "    begun.wait()\n"
    "    print(*tids, flush=True)\n"
    "    sys.stdin.readline()\n"
    "    end.set()\n"
    "    threads[-1].join()\n"
    "    print('ended', flush=True)\n"
    "    threading.Event().wait()\n"
    "files = sys.argv[2:]\n"
    "tids, begun = [0] * len(files), threading.Barrier(len(files) + 1)\n"
    "threads = [threading.Thread(target=at(f, lambda i=i: work(i + 1, i + 1 == len(files))), daemon=True)\n"
    "           for i, f in enumerate(files)]\n"
    "for t in threads: t.start()\n"
    "at(sys.argv[1], main)()\n";

static struct {
    pid_t pid;
    int in, out;
    int tids[3];
} w;

static void finish(void) {
    if (w.pid > 0) {
        (void)kill(w.pid, SIGKILL);
        (void)waitpid(w.pid, NULL, 0);
    }
}
TestSuite(slow_thread_io, .fini = finish);

/* A whole line: with PYTHONUNBUFFERED its words come one by one. */
static void wait_said(char *line, size_t size) {
    size_t n = 0;
    do {
        cr_assert(n < size - 1 && read(w.out, &line[n], 1) == 1);
    } while (line[n++] != '\n');
    line[n] = '\0';
}

static void begin(const char *main_file, const char *a, const char *b) {
    int in[2], out[2];
    char line[128];
    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    w.pid = fork();
    cr_assert_geq(w.pid, 0);
    if (w.pid == 0) {
        (void)alarm(120);
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* as a worker: its reader is no ancestor */
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(in[1]);
        (void)execl("/usr/bin/python3", "python3", "-c", program, main_file, a, b, NULL);
        _exit(127);
    }
    w.in = in[1];
    w.out = out[0];
    wait_said(line, sizeof line);
    cr_assert_geq(sscanf(line, "%d %d", &w.tids[0], &w.tids[1]), b == NULL ? 1 : 2);
}

static int32_t found(struct pystack_process *python, struct work_thread *t) {
    work_thread_find(w.pid, false, python, t);
    return t->tid;
}

Test(slow_thread_io, which_thread_works) {
    static const struct {
        const char *main_file, *a, *b;
        int tid; /* its index; -1: none */
    } cases[] = {
        {"/home/me/train.py", TORCH, NULL, 0},
        {"/home/me/train.py", "/home/me/metrics.py", NULL, -1},
        {"/lib/torch/autograd/graph.py", TORCH, NULL, -1}, /* the main thread works */
        {"/lib/torch/distributed/rpc/api.py", "/lib/torch/distributed/rpc/internal.py", NULL, 0},
        {"/home/me/train.py", "/lib/torch/utils/data/_utils/pin_memory.py", NULL, -1},
        {"/home/me/train.py", TORCH, TORCH, 1}, /* the one that has used most time */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pystack_process python = {0};
        struct work_thread t = {0};
        begin(cases[i].main_file, cases[i].a, cases[i].b);
        cr_expect_eq(found(&python, &t), cases[i].tid < 0 ? 0 : w.tids[cases[i].tid], "%zu", i);
        finish();
    }
}

Test(slow_thread_io, it_stays_until_it_has_ended) {
    struct pystack_process python = {0};
    struct work_thread t = {0};
    char line[16];
    begin("/home/me/train.py", "/home/me/metrics.py", TORCH);
    cr_assert_eq(found(&python, &t), w.tids[1]);
    cr_expect_eq(found(&python, &t), w.tids[1]);
    struct work_thread other = {.tid = t.tid, .start = t.start + 1}; /* a thread of before */
    cr_expect_eq(found(&python, &other), w.tids[1]);
    cr_assert_eq(write(w.in, "\n", 1), 1);
    wait_said(line, sizeof line);
    while (kill(w.pid, 0) == 0 && t.tid != 0) /* the kernel's thread ends a moment later than Python's */
        (void)found(&python, &t);
    cr_expect_eq(t.tid, 0);
}

Test(slow_thread_io, one_that_does_not_work_right_now_stays) {
    struct pystack_process python = {0};
    begin("/home/me/train.py", "/home/me/train.py", NULL);
    struct proc_stat stat;
    cr_assert(proc_read_stat(w.tids[0], &stat));
    cr_expect_eq(found(&python, &(struct work_thread){.tid = w.tids[0], .start = stat.start}), w.tids[0]);
}

Test(slow_thread_io, a_process_without_python_has_none) {
    struct pystack_process python = {0};
    struct work_thread t = {0};
    w.pid = fork();
    cr_assert_geq(w.pid, 0);
    if (w.pid == 0) {
        (void)alarm(120);
        (void)execl("/bin/sleep", "sleep", "100", NULL);
        _exit(127);
    }
    cr_expect_eq(found(&python, &t), 0);
}

static uint64_t turns_of(int tid) {
    char name[PROC_PATH_MAX], text[128];
    uint64_t ran_ns, turns;
    (void)snprintf(name, sizeof name, "/task/%d/schedstat", tid);
    ssize_t n = proc_read(w.pid, name, text, sizeof text - 1);
    text[MAX2(n, 0)] = '\0';
    cr_assert(signs_ran(text, &ran_ns, &turns));
    return turns;
}

Test(slow_thread_io, one_that_was_just_found_is_not_where_the_main_thread_waits) {
    struct worker_signs row;
    uint64_t now = 0;
    begin("/home/me/train.py", TORCH, NULL);
    while (thread_call(w.pid, w.pid).number != SYS_read)
        (void)sched_yield();
    struct signs *signs = signs_new();
    struct slow *slow = slow_new(NULL, signs);
    cr_assert_eq(signs_add(signs, 5, w.pid, now), 0);
    do
        signs_sample(signs, now += NS_PER_S);
    while (!signs_see(signs, 5).little);
    slow_tick(slow, now);
    signs_sample(signs, now += NS_PER_S);
    for (uint64_t turns = turns_of(w.tids[0]); turns == turns_of(w.tids[0]);)
        (void)sched_yield();
    signs_sample(signs, now += NS_PER_S);
    cr_assert_eq(signs_rows(signs, now, &row, 1), 1);
    cr_expect_eq(row.flags & SIGN_MOVED, 0);
    slow_free(slow);
    signs_free(signs);
}
