#include "launcher/warm/warm_pool_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"

#define CHECKS_MAX 20
/* How often a complete pool checks for later imports, each time after twice the time. */
#define LATER_CHECKS_MAX 6
/* How often the time before standbys are replaced is doubled when they keep ending. */
#define LOST_MAX 6
#define TEMPLATE_INDEX UINT32_MAX

/* Of a standby, or of the template. */
enum warm_state {
    WARM_STATE_NONE = 0,
    WARM_STATE_REACHING, /* a process without a script checks that the gate is reached */
    WARM_STATE_WARMING,  /* it imports */
    WARM_STATE_WAITS,
};

struct warm_one {
    struct warm_pool *pool;
    uint32_t index; /* the local rank */
    enum warm_state state;
    bool forked;
    struct child_watch *watch; /* NULL: the pid of a forked one is not known yet */
    int fd;                    /* -1: NONE */
    struct loop_watch *control;
    uint64_t due_ns;         /* REACHING, WARMING: when it has taken too long */
    struct child_spec *spec; /* the worker that it stands for, with its own environment; owned */
};

enum knowledge {
    IMPORTS_UNKNOWN = 1, /* no worker has recorded */
    IMPORTS_RECORDING,   /* a worker that records was started */
    IMPORTS_KNOWN,       /* the record was read */
    IMPORTS_UNUSED,      /* no worker is warm any more, because of `why` */
};

struct warm_pool {
    struct loop *loop;
    struct warm_pool_config config;
    struct loop_timer *timer;
    uint64_t check_ns; /* when it begins what is missing; TIME_NEVER */
    enum job_warm form;
    enum knowledge imports;
    int zip_fd, record_fd;
    size_t record_bytes;              /* size of the record at the last check; what was imported */
    unsigned n_checks;                /* of a record that grows or is empty */
    unsigned n_later;                 /* checks for later imports */
    bool complete_logged;             /* that there is a standby for each rank */
    unsigned failures;                /* standbys in a row that could not be made */
    unsigned lost;                    /* times that standbys have ended, since the start */
    bool made;                        /* one has become ready since the last of these */
    unsigned early;                   /* warm starts in a row that failed soon */
    bool early_counted;               /* the current start is among them */
    char why[WARM_REASON_MAX];        /* why there is no standby, or not for each rank */
    char reason[WARM_REASON_MAX];     /* of the last start */
    uint32_t n_warm, n_started;       /* of the last start */
    bool again;                       /* workers were started before: `reason` is always logged */
    uint32_t n_unanswered;            /* taken, and have not answered yet */
    uint32_t n_ended;                 /* by themselves */
    struct loop_timer *report_timer;  /* facts may have changed */
    struct warm_one template, *ranks; /* [n] */
    struct warm_one *old;             /* [n] that the ranks replace: WAITS or NONE */
    struct child_spec **specs;        /* [n] of the last start; NULL: there was none */
};

static void set_timer(struct warm_pool *p);
static void is_ready(struct warm_one *one, const struct warm_message *message);
/* It has ended, or can't be used. `counts`: it could not be made. */
static void has_failed(struct warm_one *one, const char *why, bool counts);

static void drop(struct warm_one *one) {
    if (one->watch != NULL && child_watch_alive(one->watch)) {
        (void)!child_watch_kill(one->watch, SIGKILL);
        child_watch_let_go(one->watch);
    } else {
        child_watch_free(one->watch);
    }
    loop_watch_free(one->control);
    file_close(&one->fd);
    child_spec_free(one->spec);
    *one = (struct warm_one){.pool = one->pool, .index = one->index, .fd = -1};
}

/* ---- what it reports ---- */

static bool is_made(const struct warm_one *one) {
    return one->state == WARM_STATE_REACHING || one->state == WARM_STATE_WARMING;
}

static void has_ended(struct warm_one *one) {
    one->pool->n_ended++;
    has_failed(one,
               one->state == WARM_STATE_REACHING ? "its Python did not load muster's sitecustomize"
                                                 : "a process for the next start has ended",
               is_made(one));
}

static void on_ended(void *arg, const struct child_status *status) { has_ended(arg); }

