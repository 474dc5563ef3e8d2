#include "launcher/output/writer_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper.h"

#define PING_NS (1 * NS_PER_S) /* while a user waits */
#define PING_IDLE_NS (5 * NS_PER_S)
#define MESSAGES_PER_TURN 64
#define FREE_STARTS 2 /* without a pause between them */
#define FINISH_POLL_MS 50
#define FINISH_BEGIN_NS (2 * NS_PER_S) /* for its first message */
#define SOCKET_BYTES (1024 * 1024)

/* --- messages --------------------------------------------------------------------------------- */

union control {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr head;
};

#define TEXTS_MAX 3
#define PARTS_MAX (2 * TEXTS_MAX)
struct texts {
    size_t n, at[TEXTS_MAX];
};
#define AT(member) offsetof(struct writer_message, member)

static const struct texts texts[] = {
    [WRITER_PRINT] = {1, {AT(print.text)}},
    [WRITER_STATUS] = {1, {AT(status.text)}},
    [WRITER_PREPARE] = {3, {AT(prepare.generation), AT(prepare.node), AT(prepare.run_dir)}},
    [WRITER_OPEN] = {3, {AT(open.prefix), AT(open.paths[0]), AT(open.paths[1])}},
    [WRITER_EXITED] = {2, {AT(exited.error_path), AT(exited.stderr_path)}},
    [WRITER_EVENT] = {2, {AT(event.path), AT(event.line)}},
    [WRITER_ENDED] = {1, {AT(ended.run_dir)}},
    [WRITER_FILES] = {1, {AT(files.dir)}},
    [WRITER_PREPARED] = {3, {AT(prepared.run_dir), AT(prepared.node_dir), AT(prepared.why)}},
    [WRITER_NO_FILE] = {1, {AT(no_file.why)}},
    [WRITER_LAST_OUTPUT] = {2, {AT(last_output.error), AT(last_output.tail)}},
    [WRITER_FINISHED] = {0},
};

static int *fds_of(struct writer_message *m) {
    return m->kind == WRITER_OPEN ? m->open.fds : m->kind == WRITER_FILES ? m->files.fds : NULL;
}

/* The parts that the texts consist of: each text, and its NUL. Returns how many. */
static size_t list_parts(const struct writer_message *m, struct iovec ret[PARTS_MAX]) {
    static char nul[1];
    size_t n = 0, room = WRITER_TEXT_MAX - texts[m->kind].n;
    for (size_t i = 0; i < texts[m->kind].n; i++) {
        char *text;
        memcpy(&text, (const char *)m + texts[m->kind].at[i], sizeof text);
        size_t len = text == NULL ? 0 : m->kind == WRITER_PRINT ? m->print.len : strlen(text);
        len = MIN2(len, room);
        room -= len;
        ret[n++] = (struct iovec){.iov_base = len > 0 ? text : nul, .iov_len = len};
        ret[n++] = (struct iovec){.iov_base = nul, .iov_len = 1};
    }
    return n;
}

static void unpack(struct writer_packet *p) {
    const char *at = p->text;
    for (size_t i = 0; i < texts[p->m.kind].n; i++) {
        memcpy((char *)&p->m + texts[p->m.kind].at[i], &at, sizeof at);
        at += strlen(at) + 1;
    }
}

int writer_wire_send(int fd, const struct writer_message *m) {
    struct writer_message head = *m;
    const int *fds = fds_of(&head);
    int sent[2];
    size_t n = 0;
    for (int i = 0; i < 2 && fds != NULL; i++)
        if (fds[i] >= 0)
            sent[n++] = fds[i];
    struct iovec v[1 + PARTS_MAX] = {{.iov_base = &head, .iov_len = sizeof head}};
    union control control = {0};
    struct msghdr h = {.msg_iov = v, .msg_iovlen = 1 + list_parts(m, v + 1)};
    if (n > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n * sizeof(int));
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), sent, n * sizeof(int));
    }
    ssize_t r;
    do
        r = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors are in transit. unix(7) */
    bool later = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    return later ? -EAGAIN : -errno;
}

