#include "launcher/ssh/ssh_node_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "io/net/resolver.h"
#include "io/net/stream.h"
#include "io/process/child.h"
#include "io/process/proc.h"
#include "io/process/reaper.h"
#include "launcher/place/place.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/starter/starter_link_io.h"
#include "launcher/supervise/sweep_io.h"
#include "rendezvous/protocol/endpoint_io.h"

#define ADDRS_MAX 8
#define ENDS 4 /* signals that end the job here */
#define SWEEP_EVERY_NS (10 * NS_PER_MS)
#define SWEEP_PATIENCE_NS (2 * NS_PER_S)
/* The agent's output is sent only while less than this is queued. */
#define QUEUE_ROOM ((size_t)128 * 1024)
/* Nothing is queued beyond this: short messages, which nothing delays, still find room. */
#define QUEUE_MAX ((size_t)512 * 1024)

/*     WAITING -> RUNNING -> ENDING -> SWEEPING -> DRAINING -> OVER
 *                     `---------`-------------------^
 *     A state may be left for any later one. WAITING -> FAILED */
enum relay_state {
    RELAY_WAITING = 1, /* for BOOT */
    RELAY_RUNNING,     /* the agent was started */
    RELAY_ENDING,      /* the job here was ordered to end */
    RELAY_SWEEPING,    /* the agent was killed: kills what it has left */
    RELAY_DRAINING,    /* the agent has ended: its output is open */
    RELAY_OVER,        /* EXIT is queued */
    RELAY_FAILED,      /* FAIL is queued: no agent was started */
};

struct relay;

struct output {
    struct relay *relay;
    enum starter_kind kind; /* OUT or ERR */
    int fd;
    struct loop_watch *watch; /* NULL: it has ended */
};

struct relay {
    const struct ssh_node_config *config;
    enum relay_state state;
    char host[STARTER_HOST_MAX];
    struct loop *loop;
    struct child_reaper *reaper;
    struct { /* messages to and from the head: pipes or sockets, as sshd gives them */
        struct loop_watch *in; /* NULL: nothing more comes */
        struct stream *out;    /* only written; NULL: nothing more goes */
        bool is_full;          /* the agent's output waits for room */
        size_t in_len;
        uint8_t in_bytes[STARTER_DATA_FRAME_MAX];
    } head;
    bool head_gone;      /* nothing more comes from it; output that finds no room is dropped */
    struct stream *link; /* to the agent, whose head this is; NULL: not started, or closed */
    bool leads;          /* the agent has sent LEAD on it */
    uint32_t expected;   /* how many nodes the head expects; 0: unknown */
    int listen_fd;       /* for the agent, where the nodes meet; -1: elsewhere */
    struct loop_signal *signals[ENDS];
    struct loop_timer *silence;   /* until the head counts as gone */
    struct loop_timer *end_timer; /* until the agent is killed, and then the relay ends */
    struct loop_timer *sweep;     /* SWEEPING: the next pass */
    struct strbuf boot;           /* its parts */
    struct child_watch *agent;    /* its guardian; NULL: not started, or ended */
    struct output outputs[2];
    uint64_t grace_ns;
    uint64_t sweep_until_ns;
    struct child_status status; /* of the agent, from SWEEPING on */
    int exit_code;
};

static void advance(struct relay *r);
static void on_head_closed(struct relay *r, const char *error);

static void move(struct relay *r, enum relay_state to) {
    assert(to > r->state);
    r->state = to;
}

/* ---- messages to the head ---- */

static size_t unsent(const struct relay *r) {
    return r->head.out != NULL ? stream_unsent(r->head.out) : 0;
}

static bool has_room(const struct relay *r) { return r->head_gone || unsent(r) < QUEUE_ROOM; }

