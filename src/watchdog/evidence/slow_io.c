#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "io/file.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/evidence/waits.h"

#define TEXT_MAX 512
#define VMSTAT_MAX 16384
#define ENV_MAX 65536
#define PATH_BYTES 64
#define TREE_MAX 256 /* processes of a worker that are looked at */
#define FOLLOW_MAX 4 /* a shell, a profiler, numactl, … */
/* A main thread that is not where it was is read so often again: one that polls is soon back. */
#define PLACE_TIMES 5
#define PLACE_EVERY_NS (10 * NS_PER_MS)

/* ---- the thread that does the work ---- */

#define VERSION_HAS_TIDS 0x030b0000 /* of Python: 3.11 */

struct thread_search {
    int32_t pid;
    bool main_works;
    int32_t tid; /* the best so far; 0: none */
    uint64_t ran_ns;
};

static bool is_of_framework(const char *file) {
    static const char *const frameworks[] = {"/torch/", "/jax/"};
    return text_has_any(file, frameworks, ARRAY_SIZE(frameworks));
}

/* Whether the main thread works, or waits for others itself, by a file in its Python stack.
 * rpc.shutdown() serves others until they have ended; spawn() waits for processes. */
static bool main_works(const char *file) {
    static const char *const only_waits[] = {"/torch/distributed/rpc/", "/torch/multiprocessing/"};
    return is_of_framework(file) && !text_has_any(file, only_waits, ARRAY_SIZE(only_waits));
}

/* Whether another thread does the work of the process, and does not pin memory or watch
 * compilers. */
static bool works(const struct pystack_thread *t) {
    static const char *const helpers[] = {"/torch/utils/data/", "/torch/_inductor/",
                                          "/torch/multiprocessing/", "/torch/distributed/elastic/"};
    bool found = false;
    for (uint32_t i = 0; i < t->n; i++) {
        if (text_has_any(t->frames[i].file, helpers, ARRAY_SIZE(helpers)))
            return false;
        found = found || is_of_framework(t->frames[i].file);
    }
    return found;
}

static void on_thread(void *arg, const struct pystack_thread *t) {
    struct thread_search *s = arg;
    uint64_t ran_ns = 0;
    if (t->main) {
        for (uint32_t i = 0; i < t->n; i++)
            s->main_works |= main_works(t->frames[i].file);
    } else if (t->tid > 0 && works(t) && thread_ran(s->pid, t->tid, &ran_ns) == 0 &&
               (s->tid == 0 || ran_ns > s->ran_ns)) {
        s->tid = t->tid;
        s->ran_ns = ran_ns;
    }
}

static bool lives(const struct work_thread *t) {
    struct proc_stat stat;
    return t->tid != 0 && proc_read_stat(t->tid, &stat) && stat.start == t->start;
}

static int read_threads(int32_t pid, struct pystack_process *python, struct thread_search *s) {
    struct err err = {0};
    int r = python->pid == pid ? pystack_process_read(python, on_thread, s, &err) : -ESRCH;
    if (r >= 0)
        return r;
    *s = (struct thread_search){.pid = pid};
    r = pystack_process_find(pid, python, &err);
    if (r == 0)
        r = pystack_process_read(python, on_thread, s, &err);
    if (r < 0)
        python->pid = 0;
    return r;
}

void work_thread_find(int32_t pid, bool gpu, struct pystack_process *python,
                      struct work_thread *t) {
    struct thread_search s = {.pid = pid};
    struct proc_stat stat;
    if (!lives(t))
        *t = (struct work_thread){0};
    if (read_threads(pid, python, &s) < 0)
        return;
    if (s.main_works || (gpu && python->python.found.version < VERSION_HAS_TIDS))
        *t = (struct work_thread){0};
    else if (s.tid != 0 && proc_read_stat(s.tid, &stat))
        *t = (struct work_thread){.tid = s.tid, .start = stat.start};
}

/* ---- the bytes of sockets ---- */

/* How many bytes TCP sockets have moved, by the kernel's count: send(2) is not in /proc/PID/io. One
 * that several processes share counts once. */
struct socket_bytes {
    struct idmap counted; /* by inode */
    struct slow_look *look;
    bool is_own; /* it is of the process itself */
};