/* A process that the template has forked twice reports its pid when it is this process's child. */
static int adopt(struct warm_one *one, uint32_t pid) {
    struct proc_stat st;
    _cleanup_(child_fini) struct child child = {.pid = (pid_t)pid,
                                                .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    if (!proc_read_stat(child.pid, &st) || st.parent != getpid() ||
        child_reaper_find(one->pool->config.reaper, child.pid) != NULL)
        return -ESRCH;
    const struct child_spec *spec = one->spec;
    if (spec->cpuset != NULL && sched_setaffinity(child.pid, spec->cpuset_bytes, spec->cpuset) < 0)
        return -errno;
    one->watch = child_watch_new(one->pool->config.reaper, &child, NULL, on_ended, one);
    child = (struct child)CHILD_INIT; /* the watch owns it */
    return 0;
}

static void begin_reached(struct warm_one *one);

static void take_message(struct warm_one *one, const char *text, size_t n) {
    struct warm_message message;
    struct err err = {0};
    int r = warm_read(text, n, &message, &err);
    if (r < 0 || message.kind == WARM_GOING || !is_made(one)) {
        has_failed(one,
                   r < 0 ? err.text
                         : "a process for the next start has sent a message that does not fit",
                   true);
        return;
    }
    if (message.kind == WARM_COLD) {
        has_failed(one, message.reason, true);
        return;
    }
    if (one->forked && one->watch == NULL && (r = adopt(one, message.pid)) < 0) {
        has_failed(one, "a forked process has been lost", true);
        return;
    }
    if (one->state == WARM_STATE_REACHING) {
        begin_reached(one);
        return;
    }
    one->state = WARM_STATE_WAITS;
    is_ready(one, &message);
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct warm_one *one = arg;
    char text[8192];
    ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        take_message(one, text, (size_t)n);
    else
        has_ended(one);
}

/* Makes the pair of sockets; the other end is the caller's. */
static int connect_to(struct warm_one *one, enum warm_state state, int *ret_theirs) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    one->control =
        loop_watch_new(one->pool->loop, fds[0], LOOP_READ, LOOP_PRIO_BULK, on_readable, one);
    one->fd = fds[0];
    one->state = state;
    one->due_ns = clock_now_ns() + one->pool->config.import_ns;
    *ret_theirs = fds[1];
    return 0;
}

/* ---- starting ---- */

static struct child_spec through_gate(const struct warm_pool *p, enum warm_role role,
                                      int control_fd, const struct child_spec *spec,
                                      struct envlist *env) {
    struct warm_gate gate = {.role = role,
                             .agent = getpid(),
                             .zip_fd = p->zip_fd,
                             .control_fd = control_fd,
                             .record_fd = p->record_fd,
                             .skip = p->config.skip};
    envlist_copy(env, spec->envp);
    warm_gate_env(&gate, env);
    struct child_spec ret = *spec;
    ret.envp = envlist_items(env);
    ret.keep_fds[0] = p->zip_fd;
    return ret;
}

/* out_fd, err_fd: for its standard output and standard error until the go. */
static int spawn(struct warm_one *one, const struct child_spec *spec, int control, int out_fd,
                 int err_fd, struct err *err) {
    struct warm_pool *p = one->pool;
    bool template = one->index == TEMPLATE_INDEX;
    bool reaching = one->state == WARM_STATE_REACHING;
    enum warm_role role = reaching ? WARM_REACH : template ? WARM_TEMPLATE : WARM_STANDBY;
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct child_spec s = through_gate(p, role, control, spec, &env);
    s.stdout_fd = out_fd;
    s.stderr_fd = err_fd;
    s.keep_fds[1] = control;
    s.keep_fds[2] = p->record_fd;
    char unbuffered[] = "-u", command[] = "-c", nothing[] = "";
    char *harmless[] = {spec->argv[0], unbuffered, command, nothing, NULL};
    if (reaching)
        s.argv = harmless;
    if (template) { /* its forks are bound one by one */
        s.cpuset = NULL;
        s.memory = CHILD_MEMORY_DEFAULT;
    }
    struct child child = CHILD_INIT;
    int r = child_spawn(&s, &child, err);
    if (r == 0)
        one->watch = child_watch_new(p->config.reaper, &child, NULL, on_ended, one);
    return r;
}

