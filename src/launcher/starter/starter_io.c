#include "launcher/starter/starter_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text/log.h"
#include "base/text/signal_name.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/listen.h"
#include "io/peer/peer_gate.h"
#include "io/process/child.h"
#include "io/process/helper.h"
#include "io/process/proc.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter_link_io.h"
#include "rendezvous/auth/keyring_io.h"
#include "rendezvous/operate/recent_runs_io.h"
#include "rendezvous/operate/registry_io.h"

#define EXIT_CANT 1
#define EXIT_USAGE_ERROR 2
#define TLS_FIRST_BYTE 0x16 /* of a record that has a handshake: RFC 8446 §5.1 */
#define BACKLOG 64
#define ADDRS_MAX 8

struct spawned {
    struct list link;
    struct starter_run *run;
    struct child_watch *watch;
    struct proc_stat before; /* in the lifeline: when it began to wait */
};

struct peer {
    struct list link; /* in peers, in the order of arrival */
    struct starter_run *of;
    struct stream *stream;
    struct loop_timer *greeting; /* until it is disconnected without LEAD */
    uint64_t id;                 /* its link; 0: it has not sent LEAD yet */
    bool is_here;                /* at a loopback address */
    bool in_tls;                 /* TLS has begun */
    char host[STARTER_HOST_MAX];
};

struct starter_run {
    const struct starter_run_config *config;
    const struct starter_ops *ops;
    void *arg;
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *timer;
    struct loop_signal *signals[NSIG]; /* by number; NULL: not watched */
    struct keyring *key;               /* the job's; NULL: it has none */
    struct tls_psk *psk;               /* the same for TLS */
    struct listener *listener;         /* where the agent that leads connects; NULL: not needed */
    struct peer_gate *gate;            /* NULL: any user of this machine may connect */
    char token[STARTER_TOKEN_CHARS + 1];
    struct list peers;
    uint64_t last_id;
    struct list commands; /* that still run */
    struct child_status first_failed;
    struct helper lifeline; /* while commands run, and no agent that leads is connected */
    int lifeline_fd;        /* the lifeline waits for its end of file; -1: there is none */
    struct starter machine;
    struct registry_own registry;
    uint64_t grace_ns;           /* of the workers; 0: unknown */
    char step[STARTER_STEP_MAX]; /* "": unknown */
    char lost[STARTER_HOST_MAX]; /* the node of the last agent that led, if it has gone; or "" */
    int status;
    bool quit; /* END was emitted, and the backend has nothing left to do */
};

struct loop *starter_loop(const struct starter_run *r) {
    return r->loop;
}
const struct starter *starter_machine(const struct starter_run *r) { return &r->machine; }
const char *starter_step_name(const struct starter_run *r) { return r->step; }
const char *starter_lost_node(const struct starter_run *r) { return r->lost; }
void starter_set_grace(struct starter_run *r, uint64_t grace_ns) { r->grace_ns = grace_ns; }

/* ---- the program that is started on the nodes: muster itself ---- */

int starter_program(const char *argv0, char *const *envp, char **ret, struct err *err) {
    _cleanup_(freep) char *found = NULL;
    int r = child_find_program(argv0, env_get(envp, "PATH"), &found);
    if (r < 0)
        return err_set(err, r, "can't find the program %s, which is to run on all nodes: %s", argv0,
                       strerror(-r));
    if (found[0] == '/') {
        *ret = TAKE_PTR(found);
        return 0;
    }
    _cleanup_(freep) char *here = getcwd(NULL, 0);
    if (here == NULL)
        return err_set(err, -errno, "can't find out the working folder: %s", strerror(errno));
    *ret = xasprintf("%s/%s", here, found);
    return 0;
}