static bool add_link(void *arg, const char *link) {
    struct socket_bytes *b = arg;
    b->look->gpu |= proc_is_gpu(link);
    const struct tcp_socket *s = thread_socket(link);
    if (s == NULL || idmap_get(&b->counted, s->inode) != NULL)
        return true;
    idmap_put(&b->counted, s->inode, b);
    b->look->bytes += s->bytes;
    b->look->talked += b->is_own ? s->bytes : 0;
    return true;
}

/* ---- in the helper ---- */

struct tree {
    pid_t pids[TREE_MAX];
    size_t n;
};

static void add_pid(void *arg, int pid) {
    struct tree *t = arg;
    if (t->n < TREE_MAX)
        t->pids[t->n++] = pid;
}

/* It and all that stem from it. */
static void find_tree(pid_t pid, struct tree *ret) {
    ret->n = 0;
    add_pid(ret, pid);
    for (size_t i = 0; i < ret->n; i++)
        proc_each_child(ret->pids[i], true, add_pid, ret);
}

/* CPU time of a process, and, if they count, of those that it has waited for. */
static uint64_t process_ns(pid_t pid, bool with_children) {
    struct proc_stat stat;
    if (!proc_read_stat(pid, &stat))
        return 0;
    return stat.ran_ns + (with_children ? stat.children_ns : 0);
}

struct own_threads {
    pid_t pid, works;          /* works: the thread that does; 0: the main thread */
    uint64_t ns;               /* of the main thread, of that one, and of NCCL's */
    uint64_t main_ns, idle_ns; /* of the main thread; of those that poll */
    bool flushes;              /* one waits until something is on the disk */
    bool nccl;
};

static void add_own(void *arg, int tid) {
    struct own_threads *o = arg;
    struct proc_stat stat;
    enum waits_kind kind = waits_kind(thread_call(o->pid, tid).number);
    o->flushes = o->flushes || kind == WAITS_DISK || kind == WAITS_DISK_FD;
    if (!proc_read_thread_stat(o->pid, tid, &stat))
        return;
    bool is_nccl = slow_is_nccl(stat.name);
    o->nccl = o->nccl || is_nccl;
    if (tid == o->pid || tid == o->works || is_nccl)
        o->ns += stat.ran_ns;
    if (tid == o->pid)
        o->main_ns = stat.ran_ns;
    else if (slow_is_poller(stat.name))
        o->idle_ns += stat.ran_ns;
}

/* A main thread that only waits for a process: a shell, a profiler. Then that one's counts. */
static pid_t waits_for(pid_t pid) {
    struct tree children = {.n = 0};
    if (waits_kind(thread_call(pid, pid).number) != WAITS_CHILD)
        return 0;
    proc_each_child(pid, true, add_pid, &children);
    pid_t busiest = 0;
    for (size_t i = 0, most = 0; i < children.n; i++) {
        uint64_t ns = process_ns(children.pids[i], true);
        if (busiest != 0 && ns <= most)
            continue;
        most = ns;
        busiest = children.pids[i];
    }
    return busiest;
}

static void find_followed(struct slow_look *l) {
    struct proc_stat stat;
    pid_t pid = l->pid;
    for (unsigned i = 0; i < FOLLOW_MAX; i++) {
        pid_t child = waits_for(pid);
        if (child == 0)
            break;
        pid = child;
    }
    if (pid == l->pid || !proc_read_stat(pid, &stat))
        return;
    l->follow = pid;
    l->follow_start = stat.start;
}

/* Where the main thread of this process, or this other thread, is; what was found before may be
 * another program by now. */
static uint64_t addresses_of(struct slow_task *t, pid_t pid) {
    struct err err = {0};
    uint64_t found = t->python.pid == pid ? pystack_process_addresses(&t->python) : 0;
    if (found != 0)
        return found;
    if (pystack_process_find(pid, &t->python, &err) == 0)
        return pystack_process_addresses(&t->python);
    t->python.pid = 0;
    return 0;
}

static uint64_t place_of(struct slow_task *t, pid_t pid, const struct waits_call *call) {
    uint64_t parts[] = {(uint64_t)call->number, call->stack, call->code};
    uint64_t python = addresses_of(t, pid);
    if (python != 0 || t->python.pid != 0)
        return python;
    return call->stack == 0 ? 0 : hash_bytes(HASH_BEGIN, parts, sizeof parts);
}

