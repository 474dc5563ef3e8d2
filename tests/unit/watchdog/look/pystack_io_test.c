/* Real interpreters, blocked in many ways, beside CPython's own faulthandler. MUSTER_TEST_PYTHONS names more of them,
 * with ":" between; default: the machine's own. */
#include "watchdog/look/pystack.h"

#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>

#include "base/text/strbuf.h"
#include "io/process/child.h"
#include "rig/fds.h"

#define NOBODY 65534
#define FAULTHANDLER_FRAMES 100 /* MAX_FRAME_DEPTH of Python/traceback.c */

struct worker {
    struct child child;
    int in, out, err; /* its standard streams, our ends */
};

/* death_signal: 0 in a pid namespace, where our pid says nothing. It ends with its standard input, too. */
static struct worker begin_with(const char *python, const char *mode, int death_signal) {
    struct worker w = {.child = CHILD_INIT};
    int in[2], out[2], errors[2];
    cr_assert(pipe(in) == 0 && pipe(out) == 0 && pipe(errors) == 0);
    char script[PATH_MAX];
    snprintf(script, sizeof script, "%s/unit/watchdog/look/pystack_worker.py", getenv("MUSTER_TEST_SOURCE_DIR"));
    char *argv[] = {(char *)(uintptr_t)python, script, (char *)(uintptr_t)mode, NULL};
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.argv = argv;
    spec.stdin_fd = in[0];
    spec.stdout_fd = out[1];
    spec.stderr_fd = errors[1];
    spec.death_signal = death_signal;
    struct err err = {0};
    cr_assert_eq(child_spawn(&spec, &w.child, &err), 0, "%s", err.text);
    close(in[0]);
    close(out[1]);
    close(errors[1]);
    w.in = in[1];
    w.out = out[0];
    w.err = errors[0];
    char text[16] = "";
    cr_assert_gt(read(w.out, text, sizeof text - 1), 0, "%s %s did not begin", python, mode);
    cr_assert_str_eq(text, "ready\n");
    return w;
}

static struct worker begin(const char *python, const char *mode) { return begin_with(python, mode, SIGKILL); }

static void end(struct worker *w) {
    kill(w->child.pid, SIGKILL);
    cr_assert_eq(waitpid(w->child.pid, NULL, 0), w->child.pid);
    child_fini(&w->child);
    close(w->in);
    close(w->out);
    close(w->err);
}

static void add_thread(void *arg, const struct pystack_thread *t) {
    struct strbuf *out = arg;
    strbuf_printf(out, "Thread\n");
    for (uint32_t i = 0; i < t->n; i++)
        strbuf_printf(out, "%s:%u %s\n", t->frames[i].file, t->frames[i].line, t->frames[i].function);
    cr_assert(!t->cut || t->n == PYSTACK_FRAMES_MAX);
}

/* What the faulthandler wrote, in the same form and within the same limits. */
static void add_line(struct strbuf *out, const char *line, uint32_t *frames) {
    char file[600], function[200], number[20];
    if (strstr(line, "(most recent call first)") != NULL) {
        strbuf_printf(out, "Thread\n");
        *frames = 0;
    } else if (sscanf(line, "  File \"%599[^\"]\", line %19s in %199[^\n]", file, number, function) == 3 &&
               (*frames)++ < PYSTACK_FRAMES_MAX) {
        size_t n = strlen(file), most = PYSTACK_FILE_MAX - 1;
        strbuf_printf(out, "%s:%s %s\n", file + (n > most ? n - most : 0), number, function);
    }
}

/* The thread that a signal interrupts, the first one, is the last that is written. */
static void faulthandler(struct worker *w, struct strbuf *out) {
    cr_assert_eq(kill(w->child.pid, SIGUSR1), 0);
    char *line = NULL;
    size_t size = 0;
    uint32_t frames = 0;
    bool last = false;
    FILE *f = fdopen(dup(w->err), "r");
    cr_assert_not_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    for (bool more = true; more;) {
        cr_assert_gt(getline(&line, &size, f), 0);
        last = last || strncmp(line, "Current thread", 14) == 0;
        add_line(out, line, &frames);
        more = !last || (strstr(line, " in <module>") == NULL && frames < FAULTHANDLER_FRAMES);
    }
    free(line);
    fclose(f);
}