int starter_real_program(const char *argv0, char *const *envp, char **ret, struct err *err) {
    _cleanup_(freep) char *named = NULL;
    int r = starter_program(argv0, envp, &named, err);
    if (r < 0)
        return r;
    char *real =
        strcmp(strrchr(named, '/'), "/torchrun") == 0 ? realpath(named, NULL) : TAKE_PTR(named);
    if (real == NULL)
        return err_set(err, -errno, "can't find the program behind %s: %s", named, strerror(errno));
    *ret = real;
    return 0;
}

char *starter_program_word(const char *argv0, char *const *envp) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+,:@-";
    struct err unused = {0};
    _cleanup_(freep) char *path = NULL;
    bool known = starter_real_program(argv0, envp, &path, &unused) == 0;
    return known && path[strspn(path, plain)] == '\0' ? TAKE_PTR(path) : xstrdup("muster");
}

char *starter_folder(char *const *envp) {
    struct stat named, here;
    const char *pwd = env_get(envp, "PWD");
    if (pwd != NULL && pwd[0] == '/' && stat(pwd, &named) == 0 && stat(".", &here) == 0 &&
        named.st_dev == here.st_dev && named.st_ino == here.st_ino)
        return xstrdup(pwd);
    return getcwd(NULL, 0);
}

void starter_log_command(char *const *argv) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (size_t i = 0; argv[i] != NULL; i++)
        strbuf_printf(&line, "%s%s", i > 0 ? " " : "", argv[i]);
    log_info("%s", strbuf_text(&line));
}

/* ---- the key of the job ---- */

static const struct tls_key *find_key(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    const struct tls_key *key = &keyring_at(arg, 0)->tls;
    return memcmp(key->id, id, TLS_KEY_ID_BYTES) == 0 ? key : NULL;
}

static int add_key(struct keyring *ring, const struct keyring *given, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    if (keyring_n(given) > 0) {
        const struct keyring_key *first = keyring_at(given, 0);
        return keyring_add(ring, first->secret, first->source, err);
    }
    random_bytes(secret, sizeof secret);
    int code = keyring_add(ring, secret, AUTH_FROM_HEAD, err);
    explicit_bzero(secret, sizeof secret);
    return code;
}

static int make_key(struct starter_run *r, struct err *err) {
    const enum auth_mode auth = r->config->spec->auth;
    if (auth == AUTH_NONE)
        return 0;
    int code = keyring_new(&r->key, err);
    if (code == 0) {
        keyring_keep_from_children(r->key);
        code = add_key(r->key, r->config->keys, err);
    }
    if (code == 0)
        code = keyring_derive(r->key, err);
    if (code == 0) {
        r->psk = tls_psk_new(find_key, r->key);
        return 0;
    }
    keyring_free(TAKE_PTR(r->key));
    if (code != -ELIBACC || auth == AUTH_ON || keyring_n(r->config->keys) > 0)
        return code;
    log_warning("the nodes of the job get no key from here: %s", err->text);
    return 0;
}

void starter_key_to_env(const struct starter_run *r, struct envlist *env) {
    char text[AUTH_KEY_TEXT_MAX] = STARTER_NO_KEY;
    if (r->key != NULL)
        auth_key_to_text(keyring_at(r->key, 0)->secret, text);
    envlist_set(env, STARTER_KEY_ENV, text);
    explicit_bzero(text, sizeof text);
}

/* ---- the agent that leads ---- */

/* Peers that have sent LEAD, or have not yet. *ret_first: the oldest; NULL: there is none. */
static unsigned count_peers(const struct starter_run *r, bool greeted, struct peer **ret_first) {
    unsigned n = 0;
    *ret_first = NULL;
    LIST_FOR_EACH(struct peer, peer, &r->peers, link) {
        if ((peer->id != 0) != greeted)
            continue;
        *ret_first = n++ == 0 ? peer : *ret_first;
    }
    return n;
}

static void peer_free(void *arg) {
    struct peer *peer = arg;
    list_remove(&peer->link);
    stream_free(peer->stream);
    loop_timer_free(peer->greeting);
    free(peer);
}