static void find_place(struct slow_task *t) {
    struct slow_look *l = &t->look;
    pid_t pid = slow_process(l);
    if (t->thread_of == pid && t->thread.tid != 0)
        pid = t->thread.tid;
    const struct waits_call call = thread_call(pid, pid);
    uint64_t place = place_of(t, pid, &call);
    const struct waits_call after = thread_call(pid, pid);
    if (call.number < 0 || after.number != call.number || after.stack != call.stack)
        return;
    l->addresses = place;
    l->sleeps = waits_for_time(&call);
    l->receives = waits_kind(call.number) == WAITS_DATA;
}

/* A thread that polls wakes for less than a millisecond. */
static void find_places(struct slow_task *tasks, size_t n) {
    const struct timespec pause = {.tv_nsec = (long)PLACE_EVERY_NS};
    bool elsewhere = true;
    for (unsigned times = 0; times < PLACE_TIMES && elsewhere; times++) {
        if (times > 0)
            (void)nanosleep(&pause, NULL);
        elsewhere = false;
        for (size_t i = 0; i < n; i++) {
            struct slow_task *t = &tasks[i];
            if (!t->look.little || (times > 0 && t->look.addresses == t->place))
                continue;
            find_place(t);
            elsewhere = elsewhere || (t->place != 0 && t->look.addresses != t->place);
        }
    }
}

uint64_t slow_io_bytes(const char *text) {
    uint64_t read, written;
    bool known = signs_number(text, "rchar: ", &read) && signs_number(text, "wchar: ", &written);
    return known ? read + written : 0;
}

uint64_t slow_written_pages(const char *text) {
    uint64_t pages;
    return signs_number(text, "\nnr_written ", &pages) ? pages : 0;
}

static bool omp_spins(pid_t pid) {
    _cleanup_(freep) char *env = malloc(ENV_MAX);
    ssize_t n = env == NULL ? 0 : proc_read(pid, "/environ", env, ENV_MAX - 1);
    if (n > 0)
        env[n] = '\0';
    return n > 0 && slow_omp_spins(env, (size_t)n);
}

/* What the kernel has written back, for whomever. 0: not known. */
static uint64_t written_bytes(void) {
    char text[VMSTAT_MAX];
    ssize_t n = proc_read_file("/proc/vmstat", text, sizeof text - 1);
    text[MAX2(n, 0)] = '\0';
    return slow_written_pages(text) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void look_at(struct slow_task *t, struct socket_bytes *sockets) {
    struct slow_look *l = &t->look;
    char path[PATH_BYTES], text[TEXT_MAX];
    struct tree tree;
    find_followed(l);
    struct own_threads own = {.pid = slow_process(l)};
    if (t->thread_of == own.pid)
        own.works = t->thread.tid;
    find_tree(l->pid, &tree);
    uint64_t all = 0;
    for (size_t k = 0; k < tree.n; k++) {
        all += process_ns(tree.pids[k], true);
        ssize_t len = proc_read(tree.pids[k], "/io", text, sizeof text - 1);
        text[MAX2(len, 0)] = '\0';
        l->bytes += slow_io_bytes(text);
        sockets->look = l;
        sockets->is_own = tree.pids[k] == own.pid;
        (void)!proc_each_link(tree.pids[k], add_link, sockets); /* no right, or it has ended */
    }
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)own.pid);
    (void)!proc_each_number(path, add_own, &own); /* it can have ended */
    l->nccl = own.nccl;
    l->bytes += own.flushes ? written_bytes() : 0;
    l->cpu_ns = all > own.ns ? all - own.ns : 0;
    l->idle_ns = own.idle_ns;
    uint64_t threads_ns = process_ns(own.pid, false), not_ns = own.main_ns + own.idle_ns;
    l->threads_ns = threads_ns > not_ns ? threads_ns - not_ns : 0;
    l->spinners = l->gpu || omp_spins(own.pid);
    l->asks = terminal_is_awaited(own.pid);
    if (t->look.hot && l->gpu)
        l->addresses = addresses_of(t, own.works != 0 ? own.works : own.pid);
}