/* Reads the agent's output again once there is room. */
static void resume_outputs(struct relay *r) {
    if (!r->head.is_full || !has_room(r))
        return;
    r->head.is_full = false;
    for (size_t i = 0; i < ARRAY_SIZE(r->outputs); i++)
        if (r->outputs[i].watch != NULL)
            loop_watch_set(r->outputs[i].watch, LOOP_READ);
}

static void on_sent(void *arg, struct stream *s) {
    resume_outputs(arg);
    advance(arg);
}

static void on_out_closed(void *arg, struct stream *s, int code) {
    struct relay *r = arg;
    stream_free(TAKE_PTR(r->head.out));
    on_head_closed(r, strerror(-code));
    on_sent(r, NULL);
}

static const struct stream_ops out_ops = {.on_drained = on_sent, .on_closed = on_out_closed};

/* A message is dropped if the head has gone, or too much waits for it. */
static void send_head(struct relay *r, const struct starter_message *m) {
    if (r->head.out == NULL || unsent(r) + STARTER_DATA_FRAME_MAX > QUEUE_MAX) {
        log_debug("a message to the launcher process was dropped");
        return;
    }
    starter_send(r->head.out, m);
    r->head.is_full = r->head.is_full || !has_room(r);
}

/* This node's addresses, first the one that ssh has reached. Returns their number. */
static size_t addresses(const struct relay *r, struct addr ret[ADDRS_MAX]) {
    char server[ADDR_TEXT_MAX];
    const char *connection = env_get(r->config->envp, "SSH_CONNECTION");
    size_t n = 0, more = 0;
    /* "client port server port". ssh(1), ENVIRONMENT */
    if (connection != NULL && sscanf(connection, "%*s %*s %95s", server) == 1)
        n = addr_from_literal(server, 0, ret) == 0;
    return addr_all_global(ret + n, ADDRS_MAX - n, &more) < 0 ? n : n + more;
}

static void send_hello(struct relay *r) {
    struct addr own[ADDRS_MAX];
    struct starter_message m = {.kind = STARTER_HELLO};
    addr_to_list(own, addresses(r, own), m.hello.addrs, sizeof m.hello.addrs);
    m.hello.pid = (uint32_t)getpid();
    (void)snprintf(m.hello.version, sizeof m.hello.version, "%s", r->config->version);
    (void)snprintf(m.hello.host, sizeof m.hello.host, "%s", r->host);
    if (r->head.out == NULL)
        return;
    stream_write(r->head.out, SSH_BEGIN, strlen(SSH_BEGIN));
    send_head(r, &m);
}

/* FAIL, and the end: nothing was started. */
static void fail(struct relay *r, const char *text) {
    struct starter_message m = {.kind = STARTER_FAIL};
    (void)snprintf(m.fail.text, sizeof m.fail.text, "%s", text);
    send_head(r, &m);
    move(r, RELAY_FAILED);
    r->exit_code = 1;
    loop_timer_set(r->silence, clock_now_ns() + SSH_NODE_FLUSH_NS);
    advance(r);
}

/* ---- the agent: the relay is its head (starter_link_io.h), so it knows nothing of ssh ---- */

static void close_link(struct relay *r) {
    stream_free(TAKE_PTR(r->link));
    r->leads = false;
}

/* False: the agent does not lead, or does not read. */
static bool send_agent(struct relay *r, const struct starter_message *m) {
    const bool can = r->leads && stream_unsent(r->link) < STARTER_FRAME_MAX;
    if (can)
        starter_send(r->link, m);
    return can;
}

/* Nodes that can take part; the agent that leads learns it whenever it begins to lead. */
static void send_expected(struct relay *r) {
    struct starter_message m = {.kind = STARTER_EXPECT};
    m.expect.nodes = r->expected;
    if (r->expected > 0)
        (void)send_agent(r, &m);
}

/* Passes a message on. An agent waits for an answer to its verdict: what is queued here reaches the
 * head before EXIT does, or never, so an answer from there would add nothing, and be late. */