static struct err err;

static void find(const struct worker *w, struct pystack_process *ret) {
    cr_assert_eq(pystack_process_find(w->child.pid, ret, &err), 0, "%s", err.text);
}

/* what: the interpreter and the mode. */
typedef void each_fn(const char *what, struct worker *w, const struct pystack_process *p);

static void each_python(const char *mode, each_fn *fn) {
    const char *list = getenv("MUSTER_TEST_PYTHONS");
    _cleanup_(freep) char *copy = xstrdup(list != NULL && list[0] != '\0' ? list : "/usr/bin/python3");
    char *all;
    for (const char *python = strtok_r(copy, ":", &all); python != NULL; python = strtok_r(NULL, ":", &all)) {
        _cleanup_(end) struct worker w = begin(python, mode);
        _cleanup_(freep) char *what = xasprintf("%s %s", python, mode);
        struct pystack_process p;
        const unsigned open = rig_open_fds();
        find(&w, &p);
        cr_expect_eq(rig_open_fds(), open, "a profile finds it again and again");
        fn(what, &w, &p);
    }
}

/* At a standstill: the stacks are the same before and after. */
static void compare(const char *what, struct worker *w, const struct pystack_process *p) {
    for (bool still = false; !still;) {
        _cleanup_(strbuf_fini) struct strbuf before = {0}, after = {0}, theirs = {0};
        cr_assert_gt(pystack_process_read(p, add_thread, &before, &err), 0, "%s", err.text);
        faulthandler(w, &theirs);
        cr_assert_gt(pystack_process_read(p, add_thread, &after, &err), 0, "%s", err.text);
        still = strcmp(strbuf_text(&before), strbuf_text(&after)) == 0;
        if (still)
            cr_assert_str_eq(strbuf_text(&before), strbuf_text(&theirs), "%s, version %x", what,
                             p->python.found.version);
    }
}

static void compare_all(const char *mode) { each_python(mode, compare); }

Test(pystack_io, nested_functions_are_as_faulthandler_says) { compare_all("nested"); }
Test(pystack_io, generators_are_as_faulthandler_says) { compare_all("generators"); }
Test(pystack_io, comprehensions_are_as_faulthandler_says) {
    compare_all("comprehension");
    compare_all("dictionary");
}
Test(pystack_io, methods_are_as_faulthandler_says) { compare_all("methods"); }
Test(pystack_io, calls_by_c_are_as_faulthandler_says) {
    compare_all("by_c");
    compare_all("operator");
}
Test(pystack_io, threads_are_as_faulthandler_says) { compare_all("threads"); }
Test(pystack_io, coroutines_are_as_faulthandler_says) { compare_all("coroutines"); }
Test(pystack_io, a_deep_stack_is_cut) { compare_all("deep"); }
Test(pystack_io, long_code_and_long_names_are_as_faulthandler_says) {
    compare_all("executed");
    compare_all("class_body");
}
Test(pystack_io, a_call_over_many_lines_is_as_faulthandler_says) { compare_all("selecting"); }

static void note_lock(void *arg, const struct pystack_thread *t) { memcpy(arg, t->lock, PYSTACK_FILE_MAX); }

static const char *lock;

static void has_lock(const char *what, struct worker *w, const struct pystack_process *p) {
    char got[PYSTACK_FILE_MAX];
    cr_assert_eq(pystack_process_read(p, note_lock, got, &err), 1, "%s", err.text);
    cr_expect_str_eq(got, lock, "%s", what);
}

Test(pystack_io, the_file_of_a_lock_is_read_from_the_variables_of_its_library) {
    static const char *const modes[][2] = {
        {"baton", "/some/where/lock"}, {"filelock", "/a/local.lock"}, {"nested", ""}};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        lock = modes[i][1];
        each_python(modes[i][0], has_lock);
    }
}

static int64_t add_frame(void *arg, const struct pystack_frame *f) {
    struct strbuf *out = arg;
    size_t begin = out->len;
    strbuf_printf(out, "%s:%u %s\n", f->file, f->line, f->function);
    return (int64_t)begin;
}