static int start(struct warm_one *one, enum warm_state state, const struct child_spec *spec,
                 struct err *err) {
    _cleanup_(file_close) int control = -1;
    _cleanup_(file_close) int out_fd = file_in_memory("muster-warm-stdout", "", 0);
    _cleanup_(file_close) int err_fd = file_in_memory("muster-warm-stderr", "", 0);
    int r = MIN2(out_fd, err_fd);
    if (r >= 0)
        r = connect_to(one, state, &control);
    one->spec = child_spec_copy(spec);
    if (r == 0)
        r = spawn(one, spec, control, out_fd, err_fd, err);
    return r;
}

/* The gate is reached with this spec: now one that has a script is started. */
static void begin_reached(struct warm_one *one) {
    struct child_spec *spec = TAKE_PTR(one->spec);
    struct err err = {0};
    drop(one);
    int r = start(one, WARM_STATE_WARMING, spec, &err);
    child_spec_free(spec);
    if (r < 0)
        has_failed(one, err.text[0] != '\0' ? err.text : strerror(-r), true);
}

static int send_with(int to, const struct strbuf *text, const int *fds, size_t n_fds) {
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } room = {0};
    struct iovec part = {.iov_base = text->data, .iov_len = text->len};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = room.bytes,
                       .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    return sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int send_go(const struct warm_one *one, const struct child_spec *spec,
                   const struct strbuf *text) {
    int in = spec->stdin_fd >= 0 ? spec->stdin_fd : STDIN_FILENO;
    return send_with(one->fd, text, (int[]){in, spec->stdout_fd, spec->stderr_fd}, 3);
}

static void write_fork(const struct child_spec *spec, uint32_t rank, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", "fork");
    json_write_u64(&w, "local_rank", rank);
    if (spec->memory != CHILD_MEMORY_DEFAULT) {
        const uint8_t *bytes = spec->memory_nodes;
        _cleanup_(strbuf_fini) struct strbuf nodes = {0};
        strbuf_add(&nodes, "0");
        for (size_t i = spec->memory_nodes_bytes; i-- > 0;) /* little-endian words */
            if (nodes.len > 1 || bytes[i] != 0)
                strbuf_printf(&nodes, "%02x", bytes[i]);
        json_write_string(&w, "memory", spec->memory == CHILD_MEMORY_BIND ? "bind" : "prefer");
        json_write_string(&w, "nodes", strbuf_text(&nodes));
        json_write_u64(&w, "syscall", SYS_set_mempolicy);
    }
    json_write_object_end(&w);
}

static int fork_one(struct warm_one *one, const struct child_spec *spec, struct err *err) {
    const struct warm_one *template = &one->pool->template;
    _cleanup_(file_close) int control = -1;
    int r = connect_to(one, WARM_STATE_WARMING, &control);
    struct child_spec s = *spec;
    s.envp = template->spec->envp;
    one->spec = child_spec_copy(&s);
    one->forked = true;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    write_fork(spec, one->index, &text);
    if (r == 0)
        r = send_with(template->fd, &text, &control, 1);
    return r < 0 ? err_set(err, r, "cannot ask the process that forks: %s", strerror(-r)) : 0;
}

static void drop_all(struct warm_pool *p) {
    drop(&p->template);
    for (uint32_t i = 0; i < p->config.n; i++) {
        drop(&p->ranks[i]);
        drop(&p->old[i]);
    }
}

static bool is_old(const struct warm_one *one) {
    return one->index < one->pool->config.n && one == &one->pool->old[one->index];
}

static void set_why(struct warm_pool *p, const char *why) {
    (void)snprintf(p->why, sizeof p->why, "%s", why);
}

static void end(struct warm_pool *p, const char *why) {
    set_why(p, why);
    p->imports = IMPORTS_UNUSED;
    drop_all(p);
    log_info("workers start cold from now on: %s", why);
}

static void don_t_fork(struct warm_pool *p, const char *reason) {
    log_info("processes for the next start are not forked: %s", reason);
    p->form = JOB_WARM_PROCESS;
    p->failures = 0;
    drop(&p->template);
}