static int on_agent_message(void *arg, const struct starter_message *m, struct err *err) {
    struct relay *r = arg;
    if (r->leads == (m->kind == STARTER_LEAD))
        return err_set(err, -EPROTO, "message '%c' is not expected", (char)m->kind);
    r->leads = true;
    send_head(r, m);
    if (m->kind == STARTER_LEAD)
        send_expected(r);
    else if (m->kind == STARTER_VERDICT)
        (void)send_agent(r, &(struct starter_message){.kind = STARTER_ACK});
    return 0;
}

static void on_link_readable(void *arg, struct stream *s) {
    struct err err = {0};
    if (starter_read(s, STARTER_FROM_AGENT, on_agent_message, arg, &err) == 0)
        return;
    log_warning("closing the connection to the agent: %s", err.text);
    close_link(arg);
}

static void on_link_closed(void *arg, struct stream *s, int code) { close_link(arg); }

static const struct stream_ops link_ops = {.on_readable = on_link_readable,
                                           .on_closed = on_link_closed};

/* *ret_fd: the agent's end, which the caller closes. */
static int open_link(struct relay *r, int *ret_fd) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    r->link = stream_new(r->loop, pair[0], &link_ops, r);
    stream_set_read_limit(r->link, STARTER_FRAME_MAX);
    *ret_fd = pair[1];
    return 0;
}

/* ---- the agent's output ---- */

static void output_end(struct output *o) {
    loop_watch_free(TAKE_PTR(o->watch));
    file_close(&o->fd);
}

static void on_output(void *arg, int fd, unsigned events) {
    struct output *o = arg;
    uint8_t bytes[STARTER_DATA_MAX];
    struct starter_message m = {.kind = o->kind};
    if (!has_room(o->relay)) {
        loop_watch_set(o->watch, 0);
        return;
    }
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0) {
        m.data.bytes = bytes;
        m.data.len = (size_t)n;
        send_head(o->relay, &m); /* dropped only without a reader */
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        output_end(o);
        advance(o->relay);
    }
}

/* ---- the end ---- */

static void signal_agent(struct relay *r, int signo) {
    int code = r->agent != NULL ? child_watch_kill(r->agent, signo) : -ESRCH;
    if (code == 0 && r->state == RELAY_ENDING) /* a stopped guardian passes nothing on */
        code = child_watch_kill(r->agent, SIGCONT);
    if (code < 0)
        log_debug("the agent has ended before it got signal %d", signo);
}

/* The job here ends in order, for the first reason; later ones are only passed on. */
static void end_job(struct relay *r, int signo) {
    if (r->state == RELAY_WAITING) { /* a BOOT that comes now is too late */
        r->status = (struct child_status){.signalled = true, .code = signo};
        move(r, RELAY_DRAINING);
        advance(r);
        return;
    }
    if (r->state == RELAY_RUNNING) {
        loop_timer_set(r->end_timer, clock_now_ns() + r->grace_ns + SSH_NODE_MORE_NS);
        move(r, RELAY_ENDING);
    }
    signal_agent(r, signo);
}

static void kill_job(struct relay *r) {
    if (r->state == RELAY_RUNNING)
        move(r, RELAY_ENDING);
    signal_agent(r, SIGKILL);
}

static void on_end_timer(void *arg) {
    struct relay *r = arg;
    if (r->state <= RELAY_ENDING) {
        log_warning("the agent did not end in time: killing it");
        kill_job(r);
        return;
    }
    /* Another process holds its output open. Output that waits for the head is still wanted. */
    if (!has_room(r)) {
        loop_timer_set(r->end_timer, clock_now_ns() + SSH_NODE_DRAIN_NS);
        return;
    }
    output_end(&r->outputs[0]);
    output_end(&r->outputs[1]);
    advance(r);
}

/* Kills what is below a child of the relay, and then the child. It can be the agent, whose guardian
 * was killed: it lives until then, because it ends the rest if the relay is killed now. */