void slow_look(struct slow_task *tasks, size_t n) {
    struct socket_bytes sockets = {.look = NULL};
    for (size_t i = 0; i < n; i++)
        look_at(&tasks[i], &sockets);
    idmap_fini(&sockets.counted);
    find_places(tasks, n);
}

struct job {
    struct slow_task *tasks;
    size_t n;
};

static bool send_tasks(int fd, const struct job *j) {
    return helper_send(fd, j->tasks, j->n * sizeof *j->tasks);
}

/* The search for threads may block: without it, the first answer counts. */
static int run(int fd, void *arg) {
    const struct job *j = arg;
    slow_look(j->tasks, j->n);
    if (!send_tasks(fd, j))
        return 1;
    for (size_t i = 0; i < j->n; i++) {
        struct slow_task *t = &j->tasks[i];
        pid_t pid = slow_process(&t->look);
        if (!t->find_thread)
            continue;
        if (t->thread_of != pid)
            t->thread = (struct work_thread){0};
        t->thread_of = pid;
        const int32_t looked_at = t->thread.tid;
        work_thread_find(pid, t->look.gpu, &t->threads, &t->thread);
        t->look.receives = t->look.receives && t->thread.tid == looked_at;
    }
    return send_tasks(fd, j) ? 0 : 1;
}

/* ---- in the agent ---- */

/* The last look at a worker. */
struct known {
    struct slow_task task;
    struct signs_found found;
};

struct slow {
    struct loop *loop;
    struct signs *signs;
    struct helper_call *call; /* NULL: none is under way */
    uint64_t asked_ns;        /* when the last look began; 0: none */
    size_t n_asked;           /* at so many workers */
    struct known *known;      /* of the last answer */
    size_t n;
    uint64_t looked_ns;
    uint64_t failed_ns; /* since then no look has succeeded; 0: the last one has */
    int error;          /* why, if that is long ago; else 0 */
};

struct slow *slow_new(struct loop *loop, struct signs *signs) {
    struct slow *s = xcalloc(1, sizeof *s);
    *s = (struct slow){.loop = loop, .signs = signs};
    return s;
}

void slow_free(struct slow *s) {
    if (s == NULL)
        return;
    helper_call_free(s->call);
    free(s->known);
    free(s);
}

static struct known *find(const struct slow *s, uint32_t rank) {
    for (size_t i = 0; i < s->n; i++)
        if (s->known[i].task.look.rank == rank)
            return &s->known[i];
    return NULL;
}

bool slow_has_nccl(const struct slow *s, uint32_t rank) {
    const struct known *k = find(s, rank);
    return k != NULL && k->task.look.nccl;
}

/* Whose movement is the worker's. */
static void follow(struct slow *s, const struct known *k) {
    const struct slow_task *t = &k->task;
    const struct slow_look *l = &t->look;
    if (t->thread_of == slow_process(l) && t->thread.tid != 0)
        signs_follow(s->signs, l->rank, t->thread.tid, t->thread.start);
    else
        signs_follow(s->signs, l->rank, l->follow, l->follow_start);
}

static void take_look(struct slow *s, struct known *k) {
    const struct slow_look *l = &k->task.look;
    const struct known *before = find(s, l->rank);
    k->found = before == NULL
                   ? slow_compare(NULL, NULL, 0, l, s->asked_ns)
                   : slow_compare(&before->task.look, &before->found, s->looked_ns, l, s->asked_ns);
    follow(s, k);
    signs_put(s->signs, l->rank, &k->found, s->asked_ns);
}

/* Nothing is concluded, also not that nothing moves. */
static void failed(struct slow *s, int error) {
    if (s->failed_ns == 0)
        s->failed_ns = s->asked_ns;
    if (s->asked_ns - s->failed_ns < SLOW_AGE_MAX_NS)
        return;
    s->error = error;
    signs_unseen(s->signs);
}

static void succeeded(struct slow *s) {
    s->failed_ns = 0;
    s->error = 0;
}

int slow_error(const struct slow *s) { return s->error; }

