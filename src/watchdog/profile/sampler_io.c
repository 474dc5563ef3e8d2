#include "watchdog/profile/sampler_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "watchdog/evidence/disturb.h"
#include "watchdog/evidence/waits.h"
#include "watchdog/look/pystack.h"
#include "watchdog/profile/infer.h"

#define LATE_NS (5 * NS_PER_S) /* after its time, a helper that has not ended is killed */
#define FIND_MIN_NS NS_PER_S   /* between two searches for Python in a process */
#define FIND_MAX_NS (16 * NS_PER_S)
#define LOOK_NS NS_PER_S /* between two looks for other processes, or 4 periods */

#define CHILDREN_MAX 64              /* of a worker */
#define SOURCE_MAX ((size_t)4 << 20) /* of a larger file, no line is read */

/* A worker's program, or one that stems from it. */
struct process {
    pid_t pid;
    uint64_t start; /* as in struct proc_stat */
    struct pystack_process python;
    struct pystack_watch *watch; /* NULL: Python was not found (yet) */
    uint64_t find_ns, pause_ns;  /* when it is searched for again; what is added then */
    struct err why;
};

struct target {
    pid_t worker;
    struct process main;
    char state; /* of the last tick; 0: it has ended; '?': there was none */
    bool is_read;
    uint64_t counted_ns, delay_ns; /* when that of the main thread was read last */
    uint64_t span_ns, delayed_ns;  /* so long it was counted; the sum */
    pid_t busy;                    /* a thread that worked for it, the last time */
    struct process children[CHILDREN_MAX];
    uint32_t n_children, next; /* the one whose turn it is */
    struct profile_rank *rank;
};

struct work {
    const struct profile_ask *ask;
    struct profile p;
    struct target *targets; /* [ask->n] */
    uint64_t look_ns;
};

static void process_close(struct process *x) {
    pystack_watch_free(x->watch);
    *x = (struct process){0};
}

/* Of its main thread. False: it has ended. */
static bool stat_of(const struct process *x, struct proc_stat *ret) {
    return proc_read_thread_stat(x->pid, x->pid, ret) && ret->state != 'Z' && ret->state != 'X' &&
           ret->start == x->start;
}

static enum profile_syscall syscall_of(const struct process *x) {
    long n = thread_call(x->pid, x->pid).number;
    return n < 0                                            ? PROFILE_RUNS
           : n == SYS_futex                                 ? PROFILE_FUTEX
           : n == SYS_nanosleep || n == SYS_clock_nanosleep ? PROFILE_SLEEP
                                                            : PROFILE_OTHER;
}

static bool has_python(struct process *x, uint64_t now) {
    if (x->watch == NULL && now >= x->find_ns) {
        if (pystack_process_find(x->pid, &x->python, &x->why) == 0)
            x->watch = pystack_watch_new(&x->python.python);
        x->pause_ns = MIN2(MAX2(2 * x->pause_ns, FIND_MIN_NS), FIND_MAX_NS);
        x->find_ns = now + x->pause_ns;
    }
    return x->watch != NULL;
}

static int64_t add_frame(void *arg, const struct pystack_frame *f) {
    struct work *k = arg;
    return profile_add_frame(&k->p, f->function, f->file, f->line, 0);
}

/* The number of its stack, or PROFILE_NOT_READ. */
static int32_t stack_of(struct work *k, struct process *x, uint64_t now, bool *ret_gc) {
    struct pystack_numbers s = {.n = 0};
    int r = has_python(x, now) ? pystack_process_watch(&x->python, x->watch, add_frame, k, &s) : 0;
    if (r == -EFAULT && now >= x->find_ns) { /* it is another program by now */
        pystack_watch_free(x->watch);
        x->watch = NULL;
    }
    int32_t stack = r == 0 && s.n > 0 ? profile_add_stack(&k->p, s.of, s.n) : -1;
    *ret_gc = r == 0 && s.gc;
    return stack >= 0 ? stack : PROFILE_NOT_READ;
}

/* Time in which the main thread found no CPU. proc_pid_schedstat(5) */
static void count_time(struct target *t, uint64_t now) {
    char name[PROC_PATH_MAX], buf[128];
    unsigned long long delay;
    (void)snprintf(name, sizeof name, "/task/%d/schedstat", (int)t->main.pid);
    ssize_t n = proc_read(t->main.pid, name, buf, sizeof buf - 1);
    buf[MAX2(n, 0)] = '\0';
    if (sscanf(buf, "%*u %llu", &delay) != 1)
        return;
    if (t->counted_ns != 0) {
        t->span_ns += now - t->counted_ns;
        t->delayed_ns += delay - t->delay_ns;
        t->rank->delay = (double)t->delayed_ns / (double)t->span_ns;
    }
    t->counted_ns = now;
    t->delay_ns = delay;
}