static void send_message(struct starter_run *r, uint64_t link, const struct starter_message *m) {
    LIST_FOR_EACH(struct peer, peer, &r->peers, link)
        if (peer->id == link && stream_unsent(peer->stream) < STARTER_FRAME_MAX)
            starter_send(peer->stream, m);
}

static void refuse(struct peer *peer, const char *why) {
    log_debug("the starter's port refused a connection: %s", why);
    peer_free(peer);
}

/* 1: it was disconnected. */
static int welcome(struct peer *peer, const struct starter_lead *lead) {
    struct starter_run *r = peer->of;
    struct peer *oldest;
    if (!starter_token_equal(lead->token, r->token) ||
        count_peers(r, true, &oldest) == STARTER_LINKS_MAX) {
        refuse(peer, "wrong token, or too many connections");
        return 1;
    }
    peer->id = ++r->last_id;
    (void)snprintf(peer->host, sizeof peer->host, "%s", lead->host);
    loop_timer_set(peer->greeting, TIME_NEVER);
    if (lead->step[0] != '\0')
        (void)snprintf(r->step, sizeof r->step, "%s", lead->step);
    r->lost[0] = '\0';
    log_info("node %s leads%s%s", lead->host, r->step[0] != '\0' ? ", step " : "", r->step);
    starter_event(r, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = peer->id});
    return 0;
}

static void on_verdict(struct peer *peer, const struct starter_verdict *v) {
    log_info("node %s: the job ended with status %u%s%s", peer->host, v->status,
             v->text[0] != '\0' ? ": " : "", v->text);
    starter_event(peer->of, &(struct starter_event){
                                .kind = STARTER_EVENT_VERDICT, .link = peer->id, .verdict = *v});
}

static void on_safe_point(struct peer *peer) {
    if (!peer->of->machine.safe)
        log_info("node %s: a worker reported a safe point; the job can now be requeued",
                 peer->host);
    starter_event(peer->of, &(struct starter_event){.kind = STARTER_EVENT_SAFE});
}

/* 1: it was disconnected. */
static int take_message(void *arg, const struct starter_message *m, struct err *err) {
    struct peer *peer = arg;
    if ((peer->id == 0) != (m->kind == STARTER_LEAD)) {
        refuse(peer, "LEAD must be the first message, and only that one");
        return 1;
    }
    if (m->kind == STARTER_LEAD)
        return welcome(peer, &m->lead);
    if (m->kind == STARTER_SAFE)
        on_safe_point(peer);
    else
        on_verdict(peer, &m->verdict);
    return 0;
}

static void peer_gone(struct peer *peer) {
    struct starter_run *r = peer->of;
    uint64_t id = peer->id;
    if (id != 0 && id == r->machine.link)
        (void)snprintf(r->lost, sizeof r->lost, "%s", peer->host);
    peer_free(peer);
    if (id != 0)
        starter_event(r, &(struct starter_event){.kind = STARTER_EVENT_LEADER_GONE, .link = id});
}

/* Its first bytes have come: TLS's, if the job has a key, and the peer is on another machine. */
static void begin_tls(struct peer *peer) {
    struct ssl_st *session;
    struct err err = {0};
    const uint8_t *first = stream_peek(peer->stream, 1);
    int r = first != NULL && *first == TLS_FIRST_BYTE ? 0 : err_set(&err, -EPERM, "not TLS");
    if (r == 0)
        r = tls_psk_accept(peer->of->psk, &session, &err);
    if (r < 0) {
        refuse(peer, err.text);
        return;
    }
    peer->in_tls = true;
    stream_start_tls(peer->stream, session);
}

static void on_readable(void *arg, struct stream *s) {
    struct peer *peer = arg;
    struct err err = {0};
    if (peer->of->key != NULL && !peer->is_here && !peer->in_tls) {
        begin_tls(peer); /* what is inside comes later */
        return;
    }
    if (starter_read(s, STARTER_FROM_AGENT, take_message, peer, &err) >= 0)
        return;
    log_debug("unexpected data on the starter's port: %s", err.text);
    peer_gone(peer);
}

