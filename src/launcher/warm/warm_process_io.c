#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/json/json.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "launcher/warm/warm_priv.h"

int warm_memfd(const char *name, const struct strbuf *text) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = text != NULL ? write(fd, text->data, text->len) : 0;
    if (n >= 0 && (text == NULL || (size_t)n == text->len))
        return fd;
    int r = n < 0 ? -errno : -EIO;
    (void)close(fd);
    return r;
}

void warm_drop(struct warm_one *one) {
    if (one->watch != NULL && child_watch_alive(one->watch)) {
        (void)!child_watch_kill(one->watch, SIGKILL);
        child_watch_let_go(one->watch);
    } else {
        child_watch_free(one->watch);
    }
    loop_watch_free(one->heard);
    file_close(&one->fd);
    child_spec_free(one->spec);
    *one = (struct warm_one){.pool = one->pool, .index = one->index, .fd = -1};
}

/* ---- what it says ---- */

static void has_ended(struct warm_one *one) {
    one->pool->n_ended++;
    warm_one_failed(one,
                    one->reaching ? "its Python did not load muster's sitecustomize"
                                  : "a process for the next start has ended",
                    one->state == WARM_STATE_WARMING);
}

static void on_ended(void *arg, const struct child_status *status) {
    (void)status;
    has_ended(arg);
}

/* A process that the template has forked twice: it says so once it is this process's child. */
static int adopt(struct warm_one *one, uint32_t pid) {
    struct proc_stat st;
    struct child child = {.pid = (pid_t)pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    if (!proc_read_stat(child.pid, &st) || st.parent != getpid() ||
        child_reaper_knows(one->pool->config.reaper, child.pid)) {
        child_fini(&child);
        return -ESRCH;
    }
    const struct child_spec *spec = one->spec;
    int r = 0;
    if (spec->cpuset != NULL && sched_setaffinity(child.pid, spec->cpuset_bytes, spec->cpuset) < 0)
        r = -errno;
    if (r == 0)
        r = child_watch_new(one->pool->config.reaper, &child, NULL, on_ended, one, &one->watch);
    if (r < 0)
        child_fini(&child);
    return r;
}

static void begin_reached(struct warm_one *one);

static void take_message(struct warm_one *one, const char *text, size_t n) {
    struct warm_heard heard;
    struct err err = {0};
    int r = warm_read(text, n, &heard, &err);
    if (r < 0 || heard.kind == WARM_GOING || one->state != WARM_STATE_WARMING) {
        warm_one_failed(one,
                        r < 0 ? err.text
                              : "a process for the next start has sent a message that does not fit",
                        true);
        return;
    }
    if (heard.kind == WARM_COLD) {
        warm_one_failed(one, heard.reason, true);
        return;
    }
    if (one->forked && one->watch == NULL && (r = adopt(one, heard.pid)) < 0) {
        warm_one_failed(one, "a forked process has been lost", true);
        return;
    }
    if (one->reaching) {
        begin_reached(one);
        return;
    }
    one->state = WARM_STATE_WAITS;
    warm_one_is_ready(one, &heard);
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct warm_one *one = arg;
    char text[8192];
    (void)events;
    ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        take_message(one, text, (size_t)n);
    else
        has_ended(one);
}

/* Makes the pair of sockets; the other end is the caller's. */
static int connect_to(struct warm_one *one, int *ret_theirs) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    int r = loop_watch_new(one->pool->loop, fds[0], LOOP_READ, LOOP_PRIO_BULK, on_readable, one,
                           &one->heard);
    if (r < 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return r;
    }
    one->fd = fds[0];
    one->state = WARM_STATE_WARMING;
    one->due_ns = clock_now_ns() + one->pool->config.import_ns;
    *ret_theirs = fds[1];
    return 0;
}

/* ---- starting ---- */

struct child_spec warm_through_gate(const struct warm_pool *p, enum warm_role role, int control_fd,
                                    const struct child_spec *spec, struct envlist *env) {
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

/* output: for its standard output and standard error until the go. */
static int spawn(struct warm_one *one, const struct child_spec *spec, int control,
                 const int output[2], struct err *err) {
    struct warm_pool *p = one->pool;
    bool template = one->index == WARM_TEMPLATE_INDEX;
    enum warm_role role = one->reaching ? WARM_REACH : template ? WARM_TEMPLATE : WARM_STANDBY;
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct child_spec s = warm_through_gate(p, role, control, spec, &env);
    s.stdout_fd = output[0];
    s.stderr_fd = output[1];
    s.cgroup_fd = s.report_fd = -1;
    s.keep_fds[1] = control;
    s.keep_fds[2] = p->record_fd;
    char unbuffered[] = "-u", command[] = "-c", nothing[] = "";
    char *harmless[] = {spec->argv[0], unbuffered, command, nothing, NULL};
    if (one->reaching)
        s.argv = harmless;
    if (template) { /* its forks are bound one by one */
        s.cpuset = NULL;
        s.memory = CHILD_MEMORY_DEFAULT;
    }
    struct child child = CHILD_INIT;
    int r = child_spawn(&s, &child, err);
    if (r == 0)
        r = child_watch_new(p->config.reaper, &child, NULL, on_ended, one, &one->watch);
    if (r < 0 && child.pid > 0) {
        (void)!child_kill(&child, SIGKILL);
        child_fini(&child);
    }
    return r;
}

static int start(struct warm_one *one, const struct child_spec *spec, struct err *err) {
    int control = -1;
    int output[2] = {warm_memfd("muster-warm-stdout", NULL),
                     warm_memfd("muster-warm-stderr", NULL)};
    int r = MIN2(output[0], output[1]);
    if (r >= 0)
        r = connect_to(one, &control);
    one->spec = child_spec_copy(spec);
    if (r == 0)
        r = spawn(one, spec, control, output, err);
    file_close(&control);
    for (unsigned i = 0; i < 2; i++)
        if (output[i] >= 0)
            (void)close(output[i]);
    return r;
}

/* A Python that passes by the gate would run the script. What the interpreter is can differ from
 * rank to rank, and from one start to the next: a wrapper, or another one under its name. */
int warm_start(struct warm_one *one, const struct child_spec *spec, struct err *err) {
    one->reaching = true;
    return start(one, spec, err);
}

/* The gate is reached with this spec: now one that has a script is started. */
static void begin_reached(struct warm_one *one) {
    struct child_spec *spec = TAKE_PTR(one->spec);
    struct err err = {0};
    warm_drop(one);
    int r = start(one, spec, &err);
    child_spec_free(spec);
    if (r < 0)
        warm_one_failed(one, err.text[0] != '\0' ? err.text : strerror(-r), true);
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

int warm_send_go(const struct warm_one *one, const struct child_spec *spec,
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

int warm_fork(struct warm_one *one, const struct child_spec *spec, struct err *err) {
    const struct warm_one *template = &one->pool->template;
    int control = -1;
    int r = connect_to(one, &control);
    struct child_spec s = *spec;
    s.envp = template->spec->envp;
    one->spec = child_spec_copy(&s);
    one->forked = true;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    write_fork(spec, one->index, &text);
    if (r == 0)
        r = send_with(template->fd, &text, &control, 1);
    file_close(&control);
    return r < 0 ? err_set(err, r, "cannot ask the process that forks: %s", strerror(-r)) : 0;
}
