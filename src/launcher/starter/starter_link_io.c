#include "launcher/starter/starter_link_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "io/net/tls_psk.h"

enum link_state { LINK_IDLE = 0, LINK_WAITING, LINK_CONNECTING, LINK_CONNECTED };

struct starter_link {
    struct loop *loop;
    struct starter_link_ops ops;
    void *arg;
    const uint8_t *secret; /* NULL: the job has no key */
    struct tls_psk *psk;
    struct starter_lead lead; /* its first message */
    struct addr addrs[STARTER_LINK_ADDRS_MAX];
    size_t n_addrs, at; /* n_addrs 0: the head is this node's relay */
    int relay_fd;       /* its socket, until it is opened; -1: none */
    enum link_state state;
    struct stream *stream;    /* NULL: none */
    struct loop_timer *timer; /* for the next attempt, or the end of this one */
    bool leads;
    bool safe;         /* to be told, on each connection */
    bool reached;      /* at addrs[at], at least once */
    unsigned refusals; /* there, in a row, since then */
    bool told_gone;
    /* at the end */
    const struct starter_verdict *verdict; /* NULL: it is not the end yet */
    uint64_t deadline_ns;
    size_t n_left; /* attempts */
    bool acked;
};

static void begin_attempt(struct starter_link *l);
static void lost(struct starter_link *l, int code);

bool starter_link_is_given(char *const *envp) {
    const char *head = env_get(envp, STARTER_HEAD_ENV);
    return head != NULL && head[0] != '\0';
}

/* ---- messages ---- */

int starter_read(struct stream *s, enum starter_sender from, starter_read_fn *fn, void *arg,
                 struct err *err) {
    for (size_t len, bytes; (len = stream_available(s)) > 0;) {
        struct starter_message m;
        int r = starter_take(stream_peek(s, len), len, from, &m, &bytes, err);
        if (r != 0)
            return r == FRAME_E_MORE ? 0 : r;
        stream_drain(s, bytes);
        r = fn(arg, &m, err);
        if (r != 0)
            return r;
    }
    return 0;
}

void starter_send(struct stream *s, const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    starter_add(m, &frame);
    stream_write(s, strbuf_text(&frame), frame.len);
}

/* Frames are few, and far smaller than a socket's buffer: if one is left, no one reads. */
static bool send_message(struct starter_link *l, const struct starter_message *m) {
    const bool can = stream_unsent(l->stream) < 4 * STARTER_FRAME_MAX;
    if (can)
        starter_send(l->stream, m);
    return can;
}

static void say_verdict(struct starter_link *l) {
    struct starter_message m = {.kind = STARTER_VERDICT};
    m.verdict = *l->verdict;
    (void)send_message(l, &m);
}

/* What each connection begins with. */
static void say_lead(struct starter_link *l) {
    struct starter_message m = {.kind = STARTER_LEAD};
    m.lead = l->lead;
    (void)send_message(l, &m);
    if (l->safe)
        (void)send_message(l, &(struct starter_message){.kind = STARTER_SAFE});
    if (l->verdict != NULL)
        say_verdict(l);
}

static int obey(void *arg, const struct starter_message *m, struct err *err) {
    struct starter_link *l = arg;
    bool ends = l->verdict != NULL;
    if (ends && m->kind == STARTER_ACK) {
        l->acked = true;
        loop_quit(l->loop);
    } else if (!ends && m->kind == STARTER_STOP) {
        l->ops.stop(l->arg, (int)m->signal.signo);
    } else if (!ends && m->kind == STARTER_EXPECT) {
        l->ops.expect(l->arg, m->expect.nodes);
    }
    return 0;
}

static void on_readable(void *arg, struct stream *s) {
    struct err err = {0};
    int r = starter_read(s, STARTER_FROM_STARTER, obey, arg, &err);
    if (r == 0)
        return;
    log_debug("the launcher process broke its protocol: %s", err.text);
    lost(arg, r);
}

/* ---- the connection ---- */

static void wait_a_while(struct starter_link *l) {
    l->state = LINK_WAITING;
    loop_timer_set(l->timer, clock_now_ns() + STARTER_LINK_RETRY_NS);
}

/* At the end the addresses are tried once, without a pause. */
static void try_again(struct starter_link *l) {
    if (l->verdict == NULL)
        wait_a_while(l);
    else if (l->n_left == 0 || clock_now_ns() >= l->deadline_ns)
        loop_timer_set(l->timer, l->deadline_ns = 0); /* the loop may not run yet */
    else
        begin_attempt(l);
}