static void has_failed(struct warm_one *one, const char *why, bool counts) {
    struct warm_pool *p = one->pool;
    bool forked = one->forked, old = is_old(one);
    char text[WARM_REASON_MAX];
    (void)snprintf(text, sizeof text, "%s", why);
    drop(one);
    if (old) {
        loop_timer_set(p->report_timer, clock_now_ns());
        return;
    }
    set_why(p, text);
    p->failures += counts;
    if (p->failures >= WARM_FAILURES_MAX && (forked || p->form == JOB_WARM_FORK))
        don_t_fork(p, text);
    else if (p->failures >= WARM_FAILURES_MAX)
        end(p, text);
    p->lost += p->made && p->lost < LOST_MAX; /* all at once: once */
    p->made = false;
    if (p->imports != IMPORTS_UNUSED)
        p->check_ns = clock_now_ns() + (p->config.after_ns << p->lost);
    set_timer(p);
}

/* ---- warming ---- */

/* Whether the template of rank 0 can stand for all; else why not. */
static bool can_fork(const struct warm_pool *p, char reason[WARM_REASON_MAX]) {
    const struct child_spec *first = p->specs[0];
    for (uint32_t i = 0; i < p->config.n; i++) {
        const struct child_spec *s = p->specs[i];
        struct child_spec unbound[2] = {*first, *s};
        for (unsigned k = 0; k < 2; k++) {
            unbound[k].cpuset = unbound[k].memory_nodes = NULL;
            unbound[k].memory = CHILD_MEMORY_DEFAULT;
        }
        if (!child_spec_alike(&unbound[0], &unbound[1])) {
            (void)snprintf(reason, WARM_REASON_MAX, "workers have different arguments");
            return false;
        }
        if (s->cpuset != NULL && env_get(s->envp, "OMP_NUM_THREADS") == NULL) {
            (void)snprintf(reason, WARM_REASON_MAX,
                           "workers are bound to CPUs, which imports count, and OMP_NUM_THREADS is "
                           "not set");
            return false;
        }
        if (!warm_may_go(first->envp, s->envp, reason))
            return false;
    }
    return true;
}

/* How much is recorded; 0: nothing. */
static size_t recorded_bytes(const struct warm_pool *p) {
    struct stat st;
    return fstat(p->record_fd, &st) < 0 ? 0 : MIN2((size_t)st.st_size, WARM_RECORD_MAX);
}

/* Descriptors are for workers first: what waits has some, and as many again are open for a moment
 * while it becomes a worker. */