int writer_wire_receive(int fd, struct writer_packet *ret) {
    struct iovec v[2] = {{.iov_base = &ret->m, .iov_len = sizeof ret->m},
                         {.iov_base = ret->text, .iov_len = sizeof ret->text}};
    union control control;
    struct msghdr h = {.msg_iov = v,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t r;
    do
        r = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? -EAGAIN : 0;
    if (r < (ssize_t)sizeof ret->m)
        return 0;
    int got[2] = {-1, -1}, *fds = fds_of(&ret->m);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(c), MIN2(c->cmsg_len - CMSG_LEN(0), sizeof got));
    for (int i = 0, next = 0; i < 2 && fds != NULL; i++) /* those that exist are sent, in order */
        fds[i] = fds[i] >= 0 ? got[next++] : -1;
    unpack(ret);
    return 1;
}

void writer_wire_close(struct writer_message *m) {
    int *fds = fds_of(m);
    for (int i = 0; i < 2 && fds != NULL; i++)
        file_close(&fds[i]);
}

/* --- the writer ------------------------------------------------------------------------------- */

/* A message that could not be sent yet, or own lines that the writer has not yet confirmed. */
struct queued_message {
    struct list link;
    uint64_t number;             /* of own lines, once sent: their sequence number */
    struct writer_packet packet; /* as long as its texts are */
};

/* Its descriptors are copies, too. */
static struct queued_message *copy_message(const struct writer_message *m) {
    struct iovec v[PARTS_MAX];
    size_t n = list_parts(m, v), len = 0;
    for (size_t i = 0; i < n; i++)
        len += v[i].iov_len;
    struct queued_message *x = xmalloc(offsetof(struct queued_message, packet.text) + len);
    x->link = (struct list){0};
    x->number = 0;
    x->packet.m = *m;
    char *at = x->packet.text;
    for (size_t i = 0; i < n; i++)
        at = mempcpy(at, v[i].iov_base, v[i].iov_len);
    unpack(&x->packet);
    int *fds = fds_of(&x->packet.m);
    for (int i = 0; i < 2 && fds != NULL; i++)
        fds[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
    return x;
}

struct writer {
    struct loop *loop;
    struct console *console;
    const struct job_spec *spec;
    void (*on_pid)(void *arg, pid_t pid);
    void *arg;
    struct list users;
    uint32_t last_id;

    int fd; /* -1: there is none */
    struct helper helper;
    struct loop_watch *watch;
    struct loop_timer *timer; /* the next start, or the next ping */
    uint64_t started_ns;
    uint64_t lacking_ns; /* since when none could be started; 0: one could be */
    uint32_t n_starts;

    struct list queue, unconfirmed;
    size_t queued_bytes; /* own lines in both lists */
    uint64_t n_printed;  /* own lines that this process was sent */
    uint64_t lost;       /* own lines that were dropped */
    int awaited;
    bool pinged;      /* the ping has not been answered */
    uint64_t ping_ns; /* when it was sent */
    bool stall_reported;
    bool gave_up; /* the last one hung, and its disk can still hang */
    bool takes_rest;
    bool finished;
    uint64_t left; /* bytes that it could not show until its end */
    bool failed;   /* some of the workers' output could not be written */
};

static void set_timer(struct writer *w) {
    uint64_t due;
    if (w->fd < 0)
        due = w->n_starts < FREE_STARTS ? clock_now_ns() : w->started_ns + WRITER_RESTART_NS;
    else
        due = w->ping_ns + (w->awaited > 0 ? PING_NS : PING_IDLE_NS);
    loop_timer_set(w->timer, due);
}

/* --- sending ---------------------------------------------------------------------------------- */

static bool is_print(const struct queued_message *x) { return x->packet.m.kind == WRITER_PRINT; }

static void drop_waiting(struct writer *w, struct queued_message *x) {
    if (is_print(x))
        w->queued_bytes -= x->packet.m.print.len;
    list_remove(&x->link);
    writer_wire_close(&x->packet.m);
    free(x);
}

/* Own lines are stored until the writer confirms them, so none is lost if it dies. */
static void sent(struct writer *w, struct queued_message *x) {
    if (!is_print(x)) {
        drop_waiting(w, x);
        return;
    }
    x->number = ++w->n_printed;
    list_remove(&x->link);
    list_append(&w->unconfirmed, &x->link);
}

static void send_queue(struct writer *w) {
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (w->fd < 0 || writer_wire_send(w->fd, &x->packet.m) == -EAGAIN)
            break;
        sent(w, x); /* if it has ended, that will be read soon */
    }
    if (w->watch != NULL)
        loop_watch_set(w->watch, LOOP_READ | (list_empty(&w->queue) ? 0 : LOOP_WRITE));
}