/* Only an address where the head was reached before is tried again; at the end all are. */
static void lost(struct starter_link *l, int code) {
    bool attempt = l->state == LINK_CONNECTING;
    const char *why = l->stream != NULL ? stream_tls_why(l->stream) : NULL;
    log_debug("no connection to the launcher process: %s", why != NULL ? why : strerror(-code));
    stream_free(TAKE_PTR(l->stream));
    if (l->n_addrs > 0 && (!l->reached || (attempt && l->verdict != NULL)))
        l->at = (l->at + 1) % l->n_addrs;
    l->refusals = l->reached && attempt && code == -ECONNREFUSED ? l->refusals + 1 : 0;
    try_again(l);
    if (l->refusals >= STARTER_LINK_REFUSALS && !l->told_gone && l->verdict == NULL) {
        l->told_gone = true;
        l->ops.gone(l->arg);
    }
}

static void on_closed(void *arg, struct stream *s, int code) {
    lost(arg, code == 0 ? -ECONNRESET : code);
}

static void connected(struct starter_link *l) {
    if (l->state != LINK_CONNECTING)
        return;
    l->state = LINK_CONNECTED;
    l->reached = true;
    l->refusals = 0;
    loop_timer_set(l->timer, l->verdict != NULL ? l->deadline_ns : TIME_NEVER);
}

/* In TLS nothing is said before the head has proved that it has the key. */
static void on_secured(void *arg, struct stream *s) {
    struct starter_link *l = arg;
    connected(l);
    say_lead(l);
}

static bool needs_tls(const struct starter_link *l) {
    return l->secret != NULL && l->n_addrs > 0 && !addr_is_loopback(&l->addrs[l->at]);
}

/* In clear, what is sent has found a connection. */
static void on_drained(void *arg, struct stream *s) {
    struct starter_link *l = arg;
    if (!needs_tls(l) || stream_is_secured(s))
        connected(l);
}

static const struct stream_ops stream_ops = {.on_readable = on_readable,
                                             .on_drained = on_drained,
                                             .on_closed = on_closed,
                                             .on_secured = on_secured};

static int start_tls(struct starter_link *l, struct err *err) {
    struct tls_key key;
    struct ssl_st *session;
    if (l->psk == NULL)
        l->psk = tls_psk_new(NULL, NULL);
    int r = tls_key_derive(l->secret, &key, err);
    if (r < 0)
        return r;
    r = tls_psk_connect(l->psk, &key, &session, err);
    explicit_bzero(&key, sizeof key);
    if (r == 0)
        stream_start_tls(l->stream, session);
    return r;
}

/* A relay that has ended refuses, like a head that was killed. */
static int open_relay(struct starter_link *l) {
    int fd = l->relay_fd;
    l->relay_fd = -1;
    if (fd >= 0)
        l->stream = stream_new(l->loop, fd, &stream_ops, l);
    return fd < 0 ? -ECONNREFUSED : 0;
}

static int open_stream(struct starter_link *l, struct err *err) {
    int r = l->n_addrs == 0
                ? open_relay(l)
                : stream_connect(l->loop, NULL, &l->addrs[l->at], &stream_ops, l, &l->stream);
    if (r < 0)
        return r;
    stream_set_priority(l->stream, LOOP_PRIO_CHILD);
    stream_set_read_limit(l->stream, STARTER_FRAME_MAX);
    if (needs_tls(l))
        return start_tls(l, err);
    say_lead(l);
    return 0;
}

/* At the end, an address that does not answer must not cost the time of the others. */
static uint64_t attempt_ns(const struct starter_link *l, uint64_t now_ns) {
    if (l->verdict == NULL)
        return STARTER_LINK_CONNECT_NS;
    return l->deadline_ns > now_ns ? (l->deadline_ns - now_ns) / (l->n_left + 1) : 0;
}

static void begin_attempt(struct starter_link *l) {
    struct err err = {0};
    uint64_t now = clock_now_ns();
    l->state = LINK_CONNECTING;
    l->n_left -= l->verdict != NULL;
    loop_timer_set(l->timer, now + attempt_ns(l, now));
    int r = open_stream(l, &err);
    if (r == 0)
        return;
    if (err.text[0] != '\0')
        log_debug("%s", err.text);
    lost(l, r); /* which comes back here once for each address at most */
}

static void on_timer(void *arg) {
    struct starter_link *l = arg;
    if (l->verdict != NULL && clock_now_ns() >= l->deadline_ns)
        loop_quit(l->loop);
    else if (l->state == LINK_CONNECTING)
        lost(l, -ETIMEDOUT);
    else if (l->state == LINK_WAITING)
        begin_attempt(l);
}

void starter_link_lead(struct starter_link *l) {
    if (l == NULL || l->leads)
        return;
    l->leads = true;
    begin_attempt(l);
}

void starter_link_safe(struct starter_link *l) {
    if (l == NULL || l->safe)
        return;
    l->safe = true;
    if (l->state == LINK_CONNECTED &&
        !send_message(l, &(struct starter_message){.kind = STARTER_SAFE}))
        log_debug("the launcher process was not notified of a safe point");
}

/* ---- the end ---- */

