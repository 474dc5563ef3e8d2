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
#include "launcher/output/writer_process_io.h"

#define PING_NS (1 * NS_PER_S) /* while a user waits */
#define PING_IDLE_NS (5 * NS_PER_S)
#define MESSAGES_PER_TURN 64
#define FREE_STARTS 2 /* without a pause between them */
#define FINISH_POLL_MS 50
#define FINISH_BEGIN_NS (2 * NS_PER_S) /* for its first message */
#define SOCKET_BYTES (1024 * 1024)

/* A message that could not be sent yet, or own lines that the writer has not yet confirmed. */
struct queued_message {
    struct list link;
    uint64_t number; /* of own lines, once sent: their sequence number */
    struct writer_message m;
    int fds[2];
    size_t len;
    char text[];
};

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
    bool wanted;              /* a writer should run, though it can be dead now */
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
    uint64_t due = TIME_NEVER;
    if (w->fd < 0 && w->wanted)
        due = w->n_starts < FREE_STARTS ? clock_now_ns() : w->started_ns + WRITER_RESTART_NS;
    else if (w->fd >= 0)
        due = w->ping_ns + (w->awaited > 0 ? PING_NS : PING_IDLE_NS);
    loop_timer_set(w->timer, due);
}

/* --- sending ---------------------------------------------------------------------------------- */

static void drop_waiting(struct writer *w, struct queued_message *x) {
    if (x->m.kind == WRITER_PRINT)
        w->queued_bytes -= x->len;
    list_remove(&x->link);
    writer_wire_close(x->fds);
    free(x);
}

/* Own lines are stored until the writer confirms them, so none is lost if it dies. */
static void sent(struct writer *w, struct queued_message *x) {
    if (x->m.kind != WRITER_PRINT) {
        drop_waiting(w, x);
        return;
    }
    x->number = ++w->n_printed;
    list_remove(&x->link);
    list_append(&w->unconfirmed, &x->link);
}

static void send_queue(struct writer *w) {
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (w->fd < 0 || writer_wire_send(w->fd, &x->m, x->text, x->len, x->fds) == -EAGAIN)
            break;
        sent(w, x); /* if it has ended, that will be read soon */
    }
    if (w->watch != NULL)
        loop_watch_set(w->watch, LOOP_READ | (list_empty(&w->queue) ? 0 : LOOP_WRITE));
}

static void queue_message(struct writer *w, const struct writer_message *m, const char *text,
                          size_t len, const int fds[2]) {
    if (m->kind == WRITER_PRINT && w->queued_bytes + len > WRITER_QUEUE_MAX) {
        w->lost++;
        return;
    }
    struct queued_message *x = xmalloc(sizeof *x + len);
    *x = (struct queued_message){.m = *m, .fds = {-1, -1}, .len = len};
    if (len > 0)
        memcpy(x->text, text, len);
    for (int i = 0; i < 2 && fds != NULL; i++)
        x->fds[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
    if (m->kind == WRITER_PRINT)
        w->queued_bytes += len;
    list_append(&w->queue, &x->link);
}

static void post(struct writer *w, const struct writer_message *m, const char *text, size_t len,
                 const int fds[2]) {
    len = MIN2(len, WRITER_TEXT_MAX);
    bool direct = w->fd >= 0 && list_empty(&w->queue) && m->kind != WRITER_PRINT;
    if (direct && writer_wire_send(w->fd, m, text, len, fds) != -EAGAIN)
        return;
    queue_message(w, m, text, len, fds);
    send_queue(w);
}

static void post_plain(struct writer *w, const struct writer_message *m) {
    post(w, m, NULL, 0, NULL);
}

void writer_send(struct writer *w, const struct writer_user *user, const struct writer_message *m,
                 const char *text, size_t len, const int fds[2]) {
    struct writer_message own = *m;
    own.user = user->id;
    (void)writer_start(w);
    post(w, &own, text, len, fds);
}

int writer_terminal(const struct writer *w, int k) {
    int fd = console_fd(w->console, k == 0 ? CONSOLE_OUT : CONSOLE_ERR);
    return isatty(fd) ? fd : -1;
}

bool writer_has_one_output(const struct writer *w) { return console_is_one(w->console); }

void writer_take_rest(struct writer *w) {
    w->takes_rest = true;
    if (w->fd >= 0)
        post_plain(w, &(struct writer_message){.kind = WRITER_TAKE_REST});
}

void writer_await(struct writer *w, int by) {
    w->awaited += by;
    set_timer(w);
}

/* --- the agent's own lines -------------------------------------------------------------------- */

static void on_print(void *arg, enum console_stream stream, const char *text, size_t len) {
    struct writer *w = arg;
    while (len > 0) {
        size_t n = MIN2(len, WRITER_TEXT_MAX);
        struct writer_message m = {
            .kind = WRITER_PRINT, .index = stream, .flags = n < len ? WRITER_MORE : 0};
        post(w, &m, text, n, NULL);
        text += n;
        len -= n;
    }
}

/* If several can't be sent, only the last is kept. */
static void on_status(void *arg, const char *text) {
    struct writer *w = arg;
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (x->m.kind == WRITER_STATUS)
            drop_waiting(w, x);
    }
    post(w, &(struct writer_message){.kind = WRITER_STATUS}, text, strlen(text), NULL);
}

static void on_wanted(void *arg) { (void)writer_start(arg); }

static const struct console_remote remote = {on_wanted, on_print, on_status};