static void on_closed(void *arg, struct stream *s, int code) {
    const char *why = stream_tls_why(s);
    if (why != NULL)
        log_debug("a connection to the starter's port: %s", why);
    peer_gone(arg);
}

static const struct stream_ops stream_ops = {.on_readable = on_readable, .on_closed = on_closed};

static void on_peer(void *arg, int fd, const struct addr *from) {
    struct starter_run *r = arg;
    struct peer *oldest;
    if (!peer_gate_admits(r->gate, fd, from)) {
        (void)close(fd);
        return;
    }
    if (count_peers(r, false, &oldest) == STARTER_STRANGERS_MAX)
        peer_free(oldest);
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->of = r;
    peer->is_here = addr_is_loopback(from);
    peer->stream = stream_new(r->loop, fd, &stream_ops, peer);
    stream_set_read_limit(peer->stream, STARTER_FRAME_MAX);
    peer->greeting = loop_timer_new(r->loop, peer_free, peer);
    loop_timer_set(peer->greeting, clock_now_ns() + STARTER_GREETING_NS);
    list_append(&r->peers, &peer->link);
}

static int listen_anywhere(struct starter_run *r, struct err *err) {
    const struct job_spec *spec = r->config->spec;
    struct addr any;
    int fd = -1;
    if (spec->port_low > 0)
        listen_set_range(spec->port_low, spec->port_high);
    int code = addr_from_literal("::", 0, &any);
    assert(code == 0);
    code = listen_socket(&any, BACKLOG, &fd, err);
    if (code == 0 && spec->auth != AUTH_NONE && peer_gate_new(fd, NULL, NULL, &r->gate, NULL) < 0)
        r->gate = NULL; /* the agents log why; the token is still required */
    (void)snprintf(r->token, sizeof r->token, "%016" PRIx64 "%016" PRIx64, random_u64(),
                   random_u64());
    if (code == 0)
        r->listener = listener_new(r->loop, fd, on_peer, r);
    return code;
}

/* "10.0.0.1,fd77::1:4711" */
static int address_to_env(const struct starter_run *r, struct envlist *env, struct err *err) {
    struct addr own[ADDRS_MAX], listener;
    char list[ADDRS_MAX * ADDR_TEXT_MAX];
    size_t n = 0;
    int code = listener_addr(r->listener, &listener);
    if (code == 0)
        code = addr_all_global(own, ARRAY_SIZE(own), &n);
    if (code < 0)
        return err_set(err, code, "can't list the addresses of this machine: %s", strerror(-code));
    addr_to_list(own, n, list, sizeof list);
    envlist_setf(env, STARTER_HEAD_ENV, "%s:%u", n == 0 ? "127.0.0.1" : list, addr_port(&listener));
    envlist_set(env, STARTER_TOKEN_ENV, r->token);
    return 0;
}

/* ---- the lifeline ---- */

/* In the lifeline, which has a copy of the list. */
static int wait_for_death(int fd, void *arg) {
    struct starter_run *r = arg;
    struct proc_stat now;
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, 0); /* it outlives the starter, for a moment */
    (void)setsid();                   /* and what kills the starter's process group */
    LIST_FOR_EACH(struct spawned, c, &r->commands, link)
        if (!proc_read_stat(child_watch_pid(c->watch), &c->before))
            c->before.start = UINT64_MAX;
    (void)!file_read_all(fd, &byte, 1);
    LIST_FOR_EACH(struct spawned, c, &r->commands, link) {
        const pid_t pid = child_watch_pid(c->watch);
        if (proc_read_stat(pid, &now) && now.start == c->before.start)
            (void)kill(pid, SIGINT);
    }
    return 0;
}

static void end_lifeline(struct starter_run *r) {
    helper_end(&r->lifeline); /* killed before it can see the end of file */
    file_close(&r->lifeline_fd);
}