/* A copy of the program, as a data loader is, has the same Python. */
static void add_child(void *arg, int pid) {
    struct target *t = arg;
    struct proc_stat stat, main;
    struct process x = {.pid = pid};
    for (uint32_t i = 0; i < t->n_children; i++)
        if (t->children[i].pid == pid)
            return;
    if (t->n_children == CHILDREN_MAX || !proc_read_stat(pid, &stat))
        return;
    x.start = stat.start;
    if (t->main.watch != NULL && stat_of(&t->main, &main) && main.stack != 0 &&
        main.stack == stat.stack) {
        x.python = t->main.python;
        x.python.pid = pid;
        x.python.python.found.pid = 0; /* it has one thread of Python, or its first is the last */
        x.watch = pystack_watch_new(&x.python.python);
    }
    t->children[t->n_children++] = x;
}

/* All that stem from it. */
static void look_for_children(struct target *t) {
    struct proc_stat stat;
    for (uint32_t i = t->n_children; i-- > 0;)
        if (!stat_of(&t->children[i], &stat)) {
            process_close(&t->children[i]);
            t->children[i] = t->children[--t->n_children];
        }
    proc_each_child(t->main.pid, true, add_child, t);
    for (uint32_t i = 0; i < t->n_children; i++)
        proc_each_child(t->children[i].pid, true, add_child, t);
    t->rank->n_children = MAX2(t->rank->n_children, t->n_children);
}

/* Which processes to sample. False: there is none. */
static bool look(struct target *t, uint64_t now) {
    struct proc_stat stat;
    pid_t program = disturb_program(t->worker);
    if (program != t->main.pid || t->state == 0) {
        process_close(&t->main);
        t->main.pid = program;
        t->main.start = proc_read_stat(program, &stat) ? stat.start : 0;
        t->counted_ns = 0;
    }
    count_time(t, now);
    look_for_children(t);
    return t->main.start != 0;
}

static void look_at_thread(void *arg, int tid) {
    struct target *t = arg;
    struct proc_stat stat;
    if (t->busy == 0 && tid != t->main.pid && proc_read_thread_stat(t->main.pid, tid, &stat) &&
        (stat.state == 'R' || stat.state == 'D') && !profile_is_transport_thread(stat.name))
        t->busy = tid;
}

/* Whether another thread works for the main thread, which waits in backward. */
static bool is_helped(const struct profile *p, const struct profile_sample *s, struct target *t) {
    char path[PROC_PATH_MAX];
    if (!s->sleeps || s->stack < 0 ||
        strcmp(p->frames[p->stacks[s->stack].frame].function, "_engine_run_backward") != 0)
        return false;
    pid_t last = t->busy;
    t->busy = 0;
    if (last != 0)
        look_at_thread(t, last);
    proc_path(path, t->main.pid, "/task");
    return t->busy != 0 || (proc_each_number(path, look_at_thread, t) == 0 && t->busy != 0);
}

/* One of its children in turn. */
static void sample_child(struct work *k, struct target *t, uint64_t now) {
    struct proc_stat stat;
    bool gc;
    if (t->n_children == 0)
        return;
    struct process *x = &t->children[t->next++ % t->n_children];
    if (stat_of(x, &stat))
        profile_add_child(t->rank, stack_of(k, x, now, &gc), 1);
}

static void sample(struct work *k, struct target *t, uint64_t tick, uint64_t now) {
    struct profile_sample s = {.stack = PROFILE_NOT_READ};
    struct proc_stat stat;
    t->state = stat_of(&t->main, &stat) ? stat.state : 0;
    if (t->state == 0)
        return;
    s.sleeps = t->state == 'S' || t->state == 'I';
    s.stack = stack_of(k, &t->main, now, &s.gc);
    if (s.sleeps || t->state == 'D')
        s.syscall = syscall_of(&t->main);
    s.helped = is_helped(&k->p, &s, t);
    t->is_read |= s.stack >= 0;
    (void)!profile_add_sample(&k->p, t->rank, tick, &s); /* -E2BIG: there are too many */
    if (tick % 2 == 0)
        sample_child(k, t, now);
}

/* Why samples or stacks are missing. */
static void set_gap(struct target *t) {
    char *gap = t->rank->gap;
    if (t->state == 0)
        (void)snprintf(gap, sizeof t->rank->gap, "process %d has ended", (int)t->main.pid);
    else if (t->state == 'T' || t->state == 't')
        (void)snprintf(gap, sizeof t->rank->gap, "process %d is stopped", (int)t->main.pid);
    else if (!t->is_read)
        (void)snprintf(gap, sizeof t->rank->gap, "%.150s",
                       t->state == '?'         ? "no sample was taken"
                       : t->main.watch == NULL ? t->main.why.text
                                               : "its stack changes too fast");
}

uint64_t profile_tick_ns(uint64_t seed, uint64_t period_ns, uint64_t tick) {
    uint64_t h = hash_bytes(hash_bytes(HASH_BEGIN, &seed, sizeof seed), &tick, sizeof tick);
    return tick * period_ns + ((h >> 40) * period_ns >> 24);
}

