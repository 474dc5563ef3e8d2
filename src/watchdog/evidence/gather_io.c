#include "watchdog/evidence/gather_io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "base/text/tail.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "topology/discover/nvml/nvml_io.h"
#include "watchdog/evidence/disturb.h"
#include "watchdog/evidence/waits.h"
#include "watchdog/look/gpus.h"
#include "watchdog/look/kernel_log.h"
#include "watchdog/look/nics.h"
#include "watchdog/look/pystack.h"
#include "watchdog/look/ras.h"
#include "watchdog/look/recorder.h"
#include "watchdog/look/signs.h"

#define STACKS_AT_ONCE 4       /* workers that are read at the same time */
#define STACKS_CHILDREN_MAX 16 /* of a worker whose stacks are read */
#define STACKS_MAX (PYSTACK_THREADS_MAX + STACKS_CHILDREN_MAX + 1)
#define STACKS_ONE_MAX_NS (1 * NS_PER_S)
#define STEPS_MAX 16 /* of what the helper sends: each is whole, and better than the one before */
#define CHILD_DEPTH_MAX 8
#define ENVIRON_MAX (1u << 20)         /* bytes that are searched */
#define LOG_BYTES (64 << 10)           /* of a log, of which the last lines are kept */
#define RECORDER_MAX_NS (5 * NS_PER_S) /* PyTorch looks about once a second */
#define NICS_APART_NS (250 * NS_PER_MS)
#define COPY_NS NS_PER_S /* at most, for copies, when nothing more is waited for */
#define NCCL_RECORDER "flight recorder of NCCL: "

/* What the helper does. */
struct work {
    const struct gather_ask *ask;
    uint64_t begin_ns, end_ns;
    struct evidence e;
    int fd; /* -1: what was gathered so far is not sent */
};

/* ---- /proc ---- */

struct search {
    struct evidence_worker *worker;
    uint64_t end_ns; /* what is found later is left out */
};

/* Each look costs some system calls, and the list of all sockets if it waits for one: thousands of
 * threads that would be left out anyway must not cost the time for the rest. */
static void add_thread(void *arg, int tid) {
    const struct search *s = arg;
    struct evidence_worker *w = s->worker;
    struct evidence_thread t;
    if (tid == w->pid || w->threads_cut)
        return;
    if (w->n_threads == EVIDENCE_THREADS_MAX || clock_now_ns() >= s->end_ns) {
        w->threads_cut = true;
        return;
    }
    if (thread_look(w->pid, tid, &t) < 0)
        return;
    *evidence_add_thread(w) = t;
}

static void add_child(void *arg, int pid) {
    const struct search *s = arg;
    struct evidence_worker *w = s->worker;
    struct proc_stat stat;
    struct evidence_child c = {.pid = pid};
    if (w->children_cut)
        return;
    if (w->n_children == EVIDENCE_CHILDREN_MAX || clock_now_ns() >= s->end_ns) {
        w->children_cut = true;
        return;
    }
    if (!proc_read_stat(pid, &stat) || thread_look(pid, pid, &c.main) < 0)
        return;
    c.parent = stat.parent;
    (void)snprintf(c.name, sizeof c.name, "%s", stat.name);
    *evidence_add_child(w) = c;
}

/* All that stem from it, nearest first. */
static void add_children(struct search *s) {
    struct evidence_worker *w = s->worker;
    proc_each_child(w->pid, true, add_child, s);
    for (uint32_t from = 0, depth = 1; from < w->n_children && depth < CHILD_DEPTH_MAX; depth++) {
        uint32_t end = w->n_children;
        for (; from < end && !w->children_cut; from++)
            proc_each_child(w->children[from].pid, true, add_child, s);
    }
}

static void look_at(struct evidence_worker *w, uint64_t end_ns) {
    struct evidence_thread main;
    struct search search = {.worker = w, .end_ns = end_ns};
    char path[PROC_PATH_MAX];
    int r = thread_look(w->pid, w->pid, &main);
    if (r < 0) {
        evidence_worker_gap(w, "/proc: cannot read process %d: %s", (int)w->pid, strerror(-r));
        return;
    }
    *evidence_add_thread(w) = main;
    if (main.state != 'R' && main.state != 'Z' && main.syscall[0] == '\0')
        evidence_worker_gap(w, "/proc: permission denied reading what process %d waits for",
                            (int)w->pid);
    proc_path(path, w->pid, "/task");
    r = proc_each_number(path, add_thread, &search);
    if (r < 0)
        evidence_worker_gap(w, "/proc: cannot list its threads: %s", strerror(-r));
    add_children(&search);
    r = thread_kernel_stack(w->pid, w->pid, &w->kernel_stack);
    if (r == -EACCES || r == -EPERM)
        evidence_worker_gap(w, "kernel stack: only root may read it");
    else if (r < 0)
        evidence_worker_gap(w, "kernel stack: %s", strerror(-r));
}

