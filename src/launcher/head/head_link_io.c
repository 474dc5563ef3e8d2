#include "launcher/head/head_link_io.h"

#include <errno.h>
#include <poll.h>
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
#include "launcher/head/starter.h"

enum link_state { LINK_IDLE = 0, LINK_WAITING, LINK_CONNECTING, LINK_CONNECTED };

struct head_link {
    struct loop *loop; /* NULL: left */
    struct head_link_ops ops;
    void *arg;
    struct head_lead lead; /* its first message */
    struct addr addrs[HEAD_LINK_ADDRS_MAX];
    size_t n_addrs, at;
    enum link_state state;
    int fd;                   /* -1: none */
    struct loop_watch *watch; /* of fd */
    struct loop_timer *timer; /* for the next attempt, or the end of this one */
    bool leads;
    bool safe;         /* to be told, on each connection */
    bool reached;      /* at addrs[at], at least once */
    unsigned refusals; /* there, in a row, since then */
    bool told_gone;
    bool acked;
    uint8_t in[HEAD_FRAME_MAX];
    size_t in_len;
};

static void begin_attempt(struct head_link *l);

bool head_link_is_given(char *const *envp) {
    const char *head = env_get(envp, STARTER_HEAD_ENV);
    return head != NULL && head[0] != '\0';
}

/* ---- the connection, with or without the loop ---- */

static void hang_up(struct head_link *l) {
    loop_watch_free(TAKE_PTR(l->watch));
    file_close(&l->fd);
    l->in_len = 0;
}