bool starter_link_verdict(struct starter_link *l, const struct starter_verdict *verdict) {
    if (l == NULL || !l->leads)
        return false;
    l->verdict = verdict;
    l->deadline_ns = clock_now_ns() + STARTER_LINK_VERDICT_NS;
    l->n_left = MAX2(l->n_addrs, (size_t)1);
    if (l->state == LINK_CONNECTED) {
        loop_timer_set(l->timer, l->deadline_ns);
        say_verdict(l);
    } else {
        stream_free(TAKE_PTR(l->stream));
        begin_attempt(l);
    }
    if (loop_run(l->loop) < 0)
        log_debug("the loop can't wait for the launcher process");
    l->verdict = NULL; /* the caller's */
    return l->acked;
}

/* ---- making it ---- */

int starter_passed_fd(char *const *envp, const char *name) {
    const char *text = env_get(envp, name);
    uint32_t fd;
    if (text == NULL || strncmp(text, STARTER_FD_PREFIX, strlen(STARTER_FD_PREFIX)) != 0 ||
        parse_u32(text + strlen(STARTER_FD_PREFIX), &fd) < 0 || fd <= STDERR_FILENO ||
        fd > INT32_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return (int)fd;
}

/* The same, if it is a socket with this option: where a variable is only a copy, it is not. */
static int passed_socket(char *const *envp, const char *name, int option, int value) {
    int fd = starter_passed_fd(envp, name), found = 0;
    socklen_t len = sizeof found;
    bool is_it = fd >= 0 && getsockopt(fd, SOL_SOCKET, option, &found, &len) == 0 && found == value;
    return is_it ? fd : -1;
}

int starter_take_listener(char *const *envp) {
    return passed_socket(envp, STARTER_LISTENER_ENV, SO_ACCEPTCONN, 1);
}

void starter_drop_fds(char *const *envp) {
    int link = passed_socket(envp, STARTER_HEAD_ENV, SO_DOMAIN, AF_UNIX);
    int listener = starter_take_listener(envp);
    file_close(&link);
    file_close(&listener);
}

static int read_addrs(struct starter_link *l, const char *text, struct err *err) {
    const char *colon = strrchr(text, ':');
    uint16_t port;
    if (colon != NULL && parse_port(colon + 1, &port) == 0 && port > 0) {
        _cleanup_(freep) char *list = xstrndup(text, (size_t)(colon - text));
        l->n_addrs = addr_from_list(list, port, l->addrs, ARRAY_SIZE(l->addrs));
    }
    return l->n_addrs > 0
               ? 0
               : err_set(err, -EINVAL,
                         STARTER_HEAD_ENV "=%.200s is not ADDRESS,...:PORT; it is set by the "
                                          "muster that started this step: unset it",
                         text);
}

static int read_environment(struct starter_link *l, char *const *envp, struct err *err) {
    const char *token = env_get(envp, STARTER_TOKEN_ENV), *head = env_get(envp, STARTER_HEAD_ENV);
    if (strncmp(head, STARTER_FD_PREFIX, strlen(STARTER_FD_PREFIX)) == 0) {
        l->relay_fd = passed_socket(envp, STARTER_HEAD_ENV, SO_DOMAIN, AF_UNIX);
        return l->relay_fd >= 0
                   ? 0
                   : err_set(err, -EINVAL,
                             STARTER_HEAD_ENV "=%.200s is not a socket of this process; it is set "
                                              "by the muster that started this agent: unset it",
                             head);
    }
    if (token == NULL || strlen(token) != STARTER_TOKEN_CHARS)
        return err_set(err, -EINVAL,
                       STARTER_HEAD_ENV " is set, but " STARTER_TOKEN_ENV " is not, or has not %d "
                                        "characters; unset both",
                       STARTER_TOKEN_CHARS);
    (void)snprintf(l->lead.token, sizeof l->lead.token, "%s", token);
    return read_addrs(l, head, err);
}

int starter_link_new(struct loop *loop, char *const *envp, const uint8_t *secret, const char *host,
                     const struct place *place, const struct starter_link_ops *ops, void *arg,
                     struct starter_link **ret, struct err *err) {
    *ret = NULL;
    if (!starter_link_is_given(envp))
        return 0;
    struct starter_link *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->ops = *ops;
    l->arg = arg;
    l->secret = secret;
    l->relay_fd = -1;
    l->lead.version = STARTER_WIRE_VERSION;
    (void)snprintf(l->lead.host, sizeof l->lead.host, "%s", host);
    if (place_is_step(place))
        (void)snprintf(l->lead.step, sizeof l->lead.step, "%s.%s", place->job_id, place->step_id);
    int r = read_environment(l, envp, err);
    l->timer = loop_timer_new(loop, on_timer, l);
    if (r < 0)
        starter_link_free(l);
    else
        *ret = l;
    return r;
}

void starter_link_free(struct starter_link *l) {
    if (l == NULL)
        return;
    stream_free(l->stream);
    file_close(&l->relay_fd);
    tls_psk_free(l->psk);
    loop_timer_free(l->timer);
    free(l);
}