static void sleep_until(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* A tick that is late is taken late, unless the next one is due. The wall clock is read once: if it
 * is set meanwhile, that changes nothing. Ends early when all workers have ended. */
static void take_samples(struct work *k) {
    const struct profile_ask *a = k->ask;
    uint64_t offset = (uint64_t)clock_wall_offset_ns(), now = clock_now_ns();
    uint64_t end = now + a->length_ns, tick = (now + offset) / a->period_ns + 1, at;
    k->p.period_ns = a->period_ns;
    k->p.first_tick = tick;
    for (;; tick++) {
        if (now >= k->look_ns) {
            bool any = false;
            for (size_t i = 0; i < a->n; i++)
                any |= look(&k->targets[i], now);
            if (!any)
                break;
            k->look_ns = now + MAX2(LOOK_NS, 4 * a->period_ns);
            now = clock_now_ns();
        }
        while (profile_tick_ns(a->seed, a->period_ns, tick + 1) - offset <= now)
            tick++;
        at = profile_tick_ns(a->seed, a->period_ns, tick) - offset;
        if (at >= end)
            break;
        sleep_until(at);
        for (size_t i = 0; i < a->n; i++, now = clock_now_ns())
            sample(k, &k->targets[i], tick, now);
    }
    for (size_t i = 0; i < a->n; i++)
        count_time(&k->targets[i], now);
}

static unsigned calls_at(const char *text, uint32_t line) {
    char buf[512];
    for (uint32_t i = 1; i < line && text != NULL; i++) {
        const char *end = strchr(text, '\n');
        text = end != NULL ? end + 1 : NULL;
    }
    if (line == 0 || text == NULL)
        return 0;
    (void)snprintf(buf, sizeof buf, "%.*s", (int)strcspn(text, "\n"), text);
    return profile_calls_of(buf);
}

/* What the lines of all frames call; each file is read once. */
static void find_calls(struct profile *p) {
    _cleanup_(freep) bool *is_done = xcalloc(p->n_frames + 1, sizeof *is_done);
    for (uint32_t i = 0; i < p->n_frames; i++) {
        const char *file = p->frames[i].file;
        char *text = NULL;
        size_t len;
        if (is_done[i] || file[0] != '/' || file_read_text(file, SOURCE_MAX, &text, &len) < 0)
            continue;
        for (uint32_t k = i; k < p->n_frames; k++)
            if (strcmp(p->frames[k].file, file) == 0) {
                p->frames[k].calls = calls_at(text, p->frames[k].line);
                is_done[k] = true;
            }
        free(text);
    }
}

/* ---- the helper ---- */

static void target_close(struct target *t) {
    process_close(&t->main);
    for (uint32_t i = 0; i < t->n_children; i++)
        process_close(&t->children[i]);
}

static void send_samples(const struct work *k, int fd) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    profile_write(&k->p, EVIDENCE_JSON_MAX, &text);
    strbuf_add_char(&text, '\n');
    (void)!helper_send(fd, strbuf_text(&text), text.len); /* without a reader it ends soon */
}

static int run(int fd, void *arg) {
    struct work k = {.ask = arg};
    k.targets = xcalloc(k.ask->n + 1, sizeof *k.targets);
    for (size_t i = 0; i < k.ask->n; i++)
        (void)profile_add_rank(&k.p, k.ask->workers[i].rank);
    for (size_t i = 0; i < k.ask->n; i++) {
        k.targets[i] = (struct target){.worker = k.ask->workers[i].pid,
                                       .state = '?',
                                       .rank = profile_add_rank(&k.p, k.ask->workers[i].rank)};
        k.targets[i].rank->step = k.ask->workers[i].step;
    }
    take_samples(&k);
    for (size_t i = 0; i < k.ask->n; i++)
        set_gap(&k.targets[i]);
    send_samples(&k, fd);
    find_calls(&k.p); /* of a dead disk, it does not return */
    send_samples(&k, fd);
    for (size_t i = 0; i < k.ask->n; i++)
        target_close(&k.targets[i]);
    free(k.targets);
    profile_fini(&k.p);
    return 0;
}

/* ---- this process ---- */

/* Descriptors are for workers first: some more are open for a moment when they start. */
static bool has_descriptors(void) {
    _cleanup_(file_close) int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 && (size_t)fd < file_limit() / 2;
}

int profile_sampler_new(struct loop *loop, const struct profile_ask *ask, helper_call_fn *fn,
                        void *arg, struct helper_call **ret) {
    struct profile_ask copy = *ask;
    struct helper_call_config config = {.name = "muster-profile",
                                        .run = run,
                                        .arg = &copy,
                                        .timeout_ns = ask->length_ns + LATE_NS,
                                        .max_bytes = 2 * (EVIDENCE_JSON_MAX + 1)};
    return has_descriptors() ? helper_call_new(loop, &config, fn, arg, ret) : -EMFILE;
}