/* 0: connected, or EINPROGRESS. */
static int open_socket(struct head_link *l) {
    const struct addr *to = &l->addrs[l->at];
    l->fd = socket(to->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return -errno;
    int r = connect(l->fd, (const struct sockaddr *)&to->ss, to->len);
    return r < 0 && errno != EINPROGRESS ? -errno : 0;
}

static int result_of_connect(const struct head_link *l) {
    int code = 0;
    socklen_t len = sizeof code;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
        return -errno;
    return -code;
}

/* A frame is far smaller than a socket's buffer, and few are sent: one that is not taken at once
 * means that the other side does not read. */
static int send_message(struct head_link *l, const struct head_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    head_encode(m, &frame);
    ssize_t n = send(l->fd, strbuf_text(&frame), frame.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == (ssize_t)frame.len ? 0 : n < 0 ? -errno : -EAGAIN;
}

static int say_lead(struct head_link *l) {
    struct head_message m = {.kind = HEAD_LEAD};
    m.lead = l->lead;
    int r = send_message(l, &m);
    return r == 0 && l->safe ? send_message(l, &(struct head_message){.kind = HEAD_SAFE}) : r;
}

static void obey(struct head_link *l, const struct head_message *m) {
    switch (m->kind) {
    case HEAD_ACK: l->acked = true; break;
    case HEAD_STOP:
        if (l->loop != NULL)
            l->ops.stop(l->arg, (int)m->stop.signo);
        break;
    case HEAD_EXPECT:
        if (l->loop != NULL)
            l->ops.expect(l->arg, m->expect.nodes);
        break;
    case HEAD_LEAD:
    case HEAD_SAFE:
    case HEAD_VERDICT:
    case HEAD_MESSAGE_KIND_COUNT: break; /* not for us */
    }
}

/* Reads what is there, and obeys it. 0, or a negative errno: the connection has ended. */
static int take_in(struct head_link *l) {
    ssize_t n = recv(l->fd, l->in + l->in_len, sizeof l->in - l->in_len, MSG_DONTWAIT);
    if (n <= 0)
        return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? 0 : -errno;
    l->in_len += (size_t)n;
    for (;;) {
        struct head_message m;
        struct err err = {0};
        size_t bytes;
        int r = head_take(l->in, l->in_len, &m, &bytes, &err);
        if (r == FRAME_E_MORE)
            return 0;
        if (r < 0) {
            log_debug("the head broke its protocol: %s", err.text);
            return r;
        }
        l->in_len -= bytes;
        memmove(l->in, l->in + bytes, l->in_len);
        obey(l, &m);
    }
}

/* ---- in the loop ---- */

static void wait_a_while(struct head_link *l) {
    l->state = LINK_WAITING;
    loop_timer_set(l->timer, clock_now_ns() + HEAD_LINK_RETRY_NS);
}

/* The attempt, or the connection, has ended. Where the head was reached once, only that address is
 * tried again. */
static void lost(struct head_link *l, int code) {
    bool attempt = l->state == LINK_CONNECTING;
    hang_up(l);
    log_debug("no connection to the head of the job: %s", strerror(-code));
    if (!l->reached)
        l->at = (l->at + 1) % l->n_addrs;
    l->refusals = l->reached && attempt && code == -ECONNREFUSED ? l->refusals + 1 : 0;
    wait_a_while(l);
    if (l->refusals >= HEAD_LINK_REFUSALS && !l->told_gone) {
        l->told_gone = true;
        l->ops.gone(l->arg);
    }
}

static void on_ready(void *arg, int fd, unsigned events) {
    struct head_link *l = arg;
    (void)fd;
    (void)events;
    int r;
    if (l->state == LINK_CONNECTED) {
        r = take_in(l);
        if (r < 0)
            lost(l, r);
        return;
    }
    r = result_of_connect(l);
    if (r == 0)
        r = say_lead(l);
    if (r < 0) {
        lost(l, r);
        return;
    }
    l->state = LINK_CONNECTED;
    l->reached = true;
    l->refusals = 0;
    loop_timer_set(l->timer, TIME_NEVER);
    loop_watch_set(l->watch, LOOP_READ);
}

static void on_timer(void *arg) {
    struct head_link *l = arg;
    if (l->state == LINK_CONNECTING)
        lost(l, -ETIMEDOUT);
    else if (l->state == LINK_WAITING)
        begin_attempt(l);
}

static void begin_attempt(struct head_link *l) {
    l->state = LINK_CONNECTING;
    loop_timer_set(l->timer, clock_now_ns() + HEAD_LINK_CONNECT_NS);
    int r = open_socket(l);
    if (r == 0)
        r = loop_watch_new(l->loop, l->fd, LOOP_WRITE, LOOP_PRIO_CHILD, on_ready, l, &l->watch);
    if (r < 0)
        lost(l, r);
}

void head_link_lead(struct head_link *l) {
    if (l == NULL || l->leads)
        return;
    l->leads = true;
    begin_attempt(l);
}

void head_link_safe(struct head_link *l) {
    if (l == NULL || l->safe)
        return;
    l->safe = true;
    if (l->state == LINK_CONNECTED &&
        send_message(l, &(struct head_message){.kind = HEAD_SAFE}) < 0)
        log_debug("the head of the job was not told of a safe point");
}

void head_link_leave_loop(struct head_link *l) {
    if (l == NULL || l->loop == NULL)
        return;
    loop_watch_free(TAKE_PTR(l->watch));
    loop_timer_free(TAKE_PTR(l->timer));
    l->loop = NULL;
}

/* ---- the end ---- */

/* Whether the descriptor is ready before the deadline. */
static bool is_ready(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        uint64_t now = clock_now_ns();
        struct pollfd p = {.fd = fd, .events = events};
        int ms = now >= deadline_ns ? 0 : (int)((deadline_ns - now) / NS_PER_MS) + 1;
        int n = poll(&p, 1, ms);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

static bool connect_now(struct head_link *l, uint64_t deadline_ns) {
    hang_up(l);
    int r = open_socket(l);
    if (r == 0)
        r = is_ready(l->fd, POLLOUT, deadline_ns) ? result_of_connect(l) : -ETIMEDOUT;
    if (r == 0)
        r = say_lead(l);
    l->state = r == 0 ? LINK_CONNECTED : LINK_WAITING;
    return r == 0;
}

static bool tell(struct head_link *l, const struct head_message *verdict, uint64_t deadline_ns) {
    if (send_message(l, verdict) < 0)
        return false;
    while (!l->acked && is_ready(l->fd, POLLIN, deadline_ns))
        if (take_in(l) < 0)
            return l->acked;
    return l->acked;
}

bool head_link_verdict(struct head_link *l, const struct head_verdict *verdict) {
    if (l == NULL || !l->leads)
        return false;
    assert(l->loop == NULL);
    struct head_message m = {.kind = HEAD_VERDICT};
    m.verdict = *verdict;
    uint64_t deadline = clock_now_ns() + HEAD_LINK_VERDICT_NS;
    if (l->state == LINK_CONNECTED && tell(l, &m, deadline))
        return true;
    for (size_t i = 0; i < l->n_addrs && clock_now_ns() < deadline; i++) {
        /* an address that does not answer must not cost the time of the others */
        uint64_t share = (deadline - clock_now_ns()) / (l->n_addrs - i);
        if (connect_now(l, clock_now_ns() + share) && tell(l, &m, deadline))
            return true;
        l->at = (l->at + 1) % l->n_addrs;
    }
    return false;
}

/* ---- making it ---- */

static int bad_head(const char *text, struct err *err) {
    return err_set(err, -EINVAL,
                   STARTER_HEAD_ENV "=%.200s is not ADDRESS,...:PORT; it is set by the muster that "
                                    "started this step: unset it",
                   text);
}

static int read_addrs(struct head_link *l, const char *text, struct err *err) {
    const char *colon = strrchr(text, ':');
    uint16_t port;
    if (colon == NULL || parse_port(colon + 1, &port) < 0 || port == 0)
        return bad_head(text, err);
    _cleanup_(freep) char *list = xstrndup(text, (size_t)(colon - text));
    const char *item;
    size_t len;
    for (size_t i = 0; (item = list_item(list, i, &len)) != NULL; i++) {
        _cleanup_(freep) char *host = xstrndup(item, len);
        if (l->n_addrs < HEAD_LINK_ADDRS_MAX &&
            addr_from_literal(host, port, &l->addrs[l->n_addrs++]) < 0)
            return bad_head(text, err);
    }
    return l->n_addrs > 0 ? 0 : bad_head(text, err);
}

static int read_environment(struct head_link *l, char *const *envp, struct err *err) {
    const char *token = env_get(envp, STARTER_TOKEN_ENV);
    const char *job = env_get(envp, "SLURM_JOB_ID"), *step = env_get(envp, "SLURM_STEP_ID");
    if (token == NULL || strlen(token) != HEAD_TOKEN_CHARS)
        return err_set(err, -EINVAL,
                       STARTER_HEAD_ENV " is set, but " STARTER_TOKEN_ENV " is not, or has not %d "
                                        "characters; unset both",
                       HEAD_TOKEN_CHARS);
    (void)snprintf(l->lead.token, sizeof l->lead.token, "%s", token);
    if (job != NULL && step != NULL)
        (void)snprintf(l->lead.step, sizeof l->lead.step, "%s.%s", job, step);
    return read_addrs(l, env_get(envp, STARTER_HEAD_ENV), err);
}

int head_link_new(struct loop *loop, char *const *envp, const char *host,
                  const struct head_link_ops *ops, void *arg, struct head_link **ret,
                  struct err *err) {
    *ret = NULL;
    if (!head_link_is_given(envp))
        return 0;
    struct head_link *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->ops = *ops;
    l->arg = arg;
    l->fd = -1;
    l->lead.version = HEAD_WIRE_VERSION;
    (void)snprintf(l->lead.host, sizeof l->lead.host, "%s", host);
    int r = read_environment(l, envp, err);
    if (r == 0)
        r = loop_timer_new(loop, on_timer, l, &l->timer);
    if (r < 0) {
        head_link_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void head_link_free(struct head_link *l) {
    if (l == NULL)
        return;
    hang_up(l);
    if (l->timer != NULL)
        loop_timer_free(l->timer);
    free(l);
}