static void sweep_child(void *arg, pid_t pid) {
    struct sweep_result *sum = arg, found;
    sweep_pass_below(pid, NULL, &found);
    sum->alive++;
    if (found.alive == 0)
        (void)kill(pid, SIGKILL); /* our child, which only our reaper takes away */
}

/* Kills what guardian and agent have left; in the second half of the time children first. */
static void on_sweep(void *arg) {
    struct relay *r = arg;
    struct sweep_result found = {0};
    uint64_t now = clock_now_ns();
    if (now < r->sweep_until_ns - SWEEP_PATIENCE_NS / 2)
        proc_each_child(getpid(), true, sweep_child, &found);
    else
        sweep_pass(NULL, &found);
    if (found.alive + found.zombies > 0 && now < r->sweep_until_ns) {
        loop_timer_set(r->sweep, now + SWEEP_EVERY_NS);
        return;
    }
    if (r->state == RELAY_SWEEPING)
        move(r, RELAY_DRAINING);
    advance(r);
}

static void on_agent_exit(void *arg, const struct child_status *status) {
    struct relay *r = arg;
    uint64_t now = clock_now_ns();
    child_watch_free(TAKE_PTR(r->agent));
    r->status = *status;
    /* an agent that has ended by itself has left nothing, or what it was allowed to leave */
    move(r, status->signalled ? RELAY_SWEEPING : RELAY_DRAINING);
    loop_timer_set(r->end_timer, now + SSH_NODE_DRAIN_NS);
    if (status->signalled) {
        r->sweep_until_ns = now + SWEEP_PATIENCE_NS;
        on_sweep(r);
    }
    advance(r);
}

static void send_exit(struct relay *r) {
    struct starter_message m = {.kind = STARTER_EXIT};
    m.exit.code = (uint32_t)r->status.code;
    m.exit.signalled = r->status.signalled;
    r->exit_code = r->status.code + (r->status.signalled ? 128 : 0);
    move(r, RELAY_OVER);
    send_head(r, &m);
    if (r->head_gone)
        loop_timer_set(r->silence, clock_now_ns() + SSH_NODE_FLUSH_NS);
}

/* Does what is due after any event. */
static void advance(struct relay *r) {
    bool open = r->outputs[0].watch != NULL || r->outputs[1].watch != NULL;
    if (r->state == RELAY_DRAINING && !open)
        send_exit(r);
    if (r->state >= RELAY_OVER && unsent(r) == 0)
        loop_quit(r->loop);
}

static void head_gone(struct relay *r, const char *why) {
    if (r->head_gone)
        return;
    r->head_gone = true;
    loop_timer_set(r->silence, TIME_NEVER);
    log_info("%s: ending the job here", why);
    resume_outputs(r);
    if (r->state >= RELAY_OVER)
        loop_timer_set(r->silence, clock_now_ns() + SSH_NODE_FLUSH_NS);
    else
        end_job(r, SIGTERM);
}

static void on_silence(void *arg) {
    struct relay *r = arg;
    if (r->state >= RELAY_OVER)
        loop_quit(r->loop); /* no one reads it */
    else if (r->state == RELAY_WAITING)
        fail(r, "no job came within 30 s of the connection");
    else
        head_gone(r, "the launcher process is silent");
}

/* No message follows from the head, or to it; error: NULL at the end of file. */
static void on_head_closed(struct relay *r, const char *error) {
    loop_watch_free(TAKE_PTR(r->head.in));
    if (r->head_gone)
        return;
    if (error != NULL)
        log_warning("the connection to the launcher process: %s", error);
    if (error != NULL && r->state == RELAY_WAITING)
        fail(r, "the first message is not of muster's protocol; is it the same version on both "
                "hosts?");
    else if (r->state == RELAY_WAITING) /* if the head is there, it reads this */
        fail(r, "nothing came on its standard input: let ssh pass it on (no -n, no "
                "StdinNull, no </dev/null)");
    head_gone(r, "the launcher process has gone");
}