/* ---- the workers' store ---- */

struct link_search {
    uint16_t port;
    bool found;
};

static bool look_at_link(void *arg, const char *link) {
    struct link_search *s = arg;
    const struct tcp_socket *t = thread_socket(link);
    s->found = t != NULL && t->at.idiag_state == TCP_SOCKET_ESTABLISHED &&
               ntohs(t->at.id.idiag_dport) == s->port;
    return !s->found;
}

/* Whether it has a connection to this port: 1, 0, or a negative errno: that can't be read. */
static int has_link(pid_t pid, uint16_t port) {
    struct link_search s = {.port = port};
    int r = proc_each_link(pid, look_at_link, &s);
    return s.found ? 1 : r;
}

/* The same of a worker and its children. */
static int worker_has_link(const struct evidence_worker *w, uint16_t port) {
    int r = has_link(w->pid, port);
    for (uint32_t k = 0; k < w->n_children && r == 0; k++)
        r = has_link(w->children[k].pid, port) == 1;
    return r;
}

/* 0: not known. */
static uint64_t net_of(pid_t pid) {
    char path[PROC_PATH_MAX];
    struct stat net;
    proc_path(path, pid, "/ns/net");
    return stat(path, &net) == 0 ? net.st_ino : 0;
}

/* Whether the other end of a connection with this port here belongs to another worker. */
static bool is_of_another(const struct evidence *e, const struct evidence_worker *w,
                          uint16_t port) {
    for (uint32_t i = 0; i < e->n_workers; i++) {
        const struct evidence_worker *other = &e->workers[i];
        if (other != w && other->n_threads > 0 && worker_has_link(other, port) == 1)
            return true;
    }
    return false;
}

static bool awaits_rank(const struct evidence *e, const struct evidence_worker *w,
                        const struct evidence_thread *t, uint16_t store_port) {
    struct waits_ends ends;
    return waits_connection(t->target, &ends) &&
           (ends.other_port == store_port || /* the search looks at all files of all workers */
            (thread_sockets_reach(ends.own_port) && is_of_another(e, w, ends.own_port)));
}

/* Sets at_store or not_at_store of the workers in *e: whether the worker, or a child, has an
 * established TCP connection to this port, the workers' store: one that has none while others do
 * has not got as far as joining them, or has left. Neither is set if that cannot be read, or the
 * worker has a network of its own. And awaits_rank: whether its main thread, or that of a child,
 * waits on a connection to it, or to another worker. */
static void find_store_links(struct evidence *e, uint16_t port) {
    uint64_t net = port != 0 && thread_sockets_known() ? net_of(getpid()) : 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        struct evidence_worker *w = &e->workers[i];
        if (w->n_threads == 0)
            continue;
        w->awaits_rank = awaits_rank(e, w, &w->threads[0], port);
        for (uint32_t k = 0; k < w->n_children && !w->awaits_rank; k++)
            w->awaits_rank = awaits_rank(e, w, &w->children[k].main, port);
        if (net == 0 || net_of(w->pid) != net)
            continue;
        int r = worker_has_link(w, port);
        w->at_store = r == 1;
        w->not_at_store = r == 0;
    }
}

/* ---- the first step ---- */

static struct evidence_worker *add_worker(struct work *k, size_t i) {
    struct evidence_worker *w = evidence_add_worker(&k->e);
    if (w != NULL)
        *w = k->ask->workers[i].of;
    return w;
}

static void step_proc(struct work *k) {
    for (size_t i = 0; i < k->ask->n; i++) {
        struct evidence_worker *w = add_worker(k, i);
        if (w == NULL) {
            evidence_gap(&k->e, "/proc: the node has more than %d workers", EVIDENCE_WORKERS_MAX);
            return;
        }
        if (!w->ended)
            look_at(w, k->begin_ns + k->ask->timeout_ns / 4);
    }
    find_store_links(&k->e, k->ask->store_port);
}

/* ---- Python stacks ---- */

/* What the helper of a worker sends: the stacks, and at last why there are no more. */
struct sent_stack {
    int32_t tid;
    char why[EVIDENCE_LINE_MAX]; /* "": no reason */
    struct pystack_thread thread;
};