static void post(struct writer *w, const struct writer_message *m) {
    bool print = m->kind == WRITER_PRINT;
    bool direct = w->fd >= 0 && list_empty(&w->queue) && !print;
    if (direct && writer_wire_send(w->fd, m) != -EAGAIN)
        return;
    if (print && w->queued_bytes + m->print.len > WRITER_QUEUE_MAX) {
        w->lost++;
        return;
    }
    struct queued_message *x = copy_message(m);
    w->queued_bytes += print ? m->print.len : 0;
    list_append(&w->queue, &x->link);
    send_queue(w);
}

void writer_send(struct writer *w, const struct writer_user *user, const struct writer_message *m) {
    struct writer_message own = *m;
    own.user = user->id;
    post(w, &own);
}

int writer_terminal(const struct writer *w, int k) {
    int fd = console_fd(w->console, k == 0 ? CONSOLE_OUT : CONSOLE_ERR);
    return isatty(fd) ? fd : -1;
}

bool writer_has_one_output(const struct writer *w) { return console_is_one(w->console); }

void writer_take_rest(struct writer *w) {
    w->takes_rest = true;
    if (w->fd >= 0)
        post(w, &(struct writer_message){.kind = WRITER_TAKE_REST});
}

void writer_await(struct writer *w, int by) {
    w->awaited += by;
    set_timer(w);
}

/* --- the agent's own lines -------------------------------------------------------------------- */

static void on_print(void *arg, enum console_stream stream, const char *text, size_t len) {
    struct writer *w = arg;
    while (len > 0) {
        size_t n = MIN2(len, WRITER_TEXT_MAX - 1);
        post(w, &(struct writer_message){
                    .kind = WRITER_PRINT,
                    .print = {.stream = stream, .more = n < len, .len = n, .text = text}});
        text += n;
        len -= n;
    }
}

/* If several can't be sent, only the last is kept. */
static void on_status(void *arg, const char *text) {
    struct writer *w = arg;
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (x->packet.m.kind == WRITER_STATUS)
            drop_waiting(w, x);
    }
    post(w, &(struct writer_message){.kind = WRITER_STATUS, .status.text = text});
}

static const struct console_remote remote = {on_print, on_status};

static void print_queue(struct writer *w) {
    console_use_remote(w->console, NULL, NULL);
    struct list *lists[] = {&w->unconfirmed, &w->queue};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        LIST_FOR_EACH(struct queued_message, x, lists[i], link) {
            if (!is_print(x))
                continue;
            console_print(w->console, x->packet.m.print.stream, x->packet.m.print.text,
                          x->packet.m.print.len);
            drop_waiting(w, x);
        }
    }
}

/* The terminal works even if the log files hang. */
static void print_here(struct writer *w) {
    if (!console_may_hang(w->console))
        print_queue(w);
}

/* --- its end, and the next one ---------------------------------------------------------------- */

/* Drops requests: the users send them again to the next writer. */
static void report_lost(struct writer *w, bool hung) {
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (!is_print(x))
            drop_waiting(w, x);
    }
    LIST_FOR_EACH(struct writer_user, u, &w->users, link)
        w->failed |= u->on_lost(u->arg, hung);
    set_timer(w);
}

/* Nothing more comes from this writer. Reports to users that their requests are lost. */
static void lose(struct writer *w, bool hung) {
    loop_watch_free(TAKE_PTR(w->watch));
    file_close(&w->fd);
    helper_end(&w->helper);
    while (!list_empty(&w->unconfirmed)) { /* send them again to the next one */
        struct queued_message *last =
            CONTAINER_OF(w->unconfirmed.prev, struct queued_message, link);
        list_remove(&last->link);
        list_prepend(&w->queue, &last->link);
    }
    w->n_printed = 0;
    w->pinged = w->stall_reported = false;
    w->gave_up = hung;
    print_here(w);
    log_warning("the log writer %s: a new one is started, and some output may be lost",
                hung ? "does not answer (its disk may hang) and is given up" : "died");
    report_lost(w, hung);
}

static void stands_still(struct writer *w) {
    if (w->awaited > 0) {
        lose(w, true);
        return;
    }
    if (w->stall_reported)
        return;
    w->stall_reported = true;
    print_here(w);
    log_warning("the log writer does not answer (its disk may hang): workers that write are "
                "blocked");
}