/* The signal that ends this login does not tell which signal the workers should get. */
static void on_signal(void *arg, int signo) { end_job(arg, SIGTERM); }

/* ---- from the head ---- */

static int enter_folder(const struct relay *r, const char *cwd, struct err *err) {
    if (chdir(cwd) == 0)
        return 0;
    return err_set(err, -errno,
                   "the working folder %.300s can't be used on %s: %s; start the job in a folder "
                   "that all hosts have",
                   cwd, r->host, strerror(errno));
}

static void make_env(const struct relay *r, const struct ssh_boot *boot,
                     const struct child_spec *spec, struct envlist *env) {
    static const char *const names[CHILD_KEEP_MAX] = {STARTER_HEAD_ENV, STARTER_LISTENER_ENV,
                                                      STARTER_JOB_ENV};
    envlist_copy(env, envlist_items(&boot->env)); /* these count before the login's own */
    envlist_copy(env, r->config->envp);
    envlist_set(env, "PWD", boot->cwd);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (spec->keep_fds[i] > 0)
            envlist_setf(env, names[i], STARTER_FD_PREFIX "%d", spec->keep_fds[i]);
}

static int watch_output(struct relay *r, size_t i, enum starter_kind kind, int *ret_write) {
    struct output *o = &r->outputs[i];
    o->relay = r;
    o->kind = kind;
    int code = child_pipe(&o->fd, ret_write);
    if (code == 0)
        o->watch = loop_watch_new(r->loop, o->fd, LOOP_READ, LOOP_PRIO_BULK, on_output, o);
    return code;
}

static int spawn(struct relay *r, const struct ssh_boot *boot, struct err *err) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    _cleanup_(freep) char **argv = NULL;
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    char run[] = "run";
    _cleanup_(file_close) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    argv = xcalloc(boot->n_args + 3, sizeof *argv);
    argv[0] = (char *)(uintptr_t)r->config->program;
    argv[1] = run;
    if (boot->n_args > 0)
        memcpy(argv + 2, boot->args, boot->n_args * sizeof *argv);
    int code = open_link(r, &spec.keep_fds[0]);
    spec.keep_fds[1] = MAX2(r->listen_fd, 0);
    if (code == 0 && boot->job != NULL) {
        spec.keep_fds[2] = file_in_memory("muster-job", boot->job, strlen(boot->job));
        code = MIN2(spec.keep_fds[2], 0);
    }
    make_env(r, boot, &spec, &env);
    spec.argv = argv;
    spec.envp = envlist_items(&env);
    spec.stdin_fd = null;
    spec.own_group = true;
    spec.death_signal = SIGTERM;
    if (code == 0)
        code = watch_output(r, 0, STARTER_OUT, &spec.stdout_fd);
    if (code == 0)
        code = watch_output(r, 1, STARTER_ERR, &spec.stderr_fd);
    if (code == 0)
        code = child_spawn(&spec, &child, err);
    if (code == 0)
        r->agent = child_watch_new(r->reaper, &child, NULL, on_agent_exit, r);
    envlist_forget(&env, STARTER_KEY_ENV);
    file_close(&spec.stdout_fd);
    file_close(&spec.stderr_fd);
    r->listen_fd = -1;
    for (size_t i = 0; i < ARRAY_SIZE(spec.keep_fds); i++)
        if (spec.keep_fds[i] > 0)
            file_close(&spec.keep_fds[i]);
    return code;
}

static int start(struct relay *r, const struct ssh_boot *boot, struct err *err) {
    int code = enter_folder(r, boot->cwd, err);
    if (code == 0)
        code = spawn(r, boot, err);
    if (code < 0) {
        output_end(&r->outputs[0]);
        output_end(&r->outputs[1]);
    }
    return code;
}