struct reading {
    int32_t pid;
    bool child; /* of it, only the main thread is read */
    int fd;
};

static void on_thread(void *arg, const struct pystack_thread *t) {
    const struct reading *r = arg;
    bool main = t->main || (r->child && t->tid == r->pid);
    struct sent_stack s = {.tid = main ? r->pid : t->tid, .thread = *t};
    if (t->n > 0 && (main || !r->child))
        (void)!helper_send(r->fd, &s, sizeof s); /* the last one shows it */
}

static int read_process(const struct reading *r, struct err *err) {
    struct pystack_process p = {0};
    int code = pystack_process_find(r->pid, &p, err);
    if (code == 0)
        code = pystack_process_read(&p, on_thread, (void *)(uintptr_t)r, err);
    return code < 0 ? code : 0;
}

static int send_stacks(int fd, void *arg) {
    const struct evidence_worker *from = arg;
    struct err err = {0};
    struct sent_stack last = {0};
    int code = read_process(&(struct reading){.pid = from->pid, .fd = fd}, &err);
    bool by_child = false;
    for (uint32_t i = 0; i < from->n_children && i < STACKS_CHILDREN_MAX; i++) {
        struct err ignored = {0};
        struct reading child = {.pid = from->children[i].pid, .child = true, .fd = fd};
        by_child |= read_process(&child, &ignored) == 0;
    }
    if (code < 0 && !(code == -ENOENT && by_child))
        (void)snprintf(last.why, sizeof last.why, "%.200s", err.text);
    return helper_send(fd, &last, sizeof last) ? 0 : 1;
}

static struct evidence_thread *find_thread(struct evidence_worker *w, int32_t tid) {
    for (uint32_t i = 0; i < w->n_threads; i++)
        if (w->threads[i].tid == tid)
            return &w->threads[i];
    for (uint32_t i = 0; i < w->n_children; i++)
        if (w->children[i].pid == tid)
            return &w->children[i].main;
    return NULL;
}

/* A shell or a profiler, which waits for its program. */
static void take_stack_of_child(struct evidence_worker *w) {
    struct evidence_thread *main = &w->threads[0];
    if (main->stack >= 0 ||
        (strcmp(main->syscall, "wait4") != 0 && strcmp(main->syscall, "waitid") != 0))
        return;
    for (uint32_t i = 0; i < w->n_children && main->stack < 0; i++)
        main->stack = w->children[i].main.stack;
}

static void take_stack(struct evidence *e, struct evidence_worker *w, const struct sent_stack *s) {
    const struct pystack_thread *from = &s->thread;
    struct evidence_thread *t = find_thread(w, s->tid);
    uint32_t number;
    if (s->why[0] != '\0')
        evidence_worker_gap(w, "Python stack: %s", s->why);
    if (t == NULL || from->n == 0)
        return;
    /* one more than the most is noted as cut */
    if (evidence_add_stack(e, from->frames, from->n + from->cut, &number) == 0)
        t->stack = (int32_t)number;
    if (from->lock[0] != '\0' && t->target[0] == '\0')
        (void)snprintf(t->target, sizeof t->target, EVIDENCE_LOCK "%.*s",
                       (int)(sizeof t->target - sizeof EVIDENCE_LOCK), from->lock);
}

static void take(struct evidence *e, struct evidence_worker *w, struct helper_call *call) {
    struct helper_answer answer;
    struct sent_stack s;
    helper_call_wait(call, &answer);
    if (answer.code == -ETIMEDOUT)
        evidence_worker_gap(w, "Python stack: process %d could not be read in time", (int)w->pid);
    else if (answer.code < 0)
        evidence_worker_gap(w, "Python stack: %s", strerror(-answer.code));
    else if (answer.len == 0 || answer.len % sizeof s != 0)
        evidence_worker_gap(w, "Python stack: the process that reads it has ended");
    else
        for (size_t at = 0; at < answer.len; at += sizeof s) {
            memcpy(&s, answer.data + at, sizeof s);
            take_stack(e, w, &s);
        }
    take_stack_of_child(w);
}

static struct helper_call *begin(struct evidence_worker *w, uint64_t deadline_ns) {
    struct helper_call *call = NULL;
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct helper_call_config config = {.name = "muster-stack",
                                        .run = send_stacks,
                                        .arg = w,
                                        .timeout_ns = MIN2(left, STACKS_ONE_MAX_NS),
                                        .max_bytes = STACKS_MAX * sizeof(struct sent_stack)};
    if (w->ended || w->n_threads == 0)
        return NULL;
    int r = left == 0 ? -ETIMEDOUT : helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r == -ETIMEDOUT)
        evidence_worker_gap(w, "Python stack: no time was left");
    else if (r < 0)
        evidence_worker_gap(w, "Python stack: no process could be started: %s", strerror(-r));
    return call;
}