static int start_lifeline(struct starter_run *r) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    int code = helper_start(r->loop, "muster-lifeline", wait_for_death, r, ends[0], &r->lifeline);
    file_close(&ends[0]);
    r->lifeline_fd = ends[1];
    return code;
}

/* While no agent that leads is connected, no agent would notice that this process was killed. */
static void watch_alone(struct starter_run *r) {
    bool alone = !list_empty(&r->commands) && r->machine.link == 0 && !r->machine.has_verdict &&
                 r->machine.state != STARTER_OVER;
    if (!alone)
        end_lifeline(r);
    else if (r->lifeline_fd < 0 && start_lifeline(r) < 0)
        log_debug("can't start a lifeline: the job may outlive this process if it is killed");
}

/* ---- effects ---- */

void starter_signal(struct starter_run *r, int signo) {
    LIST_FOR_EACH(struct spawned, c, &r->commands, link)
        if (child_watch_kill(c->watch, signo) < 0)
            log_debug("a command has ended before SIG%s", signal_abbrev(signo));
}

static void deliver(struct starter_run *r, const struct starter_effect *e) {
    const bool stops = e->kind == STARTER_EFFECT_STOP;
    struct starter_message m = {.kind = stops                              ? STARTER_STOP
                                        : e->kind == STARTER_EFFECT_SIGNAL ? STARTER_SIGNAL
                                                                           : STARTER_ACK};
    if (m.kind != STARTER_ACK)
        m.signal.signo = (uint32_t)e->signo;
    if (r->ops->deliver != NULL)
        r->ops->deliver(r->arg, e->link, &m);
    else if (e->link != 0)
        send_message(r, e->link, &m);
    else
        starter_signal(r, stops && r->ops->stop_signal != 0 ? r->ops->stop_signal : e->signo);
}

void starter_quit(struct starter_run *r) {
    r->quit = true;
    loop_quit(r->loop);
}

static void finish(struct starter_run *r, int status) {
    r->status = status;
    starter_signal(r, SIGKILL);
    if (r->ops->finish != NULL)
        r->status = r->ops->finish(r->arg, status);
    else
        starter_quit(r);
}

static void carry_out(struct starter_run *r, const struct starter_effect *e) {
    switch (e->kind) {
    case STARTER_EFFECT_STOP:
    case STARTER_EFFECT_ACK:
    case STARTER_EFFECT_SIGNAL: deliver(r, e); break;
    case STARTER_EFFECT_KILL:
        if (r->ops->kill != NULL)
            r->ops->kill(r->arg);
        else
            starter_signal(r, SIGKILL);
        break;
    case STARTER_EFFECT_REQUEUE: r->ops->requeue(r->arg, e->status); break;
    case STARTER_EFFECT_END: finish(r, e->status); break;
    }
}

void starter_event(struct starter_run *r, struct starter_event *event) {
    struct starter_update u;
    event->now_ns = clock_now_ns();
    starter_step(&r->machine, event, &u);
    loop_timer_set(r->timer, u.deadline_ns);
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(r, &u.effects[i]);
    watch_alone(r);
}

static void on_timer(void *arg) {
    starter_event(arg, &(struct starter_event){.kind = STARTER_EVENT_TIME});
}

/* ---- signals ---- */

static void log_stop(const struct starter_run *r, int signo) {
    const char *name = signal_abbrev(signo);
    char grace[48] = "";
    if (r->grace_ns > 0)
        (void)snprintf(grace, sizeof grace, " (up to %.0f s)",
                       (double)r->grace_ns / (double)NS_PER_S);
    log_notice("got SIG%s: stopping the job%s", name != NULL ? name : "RT", grace);
}