static int check_descriptors(const struct warm_pool *p, struct err *err) {
    _cleanup_(file_close) int fd = fcntl(p->zip_fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 && (size_t)fd < file_limit() / 2
               ? 0
               : err_set(err, -EMFILE,
                         "half of the open files that this process may have are in use: raise "
                         "the limit with ulimit -n");
}

/* A Python that passes by the gate would run the script: so one without a script is tried first,
 * each time, as the interpreter can be another one under its name. */
static void begin(struct warm_one *one) {
    struct warm_pool *p = one->pool;
    bool template = one == &p->template, forks = !template && p->form == JOB_WARM_FORK;
    const struct child_spec *spec = p->specs[template ? 0 : one->index];
    struct err err = {0};
    char reason[WARM_REASON_MAX];
    int r = check_descriptors(p, &err);
    if (template || (!forks && one->index == 0))
        p->record_bytes = recorded_bytes(p);
    p->complete_logged = false;
    if (r == 0 && template && !can_fork(p, reason)) {
        don_t_fork(p, reason);
        p->check_ns = clock_now_ns();
        return;
    }
    if (r == 0)
        r = forks ? fork_one(one, spec, &err) : start(one, WARM_STATE_REACHING, spec, &err);
    if (r < 0)
        has_failed(one, err.text[0] != '\0' ? err.text : strerror(-r), true);
}

static void check_later(struct warm_pool *p) {
    if (p->n_later < LATER_CHECKS_MAX)
        p->check_ns = clock_now_ns() + (p->config.after_ns << p->n_later++);
}

static bool read_record(struct warm_pool *p) {
    char reason[WARM_REASON_MAX], name[128];
    if (p->imports != IMPORTS_RECORDING)
        return p->imports == IMPORTS_KNOWN;
    size_t n = recorded_bytes(p);
    if ((n == 0 || n != p->record_bytes) && p->n_checks++ < CHECKS_MAX) {
        p->record_bytes = n; /* it still imports */
        p->check_ns = clock_now_ns() + p->config.after_ns / 2 + NS_PER_MS;
        return false;
    }
    _cleanup_(freep) char *text = xcalloc(1, n + 1);
    ssize_t got = pread(p->record_fd, text, n, 0);
    if (!warm_record_ok(text, got > 0 ? (size_t)got : 0, reason)) {
        if (strcmp(p->why, reason) != 0)
            log_info("workers can't be warm: %s", reason);
        set_why(p, reason);
        check_later(p);
        return false;
    }
    p->imports = IMPORTS_KNOWN;
    warm_record_stop(text, (size_t)got, name, sizeof name);
    if (name[0] != '\0')
        log_info("the script sets %s: what it imports afterwards is not imported ahead", name);
    return true;
}

/* A standby serves until the one that replaces it waits. */
static void replace_all(struct warm_pool *p) {
    struct warm_one *ranks = p->ranks;
    p->ranks = p->old;
    p->old = ranks;
    drop(&p->template);
    p->check_ns = clock_now_ns();
}

/* What the script imports later belongs to the next start, too. */
static void all_wait(struct warm_pool *p) {
    if (!p->complete_logged) {
        log_info("%u processes wait for the next start", p->config.n);
        p->complete_logged = true;
    } else if (recorded_bytes(p) > p->record_bytes) {
        log_info("the script imported more modules; re-creating the standbys");
        replace_all(p);
        return;
    }
    check_later(p);
}

/* One after another: nothing is begun while something is made. */
static void go_on(struct warm_pool *p) {
    struct warm_one *missing = NULL;
    if (!read_record(p))
        return;
    for (uint32_t i = p->config.n; i-- > 0;) {
        if (p->specs[i] == NULL || is_made(&p->ranks[i]))
            return;
        missing = p->ranks[i].state == WARM_STATE_NONE ? &p->ranks[i] : missing;
    }
    if (missing == NULL)
        all_wait(p);
    else if (p->form == JOB_WARM_PROCESS || p->template.state == WARM_STATE_WAITS)
        begin(missing);
    else if (!is_made(&p->template))
        begin(&p->template);
}

static void is_ready(struct warm_one *one, const struct warm_message *message) {
    struct warm_pool *p = one->pool;
    char reason[WARM_REASON_MAX];
    bool template = one == &p->template;
    if (warm_refuses(template ? WARM_TEMPLATE : WARM_STANDBY, message, reason)) {
        if (message->devices[0] != '\0' || message->moved[0] != '\0')
            end(p, reason);
        else
            don_t_fork(p, reason);
    } else if (!one->forked) {
        log_info("%s for the next start has imported %u modules in %.1f s (%u failed)",
                 template ? "a process that forks" : "a process", message->modules,
                 message->seconds, message->failed);
    }
    if (!template && one->state == WARM_STATE_WAITS)
        drop(&p->old[one->index]);
    if (p->imports != IMPORTS_UNUSED)
        p->why[0] = '\0';
    p->failures = 0;
    p->made = true;
    go_on(p);
    set_timer(p);
}

/* ---- time ---- */

static void each_due(struct warm_one *one, uint64_t now_ns, uint64_t *next_ns) {
    if (!is_made(one))
        return;
    if (now_ns < one->due_ns) {
        *next_ns = MIN2(*next_ns, one->due_ns);
        return;
    }
    char why[WARM_REASON_MAX];
    (void)snprintf(why, sizeof why, "importing has taken more than %g s",
                   (double)one->pool->config.import_ns / (double)NS_PER_S);
    has_failed(one, why, true);
}

static void set_timer(struct warm_pool *p) {
    uint64_t next_ns = p->imports == IMPORTS_UNUSED ? TIME_NEVER : p->check_ns;
    if (is_made(&p->template))
        next_ns = MIN2(next_ns, p->template.due_ns);
    for (uint32_t i = 0; i < p->config.n; i++)
        if (is_made(&p->ranks[i]))
            next_ns = MIN2(next_ns, p->ranks[i].due_ns);
    loop_timer_set(p->timer, next_ns);
    loop_timer_set(p->report_timer, clock_now_ns());
}

static void on_timer(void *arg) {
    struct warm_pool *p = arg;
    uint64_t now_ns = clock_now_ns(), next_ns = TIME_NEVER;
    each_due(&p->template, now_ns, &next_ns);
    for (uint32_t i = 0; i < p->config.n; i++)
        each_due(&p->ranks[i], now_ns, &next_ns);
    if (now_ns >= p->check_ns) {
        p->check_ns = TIME_NEVER;
        go_on(p);
    }
    set_timer(p);
}

/* ---- a start ---- */

static uint32_t own_umask(void) {
    mode_t mask = umask(0);
    (void)umask(mask);
    return mask;
}

static void note_start(struct warm_pool *p, uint32_t index, const struct child_spec *spec) {
    if (index == 0) {
        p->n_warm = p->n_started = 0;
        p->reason[0] = '\0';
        p->early_counted = false;
        p->n_later = p->lost = 0;
    }
    child_spec_free(p->specs[index]);
    p->specs[index] = child_spec_copy(spec);
    p->check_ns = clock_now_ns() + p->config.after_ns;
    set_timer(p);
}

static void report(struct warm_pool *p, const char *cold_because) {
    if (cold_because == NULL)
        p->n_warm++;
    else if (p->reason[0] == '\0')
        (void)snprintf(p->reason, sizeof p->reason, "%s", cold_because);
    if (++p->n_started < p->config.n)
        return;
    loop_timer_set(p->report_timer, clock_now_ns());
    if (p->reason[0] == '\0')
        log_info("all %u workers start warm", p->config.n);
    else
        log_line(p->again ? LOG_LEVEL_NOTICE : LOG_LEVEL_INFO,
                 "%u of %u workers start warm; cold because %s", p->n_warm, p->config.n, p->reason);
    p->again = true;
}

static bool write_go(const struct warm_one *one, const struct child_spec *spec, struct strbuf *out,
                     char reason[WARM_REASON_MAX]) {
    const char *marker = env_get(spec->envp, "MUSTER_WORKER_ID");
    _cleanup_(freep) char *here = getcwd(NULL, 0);
    struct warm_to to = {.envp = spec->envp,
                         .marker = marker != NULL ? marker : "",
                         .cwd = here,
                         .umask = own_umask()};
    return warm_go(one->spec->envp, &to, out, reason);
}

/* NULL: it has got the go. */
static const char *try_one(struct warm_one *one, const struct child_spec *spec,
                           char reason[WARM_REASON_MAX]) {
    const struct warm_pool *p = one->pool;
    if (p->imports == IMPORTS_UNUSED || (one->state == WARM_STATE_NONE && p->why[0] != '\0'))
        return p->why;
    if (one->state == WARM_STATE_NONE)
        return p->imports == IMPORTS_KNOWN ? "no process waits for it yet"
                                           : "its imports are not known yet";
    if (is_made(one))
        return "its process still imports";
    if (!child_spec_alike(one->spec, spec))
        return "arguments, CPUs or limits have changed";
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (!write_go(one, spec, &text, reason))
        return reason;
    return send_go(one, spec, &text) < 0 ? "its process has ended" : NULL;
}

bool warm_pool_take(struct warm_pool *p, uint32_t index, const struct child_spec *spec,
                    struct warm_taken *ret) {
    struct warm_one *one = &p->ranks[index], *old = &p->old[index];
    char reason[WARM_REASON_MAX];
    note_start(p, index, spec);
    if (one->state != WARM_STATE_WAITS && old->state == WARM_STATE_WAITS)
        one = old; /* which serves until the new one waits */
    else
        drop(old);
    const char *cold_because = try_one(one, spec, reason);
    report(p, cold_because);
    if (cold_because != NULL) {
        if (one->state == WARM_STATE_WAITS)
            drop(one); /* it stands for something else */
        return false;
    }
    p->n_unanswered++;
    *ret = (struct warm_taken){.watch = TAKE_PTR(one->watch), .control_fd = one->fd};
    loop_watch_free(TAKE_PTR(one->control));
    one->fd = -1;
    drop(one);
    return true;
}

const struct child_spec *warm_pool_record(struct warm_pool *p, uint32_t index,
                                          const struct child_spec *spec,
                                          struct child_spec **ret_copy) {
    *ret_copy = NULL;
    bool records = p->imports == IMPORTS_UNKNOWN || p->imports == IMPORTS_RECORDING;
    if (index != 0 || !records || ftruncate(p->record_fd, 0) < 0)
        return spec;
    p->record_bytes = 0;
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct child_spec with_gate = through_gate(p, WARM_RECORD, -1, spec, &env);
    p->imports = IMPORTS_RECORDING;
    p->n_checks = 0;
    return *ret_copy = child_spec_copy(&with_gate);
}

void warm_pool_refused(struct warm_pool *p, uint32_t index, const char *reason) {
    log_info("local rank %u starts cold after all: %s", index, reason);
    p->n_warm -= p->n_warm > 0;
    if (p->reason[0] == '\0')
        (void)snprintf(p->reason, sizeof p->reason, "%s", reason);
    set_why(p, reason);
    drop_all(p);
    loop_timer_set(p->report_timer, clock_now_ns());
}

void warm_pool_answered(struct warm_pool *p) {
    p->n_unanswered--;
    loop_timer_set(p->report_timer, clock_now_ns());
}

uint32_t warm_pool_ended(const struct warm_pool *p) { return p->n_ended; }

void warm_pool_failed(struct warm_pool *p, uint64_t ran_ns) {
    if (p->early_counted)
        return;
    p->early_counted = true;
    p->early = ran_ns < WARM_EARLY_NS ? p->early + 1 : 0;
    if (p->early >= WARM_EARLY_MAX && p->imports != IMPORTS_UNUSED)
        end(p, "two warm starts in a row have failed within 10 s");
    set_timer(p);
}

/* ---- facts ---- */

void warm_pool_facts(const struct warm_pool *p, struct rdzv_warm *ret) {
    *ret = (struct rdzv_warm){.warm = p->n_warm, .cold = p->n_started - p->n_warm};
    for (uint32_t i = 0; i < p->config.n; i++)
        ret->waiting +=
            p->ranks[i].state == WARM_STATE_WAITS || p->old[i].state == WARM_STATE_WAITS;
    (void)snprintf(ret->reason, sizeof ret->reason, "%.*s", RDZV_WARM_REASON_MAX - 1,
                   ret->cold > 0       ? p->reason
                   : ret->waiting == 0 ? p->why
                                       : "");
}

static void on_report_timer(void *arg) {
    struct warm_pool *p = arg;
    bool starts = p->n_started % p->config.n != 0 || p->n_unanswered > 0;
    if (!starts && p->config.on_facts != NULL)
        p->config.on_facts(p->config.arg);
}

/* ---- the pool ---- */

int warm_pool_new(struct loop *loop, const struct warm_pool_config *config,
                  struct warm_pool **ret) {
    struct warm_pool *p = xcalloc(1, sizeof *p);
    p->loop = loop;
    p->config = *config;
    p->form = config->form;
    p->imports = IMPORTS_UNKNOWN;
    if (p->config.import_ns == 0)
        p->config.import_ns = WARM_IMPORT_NS;
    p->check_ns = TIME_NEVER;
    p->ranks = xcalloc(config->n, sizeof *p->ranks);
    p->old = xcalloc(config->n, sizeof *p->old);
    p->specs = xcalloc(config->n, sizeof *p->specs);
    p->template = (struct warm_one){.pool = p, .index = TEMPLATE_INDEX, .fd = -1};
    for (uint32_t i = 0; i < config->n; i++)
        p->ranks[i] = p->old[i] = (struct warm_one){.pool = p, .index = i, .fd = -1};
    if (config->never != NULL) {
        p->imports = IMPORTS_UNUSED;
        set_why(p, config->never);
    }
    p->zip_fd = file_in_memory("muster-gate", (const char *)warm_gate_zip.bytes, warm_gate_zip.n);
    p->record_fd = file_in_memory("muster-record", "", 0);
    int r = MIN2(MIN2(p->zip_fd, p->record_fd), 0);
    p->timer = loop_timer_new(loop, on_timer, p);
    p->report_timer = loop_timer_new(loop, on_report_timer, p);
    if (r < 0)
        warm_pool_free(p);
    else
        *ret = p;
    return r;
}

void warm_pool_free(struct warm_pool *p) {
    if (p == NULL)
        return;
    drop_all(p);
    loop_timer_free(p->timer);
    loop_timer_free(p->report_timer);
    for (uint32_t i = 0; i < p->config.n; i++)
        child_spec_free(p->specs[i]);
    file_close(&p->zip_fd);
    file_close(&p->record_fd);
    free(p->ranks);
    free(p->old);
    free(p->specs);
    free(p);
}