/* Fills in the Python stacks of the threads and children in *e, read from outside (look/pystack.h).
 * Each worker is read by a process of its own with a deadline, several at a time: the file system
 * of an interpreter can be dead. A wrapper without Python that waits for its child has the stack of
 * that child. What is missing is a gap of the worker. deadline_ns: CLOCK_MONOTONIC. */
static void read_python_stacks(struct evidence *e, uint64_t deadline_ns) {
    struct helper_call *calls[STACKS_AT_ONCE] = {NULL};
    for (uint32_t i = 0; i < e->n_workers + STACKS_AT_ONCE; i++) {
        struct helper_call **at = &calls[i % STACKS_AT_ONCE];
        if (*at != NULL)
            take(e, &e->workers[i - STACKS_AT_ONCE], *at);
        helper_call_free(*at);
        *at = i < e->n_workers ? begin(&e->workers[i], deadline_ns) : NULL;
    }
}

/* ---- what others report ---- */

/* The environment with which a worker was started: it has the addresses of services to ask. */
struct env {
    char *text; /* NAME=VALUE, each with its NUL; owned; NULL: it cannot be read */
    size_t len;
    struct envlist given; /* by muster: for what /proc does not have */
};

static void env_fini(struct env *e) {
    free(e->text);
    envlist_fini(&e->given);
}

static void env_read(const struct gather_ask *ask, const struct evidence_worker *w,
                     struct env *ret) {
    char path[PROC_PATH_MAX];
    *ret = (struct env){.text = NULL};
    if (ask->from != NULL)
        (void)ask->from->ops->env(ask->from->of, w->local_rank, &ret->given);
    proc_path(path, w->pid, "/environ");
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ret->text = xmalloc(ENVIRON_MAX + 1);
    ssize_t n = file_read_all(fd, ret->text, ENVIRON_MAX);
    ret->len = n > 0 ? (size_t)n : 0;
    ret->text[ret->len] = '\0';
}

/* Borrowed; NULL: it is not set, or empty. */
static const char *env_value(const struct env *e, const char *name) {
    size_t n = strlen(name);
    for (const char *p = e->text; p != NULL && p < e->text + e->len; p += strlen(p) + 1)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return p[n + 1] != '\0' ? p + n + 1 : NULL;
    const char *given = envlist_get(&e->given, name);
    return given != NULL && given[0] != '\0' ? given : NULL;
}

/* helper_call_new() without a loop, for a helper that touches the disk of the logs, which may hold
 * it for ever. -EBUSY: an earlier one of this name is still held. */
static int disk_call(const struct gather_ask *ask, const struct helper_call_config *config,
                     struct helper_call **ret) {
    const struct hang_workers *from = ask->from;
    if (from != NULL && from->ops->spared(from->spare, config->name))
        return -EBUSY;
    int r = helper_call_new(NULL, config, NULL, NULL, ret);
    if (r == 0 && from != NULL)
        from->ops->spare(from->spare, helper_call_pid(*ret));
    return r;
}

/* Why there is no answer: the errno of disk_call(), or of its answer. */
static const char *disk_why(int r) {
    if (r == -EBUSY)
        return "not read, because the disk still holds the process that read it last";
    return r == -ETIMEDOUT ? "it could not be read in time" : strerror(-r);
}

/* An empty text leaves the field as it is. */
static void take_text(char **to, struct strbuf *text) {
    if (text->len > 0) {
        free(*to);
        *to = strbuf_take(text);
    }
    strbuf_fini(text);
}

static void ask_recorder(struct evidence_worker *w, const char *socket, uint64_t deadline_ns,
                         uint32_t *without) {
    struct strbuf text = {0};
    struct err err = {0};
    int r = source_recorder(socket, deadline_ns, &text, &w->collectives, &err);
    if (r == -ENOENT || r == -ECONNREFUSED)
        ++*without;
    else if (r < 0)
        evidence_worker_gap(w, "flight recorder: %s", err.text);
    take_text(&w->recorder, &text);
}