static bool start(struct writer *w);

static void on_timer(void *arg) {
    struct writer *w = arg;
    uint64_t now_ns = clock_now_ns();
    if (w->fd < 0) {
        /* if none can be started (no memory), users that wait continue without one */
        if (!start(w) && w->awaited > 0 && w->lacking_ns > 0 &&
            now_ns >= w->lacking_ns + WRITER_PATIENCE_NS)
            report_lost(w, false);
        set_timer(w);
        return;
    }
    if (w->pinged && now_ns >= w->ping_ns + WRITER_PATIENCE_NS)
        stands_still(w);
    if (w->fd >= 0 && !w->pinged) {
        w->pinged = true;
        w->ping_ns = now_ns;
        post(w, &(struct writer_message){.kind = WRITER_PING});
    }
    if (w->fd >= 0 && w->pinged)
        loop_timer_set(w->timer, MAX2(now_ns, w->ping_ns + WRITER_PATIENCE_NS) + PING_NS / 10);
    else
        set_timer(w);
}

/* --- messages from the writer ----------------------------------------------------------------- */

static void on_pong(struct writer *w, uint64_t n_printed) {
    LIST_FOR_EACH(struct queued_message, x, &w->unconfirmed, link) {
        if (x->number <= n_printed)
            drop_waiting(w, x);
    }
    w->pinged = false;
    if (w->stall_reported) {
        w->stall_reported = false;
        console_use_remote(w->console, &remote, w);
        log_notice("the log writer answers again");
    }
    set_timer(w);
}

static void take(struct writer *w, struct writer_message *m) {
    if (m->kind == WRITER_PONG)
        on_pong(w, m->pong.n_printed);
    if (m->kind == WRITER_FINISHED) {
        w->finished = true;
        w->left = m->finished.left;
        w->failed |= m->finished.failed;
    }
    LIST_FOR_EACH(struct writer_user, u, &w->users, link) {
        if (u->id == m->user) {
            u->on_message(u->arg, m);
            return;
        }
    }
    writer_wire_close(m); /* of a user that was removed */
}

static void read_messages(struct writer *w, int most) {
    struct writer_packet p;
    for (int i = 0; i < most && w->fd >= 0; i++) {
        int r = writer_wire_receive(w->fd, &p);
        if (r == -EAGAIN)
            return;
        if (r == 0) {
            lose(w, false);
            return;
        }
        take(w, &p.m);
    }
}

static void on_ready(void *arg, int fd, unsigned events) {
    struct writer *w = arg;
    if ((events & LOOP_WRITE) != 0)
        send_queue(w);
    read_messages(w, MESSAGES_PER_TURN);
}

/* --- life ------------------------------------------------------------------------------------- */

static int run_writer(int fd, void *arg) {
    struct writer *w = arg;
    return writer_process_run(fd, w->console, w->spec);
}

static int start_process(struct writer *w) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int bytes = SOCKET_BYTES;
    for (int i = 0; i < 2; i++) /* useful, but not required */
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    w->watch = loop_watch_new(w->loop, pair[0], LOOP_READ, LOOP_PRIO_CHILD, on_ready, w);
    int out = console_fd(w->console, CONSOLE_OUT), err = console_fd(w->console, CONSOLE_ERR);
    int r =
        helper_start_speaking(w->loop, WRITER_NAME, run_writer, w, pair[1], out, err, &w->helper);
    (void)close(pair[1]);
    if (r == 0) {
        w->fd = pair[0];
        return 0;
    }
    loop_watch_free(TAKE_PTR(w->watch));
    (void)close(pair[0]);
    return r;
}

/* False: none can be started now. */
static bool start(struct writer *w) {
    uint64_t now_ns = clock_now_ns();
    if (w->n_starts >= FREE_STARTS && now_ns < w->started_ns + WRITER_RESTART_NS)
        return false;
    w->started_ns = now_ns;
    w->n_starts++;
    int r = start_process(w);
    if (r < 0) {
        if (w->lacking_ns == 0) {
            log_warning("can't start the log writer: %s; trying again; until it starts, workers "
                        "that write are blocked",
                        strerror(-r));
            w->lacking_ns = now_ns;
        }
        return false;
    }
    w->lacking_ns = 0;
    console_use_remote(w->console, &remote, w);
    if (w->on_pid != NULL)
        w->on_pid(w->arg, helper_pid(&w->helper));
    w->pinged = false;
    w->ping_ns = now_ns;
    send_queue(w);
    if (w->takes_rest)
        writer_take_rest(w);
    set_timer(w);
    return true;
}