static void on_answer(void *arg, const struct helper_answer *a) {
    struct slow *s = arg;
    size_t n = s->n_asked, size = n * sizeof(struct slow_task);
    s->call = NULL;
    if (a->len < size) {
        failed(s, a->code < 0 ? a->code : -EPROTO);
        return;
    }
    succeeded(s);
    const char *last = a->data + (a->len / size - 1) * size;
    struct known *known = xcalloc(n, sizeof *known);
    for (size_t i = 0; i < n; i++) {
        memcpy(&known[i].task, last + i * sizeof known[i].task, sizeof known[i].task);
        take_look(s, &known[i]);
    }
    free(s->known);
    s->known = known;
    s->n = n;
    s->looked_ns = s->asked_ns;
}

/* All workers that have not ended. A thread is searched for in those that do not move or may only
 * poll, and in those that count as moving because a thread of them does: the main thread may work
 * by now, and the other only print figures. */
static struct job make_job(const struct slow *s, uint64_t now_ns) {
    _cleanup_(freep) struct worker_signs *rows = xcalloc(SIGNS_WORKERS_MAX, sizeof *rows);
    size_t n = signs_rows(s->signs, now_ns, rows, SIGNS_WORKERS_MAX);
    struct job j = {.tasks = xcalloc(n, sizeof *j.tasks)};
    for (size_t i = 0; i < n; i++) {
        const struct known *before = find(s, rows[i].rank);
        if ((rows[i].flags & SIGN_ENDED) != 0)
            continue;
        const struct signs_seen seen = signs_see(s->signs, rows[i].rank);
        struct slow_task *t = &j.tasks[j.n++];
        if (before != NULL)
            *t = before->task;
        const struct slow_look last = t->look;
        t->place = last.addresses;
        t->look = (struct slow_look){
            .rank = rows[i].rank, .pid = seen.pid, .hot = seen.hot, .little = seen.little};
        t->find_thread = (rows[i].flags & SIGN_MOVED) == 0 || seen.little || t->thread.tid != 0;
        if (seen.little) { /* taken to be where it was, unless it is seen elsewhere */
            t->look.addresses = last.addresses;
            t->look.sleeps = last.sleeps;
        }
    }
    return j;
}

static void ask(struct slow *s, uint64_t now_ns) {
    struct job j = make_job(s, now_ns);
    struct helper_call_config config = {.name = "muster-signs",
                                        .run = run,
                                        .arg = &j,
                                        .timeout_ns = SLOW_DEADLINE_NS,
                                        .max_bytes = 2 * j.n * sizeof *j.tasks};
    s->asked_ns = now_ns;
    s->n_asked = j.n;
    int r = j.n == 0 ? 0 : helper_call_new(s->loop, &config, on_answer, s, &s->call);
    free(j.tasks);
    if (r < 0)
        failed(s, r);
    if (s->loop != NULL || s->call == NULL)
        return;
    struct helper_call *call = s->call;
    struct helper_answer answer;
    helper_call_wait(call, &answer);
    on_answer(s, &answer);
    helper_call_free(call);
}

/* After how long the threads whose movement counts are looked at again; TIME_NEVER: there are none.
 */
static uint64_t threads_due(const struct slow *s) {
    uint64_t due = TIME_NEVER;
    for (size_t i = 0; i < s->n; i++)
        if (s->known[i].found.computes != 0 || s->known[i].task.thread.tid != 0)
            due = MIN2(due, s->known[i].found.before_ns != 0 ? SLOW_THREADS_NS : SLOW_EVERY_NS);
    return due;
}

/* Whether a worker has begun to run little since the last look: until it is looked at, it counts as
 * moving. */
static bool any_begins_to_poll(const struct slow *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->known[i].task.look.little && signs_see(s->signs, s->known[i].task.look.rank).little)
            return true;
    return false;
}

void slow_tick(struct slow *s, uint64_t now_ns) {
    uint64_t since_ns = s->asked_ns == 0 ? TIME_NEVER : now_ns - s->asked_ns;
    bool quiet = signs_still_ns(s->signs, now_ns) >= SIGNS_QUIET_NS || signs_any_odd(s->signs);
    bool threads = since_ns >= threads_due(s);
    if (!quiet)
        succeeded(s);
    if (s->call == NULL &&
        ((quiet && since_ns >= SLOW_EVERY_NS) || threads || any_begins_to_poll(s)))
        ask(s, now_ns);
}