static void ask_recorders(struct evidence *e, const struct gather_ask *ask, uint64_t end_ns) {
    uint32_t without = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        struct evidence_worker *w = &e->workers[i];
        _cleanup_(env_fini) struct env env = {0};
        uint64_t now = clock_now_ns();
        if (w->ended)
            continue;
        if (now >= end_ns) {
            evidence_worker_gap(w, "flight recorder: there was no time left");
            continue;
        }
        env_read(ask, w, &env);
        const char *socket = env_value(&env, "TORCH_WORKER_SERVER_SOCKET");
        /* One that does not answer costs the others less than all of the time. */
        if (socket != NULL)
            ask_recorder(w, socket, now + (end_ns - now) / 2, &without);
    }
    if (without > 0)
        evidence_gap(e,
                     "flight recorder: %u worker%s no server for it: the program does not use "
                     "worker_main() of torch.distributed.elastic.control_plane",
                     without, without == 1 ? " has" : "s have");
}

static const struct evidence_worker *first_rank(const struct evidence *e) {
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (e->workers[i].rank == 0 && !e->workers[i].ended)
            return &e->workers[i];
    return NULL;
}

/* The processes of the workers, and their children: of a wrapper, one of these is the rank. */
static struct ras_own *own_of(const struct evidence *e, size_t *ret_n) {
    size_t n = 0;
    for (uint32_t i = 0; i < e->n_workers; i++)
        n += 1 + e->workers[i].n_children;
    struct ras_own *own = xcalloc(n + 1, sizeof *own);
    *ret_n = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        const struct evidence_worker *w = &e->workers[i];
        own[(*ret_n)++] = (struct ras_own){w->rank, w->pid};
        for (uint32_t k = 0; k < w->n_children; k++)
            own[(*ret_n)++] = (struct ras_own){w->rank, w->children[k].pid};
    }
    return own;
}

/* Of the ranks of all nodes: theirs may have no evidence. */
static void take_counts(struct evidence *e, const struct ras *ras, uint32_t world) {
    size_t n_own;
    _cleanup_(freep) struct ras_own *own = own_of(e, &n_own);
    _cleanup_(freep) uint64_t *counts = xcalloc(world + (size_t)1, sizeof *counts);
    ras_counts(ras, world, own, n_own, counts);
    if (evidence_add_counts(e, counts, world) < 0)
        evidence_gap(e, "NCCL RAS: too many ranks differ: not all are compared");
}

static void ask_ras(struct evidence *e, const struct gather_ask *gather, uint64_t end_ns) {
    const struct evidence_worker *first = first_rank(e);
    _cleanup_(env_fini) struct env env = {0};
    _cleanup_(ras_fini) struct ras ras = {0};
    struct err err = {0};
    uint32_t world = 0;
    if (first == NULL)
        return;
    env_read(gather, first, &env);
    const char *size = env_value(&env, "WORLD_SIZE");
    const char *address = env_value(&env, "NCCL_RAS_ADDR");
    if (address == NULL) /* muster sets it where there are GPUs; another job may have the default */
        return;
    if (source_ras(address, end_ns, &ras, &err) < 0) {
        evidence_gap(e, "NCCL RAS: %s", err.text);
        return;
    }
    struct strbuf text = {0};
    ras_summary(&ras, &text);
    take_text(&e->ras, &text);
    if (size != NULL && parse_u32(size, &world) == 0 && world <= RAS_RANKS_MAX)
        take_counts(e, &ras, world);
}

/* Two readings at once would show nothing that moves. Returns at end_ns at the latest. */
static void wait_until(uint64_t when_ns, uint64_t end_ns) {
    for (uint64_t now; (now = clock_now_ns()) < MIN2(when_ns, end_ns);)
        (void)poll(NULL, 0, (int)((MIN2(when_ns, end_ns) - now) / NS_PER_MS) + 1);
}

static void look_at_nics(struct evidence *e, const struct nics *before, uint64_t end_ns) {
    _cleanup_(freep) struct nics *after = xcalloc(1, sizeof *after);
    struct err err = {0};
    struct strbuf text = {0};
    uint64_t now = clock_now_ns();
    wait_until(before->when_ns + NICS_APART_NS, now + (end_ns > now ? end_ns - now : 0) / 2);
    if (source_nics(NULL, end_ns, after, &err) < 0)
        evidence_gap(e, "NICs: %s", err.text);
    nics_summary(before, after, &text);
    take_text(&e->nics, &text);
}

static void read_kernel_log(struct evidence *e, uint64_t since_ns, uint64_t end_ns) {
    struct err err = {0};
    struct strbuf text = {0};
    if (source_kernel_log(NULL, since_ns, end_ns, &text, &err) < 0)
        evidence_gap(e, "kernel log: %s", err.text);
    take_text(&e->kernel_log, &text);
}