static void on_signal(void *arg, int signo) {
    struct starter_run *r = arg;
    const struct starter *m = &r->machine;
    const bool ends = job_is_ended_by(r->config->spec, signo);
    if (m->state == STARTER_OVER && ends) {
        starter_quit(r);
        return;
    }
    if (ends && m->signo == 0 && m->state != STARTER_DECIDED && m->requeue == STARTER_UNASKED)
        log_stop(r, signo);
    starter_event(
        r, &(struct starter_event){.kind = STARTER_EVENT_SIGNAL, .signo = signo, .ends = ends});
    if (ends && r->ops->on_stop != NULL)
        r->ops->on_stop(r->arg);
}

/* USR1 and USR2 are for the workers. */
static void watch_signals(struct starter_run *r) {
    const struct job_spec *spec = r->config->spec;
    for (int signo = 1; signo < NSIG; signo++) {
        const bool nohup = signo == SIGHUP && child_is_ignored(SIGHUP); /* nohup(1) */
        if ((job_is_ended_by(spec, signo) && !nohup) || signo == SIGUSR1 || signo == SIGUSR2)
            r->signals[signo] = loop_signal_new(r->loop, signo, on_signal, r);
    }
}

/* ---- commands ---- */

pid_t starter_command_pid(const struct starter_run *r) {
    const struct spawned *first = LIST_FIRST(struct spawned, &r->commands, link);
    return first != NULL ? child_watch_pid(first->watch) : 0;
}

static void spawned_free(struct spawned *c) {
    list_remove(&c->link);
    child_watch_free(c->watch);
    free(c);
}

static void on_command_exit(void *arg, const struct child_status *status) {
    struct spawned *c = arg;
    struct starter_run *r = c->run;
    spawned_free(c);
    if (child_succeeded(&r->first_failed))
        r->first_failed = *status;
    if (r->ops->command_ended != NULL)
        r->ops->command_ended(r->arg, status);
    if (list_empty(&r->commands))
        starter_event(r, &(struct starter_event){.kind = STARTER_EVENT_ENDED,
                                                 .signalled = r->first_failed.signalled,
                                                 .code = r->first_failed.code});
}

/* ^C and ^Z are for this process: the command has a session of its own. */
static int spawn(struct starter_run *r, char *const *argv, const struct envlist *env,
                 struct err *err) {
    _cleanup_(freep) struct spawned *c = xcalloc(1, sizeof *c);
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    _cleanup_(file_close) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    c->run = r;
    spec.argv = argv;
    spec.envp = envlist_items(env);
    spec.stdin_fd = null;
    spec.setsid = true;
    starter_log_command(argv);
    int code = child_spawn(&spec, &child, err);
    if (code == -ENOENT)
        code = err_set(err, code,
                       "%s is not on PATH, so muster can't start itself on the nodes of the job; "
                       "add it to PATH, or use --starter=none to run on this node only",
                       argv[0]);
    if (code < 0)
        return code;
    c->watch = child_watch_new(r->reaper, &child, NULL, on_command_exit, c);
    list_append(&r->commands, &TAKE_PTR(c)->link);
    return 0;
}

int starter_spawn(struct starter_run *r, char *const *argv, struct envlist *env, struct err *err) {
    const struct starter_run_config *config = r->config;
    int code = 0;
    if (r->listener == NULL)
        code = listen_anywhere(r, err);
    if (code == 0)
        code = address_to_env(r, env, err);
    if (code < 0)
        return code;
    if (config->python != NULL)
        envlist_set(env, STARTER_PYTHON_ENV, config->python);
    starter_key_to_env(r, env);
    code = spawn(r, argv, env, err);
    envlist_forget(env, STARTER_KEY_ENV);
    end_lifeline(r); /* it does not know this command */
    watch_alone(r);
    return code;
}

/* ---- the whole ---- */

/* For muster ps, and other commands on this machine. */
static void register_run(struct starter_run *r) {
    struct starter_description d = {0};
    struct err err = {0};
    r->ops->describe(r->arg, &d);
    if (registry_add_head(d.run_id, r->config->spec->start_nodes, d.ask, &r->registry, &err) < 0 ||
        (r->key != NULL && registry_add_key(&r->registry, keyring_at(r->key, 0)->secret, &err) < 0))
        log_debug("%s", err.text);
    free(d.ask);
}