static int listen_there(struct relay *r, const struct starter_listen *l, uint16_t *ret_port,
                        struct err *err) {
    struct addr at;
    if (l->low > 0)
        listen_set_range(l->low, l->high);
    int code = endpoint_listen(l->addr, 0, &r->listen_fd, err);
    if (code == 0)
        code = addr_of_socket(r->listen_fd, &at);
    if (code == 0)
        *ret_port = addr_port(&at);
    return code;
}

static void on_listen(struct relay *r, const struct starter_listen *l) {
    struct starter_message m = {.kind = STARTER_PORT};
    struct err err = {0};
    if (r->state != RELAY_WAITING || r->listen_fd >= 0)
        return;
    int code = listen_there(r, l, &m.port.port, &err);
    if (code < 0)
        fail(r, err.text[0] != '\0' ? err.text : strerror(-code));
    else
        send_head(r, &m);
}

static void on_boot(struct relay *r, const struct starter_message *m) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {0};
    struct err err = {0};
    if (r->state != RELAY_WAITING)
        return;
    int code = ssh_boot_take(&r->boot, m, &boot, &err);
    if (code == FRAME_E_MORE)
        return;
    r->grace_ns = boot.grace_ns;
    if (code == 0)
        code = start(r, &boot, &err);
    if (code == 0)
        move(r, RELAY_RUNNING);
    strbuf_forget(&r->boot); /* the job's secrets were in it */
    envlist_forget(&boot.env, STARTER_KEY_ENV);
    if (code < 0)
        fail(r, err.text[0] != '\0' ? err.text : strerror(-code));
}

/* A leader stops all nodes in one order; any other agent is told as by a signal. */
static void on_stop(struct relay *r, int signo) {
    struct starter_message m = {.kind = STARTER_STOP};
    m.signal.signo = (uint32_t)signo;
    if (signo == SIGKILL && r->state != RELAY_WAITING)
        kill_job(r);
    else if (r->state != RELAY_RUNNING || !send_agent(r, &m))
        end_job(r, signo);
}

static void on_expect(struct relay *r, uint32_t nodes) {
    r->expected = nodes;
    send_expected(r);
}

/* The agent may have much more of it in its spool, which nobody wants. */
static void drop_output(struct relay *r, size_t i) {
    output_end(&r->outputs[i]);
    advance(r);
}

/* Also of a head that has not read the end yet: it is there as long as it says so. */
static void head_is_there(struct relay *r, bool suspended) {
    uint64_t ns = r->state == RELAY_WAITING ? r->config->boot_ns : r->config->silence_ns;
    if (r->state != RELAY_FAILED)
        loop_timer_set(r->silence, suspended ? TIME_NEVER : clock_now_ns() + ns);
}

static void obey(struct relay *r, const struct starter_message *m) {
    if (m->kind == STARTER_BOOT_PART || m->kind == STARTER_BOOT)
        on_boot(r, m);
    else if (m->kind == STARTER_LISTEN)
        on_listen(r, &m->listen);
    else if (m->kind == STARTER_STOP)
        on_stop(r, (int)m->signal.signo);
    else if (m->kind == STARTER_SIGNAL)
        signal_agent(r, (int)m->signal.signo);
    else if (m->kind == STARTER_EXPECT)
        on_expect(r, m->expect.nodes);
    else if (m->kind == STARTER_DROP_OUT || m->kind == STARTER_DROP_ERR)
        drop_output(r, m->kind == STARTER_DROP_OUT ? 0 : 1);
}

static void on_message(struct relay *r, const struct starter_message *m) {
    if (r->head_gone)
        return;
    if (r->state < RELAY_OVER)
        obey(r, m);
    head_is_there(r, m->kind == STARTER_SUSPENDED);
}

/* ---- messages from the head ---- */