void writer_add(struct writer *w, struct writer_user *user) {
    user->id = ++w->last_id;
    list_append(&w->users, &user->link);
}

void writer_remove(struct writer *w, struct writer_user *user) {
    if (!list_linked(&user->link))
        return;
    list_remove(&user->link);
    if (w->fd >= 0)
        post(w, &(struct writer_message){.kind = WRITER_DROP, .user = user->id});
}

struct writer *writer_new(struct loop *loop, struct console *console, const struct job_spec *spec,
                          void (*on_pid)(void *arg, pid_t pid), void *arg) {
    struct writer *w = xcalloc(1, sizeof *w);
    *w = (struct writer){.loop = loop,
                         .console = console,
                         .spec = spec,
                         .on_pid = on_pid,
                         .arg = arg,
                         .fd = -1,
                         .helper = HELPER_INIT};
    list_init(&w->users);
    list_init(&w->queue);
    list_init(&w->unconfirmed);
    w->timer = loop_timer_new(loop, on_timer, w);
    if (!start(w))
        set_timer(w);
    return w;
}

/* Reports output that was not shown, unless the report itself might hang. */
static void report_end(struct writer *w, bool died) {
    if (w->finished && w->left > 0)
        log_warning("%" PRIu64 " bytes of output lost: their reader had not taken them", w->left);
    if (w->finished || (!died && console_may_hang(w->console)))
        return;
    print_queue(w);
    log_warning("the log writer %s: the end of the workers' output may be lost",
                died ? "died" : "does not answer and is given up");
}

static void post_finish(struct writer *w, uint32_t ms, bool while_taken) {
    post(w, &(struct writer_message){.kind = WRITER_FINISH,
                                     .finish = {.ms = ms, .while_taken = while_taken}});
}

/* Waits for the writer's messages, or for a signal. False: the writer has died. */
static bool await_message(struct writer *w, const struct writer_patience *patience,
                          uint64_t *progress_ns) {
    struct pollfd p[2] = {
        {.fd = w->fd, .events = (short)(POLLIN | (list_empty(&w->queue) ? 0 : POLLOUT))},
        {.fd = patience->fd, .events = POLLIN}};
    struct writer_packet packet;
    (void)poll(p, 2, FINISH_POLL_MS);
    if (p[1].revents != 0 && patience->leave(patience->arg))
        post_finish(w, 0, false);
    send_queue(w);
    int r = writer_wire_receive(w->fd, &packet);
    if (r == 1) {
        *progress_ns = clock_now_ns();
        take(w, &packet.m);
    }
    return r != 0;
}

bool writer_finish(struct writer *w, const struct writer_patience *patience) {
    if (w->fd < 0) { /* the last one has died, and the next one could not be started yet */
        if (!w->gave_up || !console_may_hang(w->console))
            print_queue(w);
        return w->failed;
    }
    if (w->lost > 0)
        log_warning("%llu of muster's own lines are lost: the log writer did not take them",
                    (unsigned long long)w->lost);
    post_finish(w, patience->ms, patience->while_taken);
    /* the writer reports that it is alive while it waits for a reader */
    uint64_t begin_ns = clock_now_ns(), progress_ns = begin_ns;
    bool alive = true;
    while (!w->finished && alive) {
        uint64_t silence_ns = progress_ns == begin_ns ? FINISH_BEGIN_NS : WRITER_PATIENCE_NS;
        if (clock_now_ns() >= progress_ns + silence_ns)
            break;
        alive = await_message(w, patience, &progress_ns);
    }
    console_use_remote(w->console, NULL, NULL);
    report_end(w, !alive);
    return w->failed || w->left > 0;
}

void writer_free(struct writer *w) {
    if (w == NULL)
        return;
    console_use_remote(w->console, NULL, NULL);
    loop_watch_free(w->watch);
    loop_timer_free(w->timer);
    file_close(&w->fd);
    helper_end(&w->helper);
    while (!list_empty(&w->queue))
        drop_waiting(w, LIST_FIRST(struct queued_message, &w->queue, link));
    while (!list_empty(&w->unconfirmed))
        drop_waiting(w, LIST_FIRST(struct queued_message, &w->unconfirmed, link));
    free(w);
}