/* The counters of the GPUs, read twice. A faulty GPU can block it for ever, whatever end_ns is.
 * False: there are none, or no time is left; nothing was added. */
static bool read_gpus(struct evidence *e, uint64_t end_ns) {
    struct err err = {0};
    if (!nvml_may_answer() || clock_now_ns() >= end_ns)
        return false;
    _cleanup_(freep) struct nvml_report *before = xcalloc(2, sizeof *before);
    struct nvml_report *after = before + 1;
    int r = nvml_read_load(before, &err);
    if (r == 0) {
        wait_until(before->when_ns + NICS_APART_NS, end_ns);
        r = nvml_read_load(after, &err);
    }
    if (r < 0)
        evidence_gap(e, "GPUs: %s", err.text);
    struct strbuf text = {0};
    gpus_summary(before, after, &text);
    take_text(&e->gpus, &text);
    return true;
}

/* ---- the file of NCCL's recorder ---- */

struct dumps {
    struct helper_call *call;
    size_t n;
    struct source_recorder_dump *dumps; /* [n] */
    uint32_t *workers;                  /* [n] of each, its number in the evidence */
    uint64_t end_ns, copied_ns;
};

static void recorder_free(struct dumps *r) {
    for (size_t i = 0; i < r->n; i++) {
        free((void *)(uintptr_t)r->dumps[i].fifo);
        free((void *)(uintptr_t)r->dumps[i].dump);
        free((void *)(uintptr_t)r->dumps[i].keep);
    }
    helper_call_free(r->call);
    free(r->dumps);
    free(r->workers);
    free(r);
}