/* Takes all whole messages; a negative errno and a sentence: the head breaks the protocol. */
static int take_messages(struct relay *r, struct err *err) {
    size_t at = 0, size = 0;
    int code = 0;
    while (r->head.in != NULL) {
        struct starter_message m;
        code = starter_take(r->head.in_bytes + at, r->head.in_len - at, STARTER_FROM_STARTER, &m,
                            &size, err);
        if (code != 0)
            break;
        on_message(r, &m);
        at += size;
    }
    r->head.in_len -= at;
    memmove(r->head.in_bytes, r->head.in_bytes + at, r->head.in_len);
    explicit_bzero(r->head.in_bytes + r->head.in_len, at); /* BOOT has the job's secrets */
    return code < 0 ? code : 0;
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct relay *r = arg;
    struct err err = {0};
    ssize_t n =
        read(fd, r->head.in_bytes + r->head.in_len, sizeof r->head.in_bytes - r->head.in_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        on_head_closed(r, n == 0 ? NULL : strerror(errno));
        return;
    }
    r->head.in_len += (size_t)n;
    if (take_messages(r, &err) < 0)
        on_head_closed(r, err.text);
}

/* ---- the whole ---- */

static int set_up(struct relay *r) {
    static const int ends[ENDS] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    static const int of_workers[] = {SIGUSR1, SIGUSR2, SIGURG}; /* batch systems signal all */
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ARRAY_SIZE(of_workers); i++)
        (void)signal(of_workers[i], SIG_IGN);
    int code = prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ? -errno : loop_new(&r->loop);
    if (code < 0) {
        log_error("the relay can't run: %s", strerror(-code));
        return code;
    }
    r->reaper = child_reaper_new(r->loop);
    r->silence = loop_timer_new(r->loop, on_silence, r);
    r->end_timer = loop_timer_new(r->loop, on_end_timer, r);
    r->sweep = loop_timer_new(r->loop, on_sweep, r);
    for (size_t i = 0; i < ENDS; i++)
        r->signals[i] = loop_signal_new(r->loop, ends[i], on_signal, r);
    return 0;
}

/* Not a file, which no loop can watch. */
static bool can_be_head(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd));
}

/* The head's orders come before what workers keep busy. */
static int open_head(struct relay *r) {
    const int in = r->config->in_fd, out = r->config->out_fd;
    if (!can_be_head(in) || !can_be_head(out) ||
        fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK) < 0) {
        log_error("the relay's input and output must be pipes or sockets, as sshd makes them; "
                  "muster run starts it");
        return -EPERM;
    }
    r->head.out = stream_new(r->loop, out, &out_ops, r);
    r->head.in = loop_watch_new(r->loop, in, LOOP_READ, LOOP_PRIO_CHILD, on_readable, r);
    stream_pause(r->head.out);
    return 0;
}

static void tear_down(struct relay *r) {
    for (size_t i = 0; i < ARRAY_SIZE(r->outputs); i++)
        output_end(&r->outputs[i]);
    for (size_t i = 0; i < ARRAY_SIZE(r->signals); i++)
        loop_signal_free(r->signals[i]);
    stream_free(r->link);
    loop_watch_free(r->head.in);
    stream_free(r->head.out);
    child_watch_free(r->agent);
    loop_timer_free(r->silence);
    loop_timer_free(r->end_timer);
    loop_timer_free(r->sweep);
    child_reaper_free(r->reaper);
    loop_free(r->loop);
    strbuf_forget(&r->boot);
    file_close(&r->listen_fd);
}

int ssh_node_run(const struct ssh_node_config *config) {
    struct relay r = {.config = config,
                      .state = RELAY_WAITING,
                      .exit_code = 1,
                      .boot.is_secret = true,
                      .listen_fd = -1};
    for (size_t i = 0; i < ARRAY_SIZE(r.outputs); i++)
        r.outputs[i].fd = -1;
    resolve_own_name(r.host, sizeof r.host);
    int code = set_up(&r);
    if (code == 0)
        code = open_head(&r);
    if (code == 0) {
        loop_timer_set(r.silence, clock_now_ns() + config->boot_ns);
        send_hello(&r);
        code = loop_run(r.loop);
    }
    tear_down(&r);
    return code < 0 ? 1 : r.exit_code;
}