static void add_main(void *arg, const struct pystack_thread *t) {
    for (uint32_t i = 0; i < t->n && t->main; i++)
        (void)add_frame(arg, &t->frames[i]);
}

static void read_main(const struct pystack_process *p, struct strbuf *ret) {
    strbuf_clear(ret);
    cr_assert_gt(pystack_process_read(p, add_main, ret, &err), 0, "%s", err.text);
}

/* At a standstill, as above. Twice: the second time all is known. */
static void watch(const char *what, struct worker *w, const struct pystack_process *p) {
    _cleanup_(strbuf_fini) struct strbuf expected = {0}, known = {0};
    struct pystack_watch *watch = pystack_watch_new(&p->python);
    for (int i = 0; i < 2;) {
        _cleanup_(strbuf_fini) struct strbuf text = {0}, after = {0};
        struct pystack_numbers got;
        read_main(p, &expected);
        cr_assert_eq(pystack_process_watch(p, watch, add_frame, &known, &got), 0, "%s", what);
        for (uint32_t k = 0; k < got.n; k++)
            strbuf_add_bytes(&text, known.data + got.of[k], strcspn(known.data + got.of[k], "\n") + 1);
        read_main(p, &after);
        if (strcmp(strbuf_text(&expected), strbuf_text(&after)) != 0)
            continue;
        cr_expect_str_eq(strbuf_text(&text), strbuf_text(&expected), "%s", what);
        cr_expect_eq(got.gc, strstr(what, " collecting") != NULL, "%s", what);
        i++;
    }
    pystack_watch_free(watch);
}

Test(pystack_io, a_watch_sees_the_same_and_whether_the_garbage_collector_runs) {
    static const char *const modes[] = {"nested",  "generators", "by_c", "methods",
                                        "threads", "coroutines", "deep", "collecting"};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        each_python(modes[i], watch);
}

static void note_tids(void *arg, const struct pystack_thread *t) {
    strbuf_printf(arg, "%d%s ", t->tid, t->main ? " main" : "");
}

static void has_tids(const char *what, struct worker *w, const struct pystack_process *p) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    char main_thread[64], path[100];
    int tids[4];
    cr_assert_eq(pystack_process_read(p, note_tids, &text, &err), 4, "%s", err.text);
    snprintf(main_thread, sizeof main_thread, " %d main ", (int)w->child.pid);
    cr_expect_not_null(strstr(strbuf_text(&text), main_thread), "%s: %s", what, strbuf_text(&text));
    cr_assert_eq(sscanf(strbuf_text(&text), "%d %d %d %d", &tids[0], &tids[1], &tids[2], &tids[3]), 4);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "/proc/%d/task/%d", (int)w->child.pid, tids[i]);
        cr_expect_eq(access(path, F_OK), 0, "%s: %s", what, path);
    }
}

Test(pystack_io, threads_have_the_kernels_ids) { each_python("threads", has_tids); }

static void check_frames(void *arg, const struct pystack_thread *t) {
    uint64_t *n = arg;
    cr_assert_leq(t->n, PYSTACK_FRAMES_MAX);
    for (uint32_t i = 0; i < t->n; i++) {
        cr_assert_not_null(memchr(t->frames[i].function, '\0', PYSTACK_FUNCTION_MAX));
        cr_assert_not_null(memchr(t->frames[i].file, '\0', PYSTACK_FILE_MAX));
        *n += 1;
    }
}

/* As long as it takes to see it at different places, and for at least 300 reads. */
static void read_often(const char *what, struct worker *w, const struct pystack_process *p) {
    uint64_t n = 0, last = 0, changes = 0, watched = 0;
    struct pystack_watch *watch = pystack_watch_new(&p->python);
    for (int i = 0; i < 300 || changes < 3 || watched < 100; i++) {
        _cleanup_(strbuf_fini) struct strbuf frames = {0};
        struct pystack_numbers got;
        int r = pystack_process_watch(p, watch, add_frame, &frames, &got);
        cr_assert(r == 0 || r == -EAGAIN, "%s: %s", what, strerror(-r));
        watched += r == 0 && got.n > 0;
        cr_assert_gt(pystack_process_read(p, check_frames, &n, &err), 0, "%s: %s", what, err.text);
        uint64_t h = pystack_process_addresses(p);
        changes += h != last;
        last = h;
    }
    cr_expect_gt(n, 300);
    pystack_watch_free(watch);
}