/* The helper's pointers are those of this process, of which it is a copy. */
static int send_dumps(int fd, void *arg) {
    const struct dumps *r = *(const struct dumps *const *)arg;
    source_recorder_dumps(r->dumps, r->n, r->end_ns, r->copied_ns);
    return helper_send(fd, r->dumps, r->n * sizeof *r->dumps) ? 0 : 1;
}

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static void add_dump(struct dumps *r, const struct gather_ask *ask, const struct evidence *e,
                     uint32_t i) {
    const struct evidence_worker *w = &e->workers[i];
    struct source_recorder_dump *d = &r->dumps[r->n];
    _cleanup_(env_fini) struct env env = {0};
    env_read(ask, w, &env);
    const char *fifo = env_value(&env, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    const char *dump = env_value(&env, "TORCH_FR_DUMP_TEMP_FILE");
    if (dump == NULL)
        dump = env_value(&env, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    if (fifo == NULL)
        return;
    *d = (struct source_recorder_dump){.fifo = xasprintf("%s%u.pipe", fifo, w->rank)};
    if (dump != NULL)
        d->dump = xasprintf("%s%u", dump, w->rank);
    if (dump != NULL && ask->keep_dir != NULL && !is_below(dump, ask->keep_dir))
        d->keep = xasprintf("%s/nccl_trace_rank_%u", ask->keep_dir, w->rank);
    r->workers[r->n++] = i;
}

/* Has NCCL's flight recorder of each worker whose environment has its FIFO write its file
 * (look/recorder.h), while the rest is gathered: in a helper of its own, because the files are on a
 * disk of the user's. A file that is not below ask->keep_dir is copied there. NULL: there is none,
 * or a gap has the reason. end_dumps() waits for it, adds the result, and frees it. */
static struct dumps *begin_dumps(struct evidence *e, const struct gather_ask *ask,
                                 uint64_t deadline_ns) {
    struct dumps *r = xcalloc(1, sizeof *r);
    r->dumps = xcalloc(e->n_workers + (size_t)1, sizeof *r->dumps);
    r->workers = xcalloc(e->n_workers + (size_t)1, sizeof *r->workers);
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (!e->workers[i].ended)
            add_dump(r, ask, e, i);
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t more = MIN2(left / 4, COPY_NS);
    r->end_ns = deadline_ns;
    r->copied_ns = deadline_ns + more / 2; /* the rest is for the answer */
    struct helper_call_config config = {.name = GATHER_RECORDER_NAME,
                                        .run = send_dumps,
                                        .arg = &r,
                                        .timeout_ns = left + more,
                                        .max_bytes = r->n * sizeof *r->dumps};
    int code = r->n > 0 ? disk_call(ask, &config, &r->call) : 0;
    if (code < 0)
        evidence_gap(e, NCCL_RECORDER "%s", disk_why(code));
    if (r->n > 0 && code == 0)
        return r;
    recorder_free(r);
    return NULL;
}

static void add_result(const struct source_recorder_dump *d, struct evidence_worker *w) {
    struct strbuf text = {0};
    strbuf_add(&text, w->recorder != NULL ? w->recorder : "");
    if (d->dump == NULL)
        strbuf_add(&text, "NCCL's recorder was asked to write its file\n");
    else
        strbuf_printf(&text, "NCCL's recorder has written %.1024s, %llu bytes\n", d->dump,
                      (unsigned long long)d->bytes);
    if (d->code == 0 && d->keep != NULL)
        strbuf_printf(&text, "copied to %.1024s\n", d->keep);
    take_text(&w->recorder, &text);
}

static void end_dumps(struct dumps *r, struct evidence *e) {
    struct helper_answer answer;
    helper_call_wait(r->call, &answer);
    bool whole = answer.len == r->n * sizeof *r->dumps;
    if (whole)
        memcpy(r->dumps, answer.data, answer.len);
    else
        evidence_gap(e, NCCL_RECORDER "%s",
                     answer.code == -ETIMEDOUT ? "the disk of its files does not answer"
                                               : "the process that asks it has ended");
    for (size_t i = 0; i < r->n && whole; i++) {
        struct evidence_worker *w = &e->workers[r->workers[i]];
        const struct source_recorder_dump *d = &r->dumps[i];
        if (d->code == 0 || d->bytes > 0)
            add_result(d, w);
        if (d->code < 0 && d->code != -ENOENT)
            evidence_worker_gap(w, NCCL_RECORDER "%s", d->err.text);
    }
    recorder_free(r);
}

/* ---- logs ---- */

static int send_tails(int fd, void *arg) {
    const struct gather_worker *a = *(const struct gather_worker *const *)arg;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (size_t i = 0; i < GATHER_LOGS_MAX; i++) {
        _cleanup_(tail_fini) struct tail tail = {0};
        if (a->logs[i] != NULL)
            file_read_end(a->logs[i], LOG_BYTES, &tail);
        strbuf_add(&text, tail_lines(&tail));
        if (text.len > 0 && text.data[text.len - 1] != '\n')
            strbuf_add_char(&text, '\n');
    }
    return helper_send(fd, strbuf_text(&text), text.len) ? 0 : 1;
}

/* A file system that is dead blocks a helper of the helper, and is not tried again for the next. */
static void step_logs(struct work *k) {
    bool late = false;
    for (uint32_t i = 0; i < k->e.n_workers; i++) {
        const struct gather_worker *a = &k->ask->workers[i];
        struct evidence_worker *w = &k->e.workers[i];
        if (a->logs[0] == NULL && a->logs[1] == NULL)
            continue;
        if (late) {
            evidence_worker_gap(
                w, "log: not read, because that of another worker could not be read in time");
            continue;
        }
        uint64_t now = clock_now_ns(), left = k->end_ns > now ? (k->end_ns - now) / 2 : 0;
        struct helper_call_config config = {.name = GATHER_LOG_NAME,
                                            .run = send_tails,
                                            .arg = &a,
                                            .timeout_ns = left,
                                            .max_bytes = EVIDENCE_TEXT_MAX};
        struct helper_call *call = NULL;
        struct helper_answer answer = {0};
        int r = disk_call(k->ask, &config, &call);
        if (r == 0) {
            helper_call_wait(call, &answer);
            r = answer.code;
        }
        if (r == 0 && answer.len > 0)
            w->log_tail = xstrndup(answer.data, answer.len);
        else if (r < 0)
            evidence_worker_gap(w, "log: %s", disk_why(r));
        late = r == -ETIMEDOUT || r == -EBUSY;
        helper_call_free(call);
    }
}

/* PyTorch's flight recorder of each worker, NCCL's RAS (only where global rank 0 runs: one answer
 * describes the whole job), the log of the kernel and the NICs: what can be read until some time
 * before the end, to send it, too; the rest becomes gaps. */
static void step_sources(struct work *k, const struct nics *before) {
    uint64_t now = clock_now_ns(), left = k->end_ns > now ? (k->end_ns - now) * 4 / 5 : 0;
    ask_recorders(&k->e, k->ask, now + left / 2);
    ask_ras(&k->e, k->ask, now + left * 3 / 4);
    read_kernel_log(&k->e, k->ask->since_ns, now + left);
    look_at_nics(&k->e, before, now + left);
}

/* ---- the helper ---- */

/* Who has moved meanwhile, or has ended. */
static void mark_moved(struct work *k) {
    for (uint32_t i = 0; i < k->e.n_workers; i++) {
        const struct gather_worker *a = &k->ask->workers[i];
        uint64_t ran_ns;
        if (a->of.ended || a->ran_ns == 0)
            continue;
        int r = thread_ran(a->of.pid, a->of.pid, &ran_ns);
        if (r == -ESRCH || (r == 0 && ran_ns >= a->ran_ns + SIGNS_MOVED_NS))
            k->e.workers[i].still_ns = 0;
    }
}

/* One line, so that the reader knows what is whole. */
static void send_so_far(struct work *k) {
    mark_moved(k);
    if (k->fd < 0)
        return;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    k->e.took_ns = clock_now_ns() - k->begin_ns;
    evidence_write(&k->e, &text);
    strbuf_add_char(&text, '\n');
    (void)!helper_send(k->fd, strbuf_text(&text), text.len); /* without a reader it ends soon */
}

/* Only whom it is about. */
static void step_native(struct work *k) {
    for (size_t i = 0; i < k->ask->n && add_worker(k, i) != NULL; i++)
        ;
    disturb_native_stacks(&k->e, k->end_ns);
}

/* Which machine this is, and which of its network namespaces, without telling their names. */
static void number_machine(struct evidence *e) {
    char boot[BOOT_ID_MAX];
    struct stat st;
    if (proc_boot_id(boot) < 0)
        return;
    e->machine = hash_text(HASH_BEGIN, boot);
    if (stat("/proc/self/ns/net", &st) == 0)
        e->network = hash_bytes(e->machine, &st.st_ino, sizeof st.st_ino);
}

static void work(struct work *k) {
    uint64_t timeout_ns = k->ask->timeout_ns;
    (void)snprintf(k->e.node, sizeof k->e.node, "%s", k->ask->node);
    number_machine(&k->e);
    k->begin_ns = clock_now_ns();
    k->end_ns = k->begin_ns + timeout_ns - timeout_ns / 8; /* to send it, too */
    if (k->ask->native) {
        step_native(k);
        send_so_far(k);
        return;
    }
    _cleanup_(freep) struct nics *nics = xcalloc(1, sizeof *nics);
    step_proc(k);
    send_so_far(k);
    struct dumps *recorder =
        begin_dumps(&k->e, k->ask, k->begin_ns + MIN2(timeout_ns / 2, RECORDER_MAX_NS));
    struct err unused = {0};
    (void)!source_nics(NULL, k->end_ns, nics, &unused); /* the second reading has the reason */
    read_python_stacks(&k->e, k->begin_ns + timeout_ns / 2);
    send_so_far(k);
    step_logs(k);
    send_so_far(k);
    step_sources(k, nics);
    send_so_far(k);
    if (recorder != NULL) {
        end_dumps(recorder, &k->e);
        send_so_far(k);
    }
    if (read_gpus(&k->e, k->end_ns))
        send_so_far(k);
}

static int run(int fd, void *arg) {
    struct work k = {.ask = arg, .fd = fd};
    work(&k);
    evidence_fini(&k.e);
    return 0;
}

void gather_now(const struct gather_ask *ask, struct evidence *ret) {
    struct work k = {.ask = ask, .fd = -1};
    work(&k);
    k.e.took_ns = clock_now_ns() - k.begin_ns;
    *ret = k.e;
}

/* ---- this process ---- */

void gather_none(const char *node, int code, uint64_t took_ns, struct strbuf *ret) {
    _cleanup_(evidence_fini) struct evidence e = {.took_ns = took_ns};
    (void)snprintf(e.node, sizeof e.node, "%s", node);
    evidence_gap(&e, "nothing could be gathered: %s",
                 code == -ETIMEDOUT ? "it took too long (--evidence-timeout)"
                 : code == -EMFILE  ? "the limit of open files is too low; raise it with ulimit -n"
                 : code < 0         ? helper_call_why(code)
                                    : "the helper ended without an answer");
    evidence_write(&e, ret);
}

int gather_new(struct loop *loop, const struct gather_ask *ask, helper_call_fn *fn, void *arg,
               struct helper_call **ret) {
    struct gather_ask copy = *ask;
    struct helper_call_config config = {.name = "muster-evidence",
                                        .run = run,
                                        .arg = &copy,
                                        .timeout_ns = ask->timeout_ns,
                                        .max_bytes = STEPS_MAX * (EVIDENCE_JSON_MAX + 1)};
    return helper_call_new(loop, &config, fn, arg, ret);
}