/* Shows the lines that the writer has not shown. */
static void print_queue(struct writer *w) {
    console_use_remote(w->console, false);
    struct list *lists[] = {&w->unconfirmed, &w->queue};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        LIST_FOR_EACH(struct queued_message, x, lists[i], link) {
            if (x->m.kind != WRITER_PRINT)
                continue;
            console_print(w->console, (enum console_stream)x->m.index, x->text, x->len);
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
static void drop_asked(struct writer *w) {
    w->awaited = 0;
    LIST_FOR_EACH(struct queued_message, x, &w->queue, link) {
        if (x->m.kind != WRITER_PRINT)
            drop_waiting(w, x);
    }
}

static void report_lost(struct writer *w, bool hung) {
    LIST_FOR_EACH(struct writer_user, u, &w->users, link)
        w->failed |= u->on_lost(u->arg, hung);
    set_timer(w);
}

/* Nothing more comes from this writer. Reports to users that their requests are lost. */
static void lose(struct writer *w, bool hung) {
    loop_watch_free(w->watch);
    w->watch = NULL;
    (void)close(w->fd);
    w->fd = -1;
    helper_end(&w->helper);
    drop_asked(w);
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

/* No writer can be started (a limit of processes, no memory): users that wait continue without
 * one. */
static void do_without(struct writer *w) {
    drop_asked(w);
    report_lost(w, false);
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

static void on_timer(void *arg) {
    struct writer *w = arg;
    uint64_t now_ns = clock_now_ns();
    if (w->fd < 0) {
        if (w->wanted && !writer_start(w) && w->awaited > 0 && w->lacking_ns > 0 &&
            now_ns >= w->lacking_ns + WRITER_PATIENCE_NS)
            do_without(w);
        set_timer(w);
        return;
    }
    if (w->pinged && now_ns >= w->ping_ns + WRITER_PATIENCE_NS)
        stands_still(w);
    if (w->fd >= 0 && !w->pinged) {
        w->pinged = true;
        w->ping_ns = now_ns;
        post_plain(w, &(struct writer_message){.kind = WRITER_PING});
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
        console_use_remote(w->console, true);
        log_notice("the log writer answers again");
    }
    set_timer(w);
}

static void take(struct writer *w, struct writer_packet *p) {
    if (p->m.kind == WRITER_PONG)
        on_pong(w, p->m.number);
    if (p->m.kind == WRITER_FINISHED) {
        w->finished = true;
        w->left = p->m.number;
        w->failed |= (p->m.flags & WRITER_FAILED) != 0;
    }
    LIST_FOR_EACH(struct writer_user, u, &w->users, link) {
        if (u->id == p->m.user) {
            u->on_message(u->arg, p);
            return;
        }
    }
    writer_wire_close(p->fds); /* of a user that was removed */
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
        take(w, &p);
    }
}

static void on_ready(void *arg, int fd, unsigned events) {
    (void)fd;
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
    int r = loop_watch_new(w->loop, pair[0], LOOP_READ, LOOP_PRIO_CHILD, on_ready, w, &w->watch);
    int out = console_fd(w->console, CONSOLE_OUT), err = console_fd(w->console, CONSOLE_ERR);
    if (r == 0)
        r = helper_start_speaking(w->loop, WRITER_NAME, run_writer, w, pair[1], out, err,
                                  &w->helper);
    (void)close(pair[1]);
    if (r == 0) {
        w->fd = pair[0];
        return 0;
    }
    loop_watch_free(w->watch);
    w->watch = NULL;
    (void)close(pair[0]);
    return r;
}

bool writer_start(struct writer *w) {
    uint64_t now_ns = clock_now_ns();
    if (w->fd >= 0)
        return true;
    bool paused = w->n_starts >= FREE_STARTS && now_ns < w->started_ns + WRITER_RESTART_NS;
    w->wanted = true;
    if (paused) {
        set_timer(w);
        return false;
    }
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
        set_timer(w);
        return false;
    }
    w->lacking_ns = 0;
    console_use_remote(w->console, true);
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

bool writer_runs(const struct writer *w) { return w->wanted; }

void writer_add(struct writer *w, struct writer_user *user) {
    user->id = ++w->last_id;
    list_append(&w->users, &user->link);
}

void writer_remove(struct writer *w, struct writer_user *user) {
    if (!list_linked(&user->link))
        return;
    list_remove(&user->link);
    if (w->fd >= 0)
        post_plain(w, &(struct writer_message){.kind = WRITER_DROP, .user = user->id});
}

int writer_new(struct loop *loop, struct console *console, const struct job_spec *spec,
               void (*on_pid)(void *arg, pid_t pid), void *arg, struct writer **ret) {
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
    int r = loop_timer_new(loop, on_timer, w, &w->timer);
    if (r < 0) {
        free(w);
        return r;
    }
    console_set_remote(console, &remote, w);
    *ret = w;
    return 0;
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

/* There is no writer: the last one has died, and the next one could not be started yet. */
static void finish_without(struct writer *w) {
    if (!w->gave_up || !console_may_hang(w->console))
        print_queue(w);
}

static void post_finish(struct writer *w, uint32_t ms, bool while_taken) {
    post_plain(w, &(struct writer_message){.kind = WRITER_FINISH,
                                           .index = ms,
                                           .flags = while_taken ? WRITER_WHILE_TAKEN : 0});
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
        take(w, &packet);
    }
    return r != 0;
}

bool writer_finish(struct writer *w, const struct writer_patience *patience) {
    if (w->fd < 0) {
        finish_without(w);
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
    console_use_remote(w->console, false);
    report_end(w, !alive);
    return w->failed || w->left > 0;
}

void writer_free(struct writer *w) {
    if (w == NULL)
        return;
    console_use_remote(w->console, false);
    console_set_remote(w->console, NULL, NULL);
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