/* How the job ended, for a person. */
static void why_ended(const struct starter_run *r, char ret[STARTER_TEXT_MAX]) {
    const char *name = signal_abbrev(r->machine.signo);
    if (r->status == 0)
        ret[0] = '\0';
    else if (r->machine.verdict.text[0] != '\0')
        (void)snprintf(ret, STARTER_TEXT_MAX, "%s", r->machine.verdict.text);
    else if (name != NULL)
        (void)snprintf(ret, STARTER_TEXT_MAX, "stopped by SIG%s", name);
    else
        (void)snprintf(ret, STARTER_TEXT_MAX, "it ended with status %d", r->status);
}

/* For muster status on this machine: the agents' run id. Before registry_remove(). */
static void record_end(struct starter_run *r) {
    struct starter_description d = {0};
    char text[STARTER_TEXT_MAX];
    struct err err = {0};
    why_ended(r, text);
    r->ops->describe(r->arg, &d);
    if (recent_runs_end(d.run_id, r->status == 0 ? OUTCOME_SUCCESS : OUTCOME_FAILED, text, &err) <
        0)
        log_debug("%s", err.text);
    free(d.ask);
}

static int set_up(struct starter_run *r, struct err *err) {
    (void)signal(SIGPIPE, SIG_IGN);
    int code = loop_new(&r->loop);
    if (code < 0)
        return code;
    r->reaper = child_reaper_new(r->loop);
    r->timer = loop_timer_new(r->loop, on_timer, r);
    watch_signals(r);
    code = make_key(r, err);
    if (code == 0)
        register_run(r);
    return code < 0 ? code : r->ops->start(r->arg, r, err);
}

static void tear_down(struct starter_run *r) {
    while (!list_empty(&r->peers))
        peer_free(LIST_FIRST(struct peer, &r->peers, link));
    listener_free(r->listener);
    peer_gate_free(r->gate);
    tls_psk_free(r->psk);
    keyring_free(r->key);
    for (size_t i = 0; i < ARRAY_SIZE(r->signals); i++)
        loop_signal_free(r->signals[i]);
    if (r->machine.state == STARTER_OVER)
        record_end(r);
    registry_remove(&r->registry);
    end_lifeline(r);
    while (!list_empty(&r->commands))
        spawned_free(LIST_FIRST(struct spawned, &r->commands, link));
    if (r->ops->end != NULL)
        r->ops->end(r->arg);
    loop_timer_free(r->timer);
    child_reaper_free(r->reaper);
    loop_free(r->loop);
}

int starter_run(const struct starter_run_config *config, const struct starter_ops *ops, void *arg) {
    const struct job_spec *spec = config->spec;
    struct starter_run r = {.config = config,
                            .ops = ops,
                            .arg = arg,
                            .lifeline = HELPER_INIT,
                            .lifeline_fd = -1,
                            .grace_ns = spec->shutdown_timeout_ns};
    struct err err = {0};
    list_init(&r.commands);
    list_init(&r.peers);
    if (spec->place.job_id != NULL && !job_is_given(spec, "shutdown-timeout"))
        r.grace_ns = 0; /* Slurm may kill the job sooner */
    starter_init(&r.machine,
                 &(struct starter_config){.grace_ns = spec->shutdown_timeout_ns,
                                          .requeues = ops->requeue != NULL && spec->requeue != 0});
    int code = set_up(&r, &err);
    if (code == 0 && !r.quit)
        code = loop_run(r.loop);
    tear_down(&r);
    if (code == 0)
        return r.status;
    log_error("%s", err.text[0] != '\0' ? err.text : strerror(-code));
    return code == -ENOENT || code == -EINVAL ? EXIT_USAGE_ERROR : EXIT_CANT;
}