Test(pystack_io, a_process_that_runs_can_be_read_at_any_moment) { each_python("other_loop", read_often); }

static void stays(const char *what, struct worker *w, const struct pystack_process *p) {
    for (uint64_t last = 0, same = 0; same < 10;) {
        uint64_t h = pystack_process_addresses(p);
        cr_assert_neq(h, 0, "%s", what);
        same = h == last ? same + 1 : 0;
        last = h;
    }
}

Test(pystack_io, a_thread_that_waits_stays_at_one_place) { each_python("nested", stays); }

Test(pystack_io, a_process_without_python_says_so) {
    _cleanup_(child_fini) struct child child = CHILD_INIT;
    struct child_spec spec = CHILD_SPEC_INIT;
    char *argv[] = {(char *)(uintptr_t) "/bin/sleep", (char *)(uintptr_t) "1000", NULL};
    spec.argv = argv;
    spec.death_signal = SIGKILL;
    struct pystack_process p;
    cr_assert_eq(child_spawn(&spec, &child, &err), 0, "%s", err.text);
    cr_expect_eq(pystack_process_find(child.pid, &p, &err), -ENOENT);
    cr_expect_str_eq(err.text, "no Python is loaded in it");
    kill(child.pid, SIGKILL);
    cr_assert_eq(waitpid(child.pid, NULL, 0), child.pid);
    cr_expect_eq(pystack_process_find(child.pid, &p, &err), -ESRCH);
}

Test(pystack_io, a_process_that_has_ended_is_gone) {
    struct worker w = begin("/usr/bin/python3", "nested");
    struct pystack_process p;
    find(&w, &p);
    end(&w);
    cr_expect_eq(pystack_process_read(&p, add_thread, NULL, &err), -ESRCH);
    cr_expect_eq(pystack_process_addresses(&p), 0);
}

/* In a process of its own: it gives up its rights. */
static int find_as_nobody(pid_t pid, struct err *ret) {
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct pystack_process p;
        if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
            _exit(1);
        err.code = pystack_process_find(pid, &p, &err);
        _exit(write(fds[1], &err, sizeof err) != sizeof err);
    }
    cr_assert_eq(read(fds[0], ret, sizeof *ret), sizeof *ret);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    close(fds[0]);
    close(fds[1]);
    return ret->code;
}

/* Without root, the first process is the one of another user. */
Test(pystack_io, without_the_right_it_says_so) {
    _cleanup_(end) struct worker w = begin("/usr/bin/python3", "nested");
    cr_expect_eq(find_as_nobody(geteuid() == 0 ? w.child.pid : 1, &err), -EPERM);
    cr_expect_eq(strncmp(err.text, "no right to read the memory of pid ", 35), 0, "%s", err.text);
}

/* Its threads have other ids there. We leave the namespace again, since nothing can be created in it once its first
 * process has ended, not even the process that looks for leaks (LeakSanitizer). */
Test(pystack_io, threads_in_a_pid_namespace_have_our_ids) {
    int ours = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(ours, 0);
    if (unshare(CLONE_NEWPID) < 0)
        cr_skip_test("no pid namespace for us");
    struct worker w = begin_with("/usr/bin/python3", "nested", 0);
    struct pystack_process p;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    find(&w, &p);
    cr_expect(p.inner && p.python.found.pid == 1);
    cr_assert_eq(pystack_process_read(&p, note_tids, &text, &err), 1, "%s", err.text);
    char expected[64];
    snprintf(expected, sizeof expected, "%d main ", (int)w.child.pid);
    cr_expect_str_eq(strbuf_text(&text), expected);
    end(&w);
    cr_expect_eq(setns(ours, CLONE_NEWPID), 0);
    close(ours);
}
