#include "launcher/logs/console_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/clock.h"

#define CLEAR_LINE "\r\x1b[K"
#define WRITE_PIECE_MAX ((size_t)64 * 1024)
#define WRITES_PER_TURN 8
#define PIPE_BYTES (1024 * 1024)
#define POLLED_TTY_MAX ((size_t)256)

enum how {
    HOW_NONE = 1, /* closed or broken: output is dropped */
    HOW_DIRECT,   /* a plain file or a device that never waits */
    HOW_NONBLOCK, /* a terminal or pipe, opened again */
    HOW_SOCKET,
    HOW_POLLED, /* a terminal or pipe that can't be opened again */
};

/* One output: what lies behind descriptor 1, 2 or both. */
struct queue {
    struct console *console;
    enum how how;
    int fd;
    bool owned; /* fd is ours to close */
    bool tty;
    bool clears; /* understands CLEAR_LINE */
    bool hangs;  /* a plain file: its disk may */
    struct strbuf bytes;
    size_t done;                        /* of bytes, written already */
    struct loop_watch *watch;           /* NULL: HOW_DIRECT, HOW_NONE */
    struct loop_timer *soon;            /* HOW_DIRECT: writes at the end of the turn */
    bool open;                          /* the last line queued has no newline */
    struct console_source *open_source; /* whose it is; NULL: of one that is gone */
    uint64_t lost;                      /* lines dropped and not yet told */
    uint64_t progress_ns;               /* when it last took bytes, or began to have some to take */
    bool status_shown;                  /* the status line is the last thing queued */
    bool told;                          /* that it takes no more */
};

struct console {
    struct loop *loop;
    struct queue queues[2];
    struct queue *streams[2]; /* CONSOLE_OUT, CONSOLE_ERR; the same one twice, maybe */
    char status[CONSOLE_STATUS_MAX];
    uint64_t lost;
    int given[2]; /* the descriptors that it was made with */
    const struct console_remote *remote;
    void *remote_arg;
    bool is_remote; /* it is in use */
};

static struct queue *queue_of(const struct console *c, enum console_stream stream) {
    return c->streams[stream - CONSOLE_OUT];
}

static size_t pending(const struct queue *q) { return q->bytes.len - q->done; }

/* A pipe or socket, whose sources may be made to wait. */
static bool is_pipe(const struct queue *q) {
    return q->how != HOW_NONE && q->how != HOW_DIRECT && !q->tty;
}

static size_t queue_max(const struct queue *q) {
    return is_pipe(q) ? CONSOLE_PIPE_QUEUE_MAX : CONSOLE_QUEUE_MAX;
}

/* Took bytes within the patience, or has none to take. */
static bool is_moving(const struct queue *q, uint64_t now_ns) {
    return pending(q) == 0 || now_ns < q->progress_ns + CONSOLE_PIPE_PATIENCE_NS;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void discard(struct queue *q) {
    strbuf_clear(&q->bytes);
    q->done = 0;
}

static void give_up(struct queue *q) {
    q->how = HOW_NONE;
    discard(q);
    loop_watch_free(q->watch);
    q->watch = NULL;
}

static ssize_t write_piece(struct queue *q) {
    const char *data = q->bytes.data + q->done;
    size_t len = MIN2(pending(q), WRITE_PIECE_MAX);
    switch (q->how) {
    case HOW_DIRECT:
    case HOW_NONBLOCK: return write(q->fd, data, len);
    case HOW_SOCKET: return send(q->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case HOW_POLLED: {
        struct pollfd p = {.fd = q->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        return write(q->fd, data, MIN2(len, q->tty ? POLLED_TTY_MAX : (size_t)PIPE_BUF));
    }
    case HOW_NONE: break;
    }
    assert_not_reached();
}

static void show_marker(struct queue *q);
static void show_status(struct queue *q);
static void tell_of_loss(struct queue *q, int error);

static void update_interest(struct queue *q) {
    if (q->watch != NULL)
        loop_watch_set(q->watch, pending(q) > 0 ? LOOP_WRITE : 0);
    else if (q->how == HOW_DIRECT && q->soon != NULL)
        loop_timer_set(q->soon, pending(q) > 0 ? clock_now_ns() : TIME_NEVER);
}

/* Writes what goes without waiting, a bounded amount. */
static void write_out(struct queue *q) {
    for (int i = 0; i < WRITES_PER_TURN && q->how != HOW_NONE && pending(q) > 0; i++) {
        ssize_t n = write_piece(q);
        if (n >= 0) {
            q->done += (size_t)n;
            q->progress_ns = clock_now_ns();
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            break;
        int error = errno;
        if (q->how == HOW_DIRECT && (error == ENOSPC || error == EDQUOT))
            discard(q);
        else
            give_up(q);
        tell_of_loss(q, error);
    }
    if (pending(q) == 0)
        discard(q);
    if (q->lost > 0 && pending(q) < queue_max(q) / 2)
        show_marker(q);
    if (pending(q) == 0)
        show_status(q);
    update_interest(q);
}

static void on_writable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    write_out(arg);
}

static void on_soon(void *arg) { write_out(arg); }

/* --- what is queued --------------------------------------------------------------------------- */

static void add(struct queue *q, const void *data, size_t len) {
    if (q->how == HOW_NONE)
        return;
    /* What is written shall not pile up in front, nor be moved away more often than it pays. */
    if (q->done >= WRITE_PIECE_MAX && q->done >= pending(q)) {
        memmove(q->bytes.data, q->bytes.data + q->done, pending(q));
        q->bytes.len -= q->done;
        q->done = 0;
    }
    if (pending(q) == 0)
        q->progress_ns = clock_now_ns();
    strbuf_add_bytes(&q->bytes, data, len);
}

static void add_text(struct queue *q, const char *text) { add(q, text, strlen(text)); }

static void hide_status(struct queue *q) {
    if (q->status_shown)
        add_text(q, CLEAR_LINE);
    q->status_shown = false;
}

/* Bytes of a text that fill at most `columns`: bytes inside a UTF-8 character have none. */
static size_t cut_to(const char *text, size_t columns) {
    size_t i = 0, used = 0;
    for (; text[i] != '\0'; i++) {
        bool begins = ((uint8_t)text[i] & 0xc0) != 0x80;
        if (begins && used++ == columns)
            break;
    }
    return i;
}

static void show_status(struct queue *q) {
    const char *status = q->console->status;
    if (status[0] == '\0' || q->status_shown || q->open || !q->clears || q->how == HOW_NONE ||
        q != queue_of(q->console, CONSOLE_ERR))
        return;
    struct winsize size = {0};
    size_t columns = 80;
    if (ioctl(q->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        columns = size.ws_col;
    add(q, status, cut_to(status, columns - 1));
    q->status_shown = true;
}

/* Makes room for a line of another source: nothing of a line or of the status stays before it. */
static void begin_line(struct queue *q) {
    hide_status(q);
    if (q->open)
        add_text(q, "\n");
    q->open = false;
    q->open_source = NULL;
}

static void show_marker(struct queue *q) {
    char text[96];
    uint64_t lost = q->lost;
    q->lost = 0;
    begin_line(q);
    (void)snprintf(text, sizeof text,
                   "muster: %" PRIu64 " %s not shown: the terminal is too slow\n", lost,
                   lost == 1 ? "line" : "lines");
    add_text(q, text);
}

/* Once, and on standard error where that is something else: else nobody would see it. */
static void tell_of_loss(struct queue *q, int error) {
    struct queue *err = queue_of(q->console, CONSOLE_ERR);
    char text[192];
    if (q->told || err == q || err->how == HOW_NONE)
        return;
    q->told = true;
    begin_line(err);
    (void)snprintf(text, sizeof text,
                   "muster: can't write to standard output: %s; the job goes on without what "
                   "workers write there\n",
                   strerror(error));
    add_text(err, text);
    update_interest(err);
}

/* Is there room for `more` bytes below `limit`? Tries to make some. Once something was dropped,
 * workers' lines wait until the marker has been put in its place. */
static bool make_room(struct queue *q, size_t more, size_t limit, bool own) {
    if (!own && q->lost > 0)
        return false;
    if (pending(q) + more > (q->how == HOW_DIRECT ? WRITE_PIECE_MAX : limit))
        write_out(q);
    return pending(q) + more <= limit;
}

static void lose(struct queue *q, uint64_t lines) {
    q->lost += lines;
    q->console->lost += lines;
}

/* --- sources ---------------------------------------------------------------------------------- */

void console_source_init(struct console_source *s, struct console *c, enum console_stream stream,
                         const char *prefix) {
    *s = (struct console_source){
        .console = c, .stream = stream, .prefix = xstrdup(prefix == NULL ? "" : prefix)};
}

void console_source_fini(struct console_source *s) {
    if (s->console == NULL)
        return;
    struct queue *q = queue_of(s->console, s->stream);
    if (q->open_source == s)
        q->open_source = NULL;
    free(s->prefix);
    *s = (struct console_source){0};
}

void console_source_piece(struct console_source *s, const struct linebuf_piece *piece) {
    struct queue *q = queue_of(s->console, s->stream);
    if (q->how == HOW_NONE)
        return;
    if (piece->start == LINEBUF_NEW)
        s->line_lost = false;
    if (s->line_lost)
        return;
    size_t most = piece->len + strlen(s->prefix) + sizeof CLEAR_LINE + 2;
    if (!make_room(q, most, queue_max(q), false)) {
        s->line_lost = true;
        lose(q, 1);
        return;
    }
    bool mine = q->open && q->open_source == s && piece->start != LINEBUF_NEW;
    if (!mine)
        begin_line(q);
    else if (piece->start == LINEBUF_REPLACES)
        add_text(q, CLEAR_LINE);
    if (!mine || piece->start == LINEBUF_REPLACES)
        add_text(q, s->prefix);
    add(q, piece->data, piece->len);
    if (piece->ended)
        add_text(q, "\n");
    q->open = !piece->ended;
    q->open_source = piece->ended ? NULL : s;
    update_interest(q);
}

static uint64_t count_lines(const char *text, size_t len) {
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return MAX2(n, UINT64_C(1));
}

#define LINES_PIECE ((size_t)16 * 1024)
#define LINE_GUESS 16 /* bytes of a line: shorter ones overdraw the queue's limit a little */

/* At most LINES_PIECE, but at least one line. */
static size_t next_lines(const char *lines, size_t len) {
    if (len <= LINES_PIECE)
        return len;
    const char *end = memrchr(lines, '\n', LINES_PIECE);
    if (end == NULL)
        end = memchr(lines + LINES_PIECE, '\n', len - LINES_PIECE);
    return (size_t)(end - lines) + 1;
}

/* Prefixes are copied in one piece of constant size, which costs less than one of their own; what
 * is too much is written over by the line. */
#define PREFIX_PIECE ((size_t)32)

static void add_lines(struct queue *q, const struct console_source *s, size_t prefix_len,
                      const char *lines, size_t len) {
    bool small = prefix_len <= PREFIX_PIECE;
    char prefix[PREFIX_PIECE] = {0};
    if (small)
        memcpy(prefix, s->prefix, prefix_len);
    while (len > 0) {
        const char *end = prefix_len == 0 ? lines + len - 1 : memchr(lines, '\n', len);
        size_t n = (size_t)(end - lines) + 1;
        char *to = strbuf_room(&q->bytes, prefix_len + n + PREFIX_PIECE);
        if (small)
            memcpy(to, prefix, PREFIX_PIECE);
        else
            memcpy(to, s->prefix, prefix_len);
        memcpy(to + prefix_len, lines, n);
        q->bytes.len += prefix_len + n;
        lines += n;
        len -= n;
    }
    q->bytes.data[q->bytes.len] = '\0';
}

void console_source_lines(struct console_source *s, const char *lines, size_t len) {
    struct queue *q = queue_of(s->console, s->stream);
    size_t prefix_len = strlen(s->prefix);
    s->line_lost = false;
    while (len > 0 && q->how != HOW_NONE) {
        size_t n = next_lines(lines, len);
        size_t most = n + prefix_len * (n / LINE_GUESS + 1) + sizeof CLEAR_LINE + 2;
        if (make_room(q, most, queue_max(q), false)) {
            begin_line(q);
            add(q, "", 0);
            add_lines(q, s, prefix_len, lines, n);
        } else {
            lose(q, count_lines(lines, n));
        }
        lines += n;
        len -= n;
    }
    update_interest(q);
}

bool console_source_must_wait(const struct console_source *s) {
    const struct queue *q = queue_of(s->console, s->stream);
    return is_pipe(q) && q->lost == 0 && pending(q) > CONSOLE_WAIT_BYTES &&
           is_moving(q, clock_now_ns());
}

void console_source_end(struct console_source *s) {
    struct queue *q = queue_of(s->console, s->stream);
    if (!q->open || q->open_source != s)
        return;
    q->open_source = NULL;
    if (s->prefix[0] == '\0')
        return;
    add_text(q, "\n");
    q->open = false;
    update_interest(q);
}

void console_print(struct console *c, enum console_stream stream, const char *text, size_t len) {
    struct queue *q = queue_of(c, stream);
    if (q->how == HOW_NONE || len == 0)
        return;
    if (c->remote != NULL && !c->is_remote && q->hangs)
        c->remote->wanted(c->remote_arg);
    if (c->is_remote) {
        c->remote->print(c->remote_arg, stream, text, len);
        return;
    }
    if (!make_room(q, len + sizeof CLEAR_LINE + 1, queue_max(q) + CONSOLE_RESERVE_MAX, true)) {
        lose(q, count_lines(text, len));
        return;
    }
    begin_line(q);
    add(q, text, len);
    q->open = text[len - 1] != '\n';
    update_interest(q);
}

void console_log_sink(void *arg, const char *line, size_t len) {
    console_print(arg, CONSOLE_ERR, line, len);
}

bool console_status(struct console *c, const char *text) {
    struct queue *q = queue_of(c, CONSOLE_ERR);
    if (!q->clears || q->how == HOW_NONE)
        return false;
    const char *new_text = text == NULL ? "" : text;
    if (strcmp(c->status, new_text) == 0)
        return true;
    (void)snprintf(c->status, sizeof c->status, "%s", new_text);
    if (c->is_remote) {
        c->remote->status(c->remote_arg, c->status);
        return true;
    }
    hide_status(q);
    if (pending(q) == 0 || q->lost == 0)
        show_status(q);
    update_interest(q);
    return true;
}

bool console_source_is_dropped(const struct console_source *s) {
    return queue_of(s->console, s->stream)->how == HOW_NONE;
}

bool console_is_terminal(const struct console *c, enum console_stream stream) {
    return queue_of(c, stream)->clears;
}

uint64_t console_lines_lost(const struct console *c) { return c->lost; }

/* --- life ------------------------------------------------------------------------------------- */

/* How to write to fd without ever waiting; header. */
static void queue_open(struct queue *q, struct console *c, int fd) {
    *q = (struct queue){.console = c, .how = HOW_NONE, .fd = fd};
    struct stat st;
    if (fstat(fd, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
        return; /* closed, or the null device */
    q->tty = S_ISCHR(st.st_mode) && isatty(fd);
    const char *term = getenv("TERM");
    q->clears = q->tty && term != NULL && strcmp(term, "dumb") != 0;
    if (S_ISSOCK(st.st_mode)) {
        q->how = HOW_SOCKET;
    } else if (q->tty || S_ISFIFO(st.st_mode)) {
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        q->how = again < 0 ? HOW_POLLED : HOW_NONBLOCK;
        q->owned = again >= 0;
        q->fd = again < 0 ? fd : again;
    } else {
        q->how = HOW_DIRECT;
        q->hangs = S_ISREG(st.st_mode);
    }
}

static int queue_start(struct queue *q, struct loop *loop) {
    switch (q->how) {
    case HOW_NONE: return 0;
    case HOW_DIRECT: return loop_timer_new(loop, on_soon, q, &q->soon);
    case HOW_NONBLOCK:
    case HOW_SOCKET:
    case HOW_POLLED:
        return loop_watch_new(loop, q->fd, 0, LOOP_PRIO_BULK, on_writable, q, &q->watch);
    }
    assert_not_reached();
}

static void queue_close(struct queue *q) {
    loop_watch_free(q->watch);
    loop_timer_free(q->soon);
    if (q->owned)
        (void)close(q->fd);
    strbuf_fini(&q->bytes);
}

static bool same_output(int a, int b) {
    struct stat x, y;
    if (fstat(a, &x) < 0 || fstat(b, &y) < 0)
        return false;
    if (S_ISCHR(x.st_mode) && S_ISCHR(y.st_mode))
        return x.st_rdev == y.st_rdev;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int console_new(struct loop *loop, int out_fd, int err_fd, struct console **ret) {
    struct console *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->given[0] = out_fd;
    c->given[1] = err_fd;
    c->streams[0] = &c->queues[0];
    c->streams[1] = same_output(out_fd, err_fd) ? &c->queues[0] : &c->queues[1];
    queue_open(&c->queues[0], c, out_fd);
    c->queues[1] = (struct queue){.console = c, .how = HOW_NONE};
    if (c->streams[1] == &c->queues[1])
        queue_open(&c->queues[1], c, err_fd);
    for (size_t i = 0; i < ARRAY_SIZE(c->queues); i++) {
        int r = queue_start(&c->queues[i], loop);
        if (r < 0) {
            console_free(c);
            return r;
        }
    }
    *ret = c;
    return 0;
}

/* In a copy of the process that made it: the old loop, and with it its watches, stays behind. */
int console_reopen(struct console *c, struct loop *loop) {
    c->loop = loop;
    c->remote = NULL;
    c->is_remote = false;
    for (int i = 0; i < 2; i++) {
        struct queue *q = &c->queues[i], old = *q;
        if (old.how == HOW_NONE)
            continue;
        queue_open(q, c, STDOUT_FILENO + i);
        q->bytes = old.bytes;
        q->done = old.done;
        q->open = old.open;
        q->lost = old.lost;
        q->progress_ns = old.progress_ns;
        q->status_shown = old.status_shown;
        if (is_pipe(q)) /* a help, not a need */
            (void)fcntl(q->fd, F_SETPIPE_SZ, PIPE_BYTES);
        int r = queue_start(q, loop);
        if (r < 0)
            return r;
        update_interest(q);
    }
    return 0;
}

void console_set_remote(struct console *c, const struct console_remote *remote, void *arg) {
    c->remote = remote;
    c->remote_arg = arg;
}

/* The other has a copy of what was queued, and of the status line. */
void console_use_remote(struct console *c, bool in_use) {
    if (c->is_remote == in_use)
        return;
    c->is_remote = in_use;
    c->status[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(c->queues); i++) {
        struct queue *q = &c->queues[i];
        if (q->how == HOW_NONE)
            continue;
        discard(q);
        q->status_shown = q->open = false;
        q->lost = 0;
        update_interest(q);
    }
}

bool console_may_hang(const struct console *c) {
    return c->streams[0]->hangs || c->streams[1]->hangs;
}

int console_fd(const struct console *c, enum console_stream stream) {
    return c->given[stream - CONSOLE_OUT];
}

size_t console_pending(const struct console *c) {
    return pending(&c->queues[0]) + pending(&c->queues[1]);
}

void console_free(struct console *c) {
    if (c == NULL)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(c->queues); i++)
        queue_close(&c->queues[i]);
    free(c);
}

static int wait_ms(uint64_t now_ns, uint64_t deadline_ns) {
    uint64_t ms = now_ns >= deadline_ns ? 0 : (deadline_ns - now_ns) / NS_PER_MS + 1;
    return (int)MIN2(MAX2(ms, UINT64_C(1)), UINT64_C(100));
}

size_t console_flush(struct console *c, uint64_t deadline_ns) {
    c->status[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(c->queues); i++)
        hide_status(&c->queues[i]);
    for (;;) {
        struct pollfd fds[2];
        nfds_t n = 0;
        size_t left = 0;
        bool moving = false;
        uint64_t now_ns = clock_now_ns();
        for (size_t i = 0; i < ARRAY_SIZE(c->queues); i++) {
            struct queue *q = &c->queues[i];
            write_out(q);
            left += pending(q);
            moving = moving || (pending(q) > 0 && is_pipe(q) && is_moving(q, now_ns));
            if (pending(q) > 0)
                fds[n++] = (struct pollfd){.fd = q->fd, .events = POLLOUT};
        }
        if (left == 0 || (now_ns >= deadline_ns && !moving))
            return left;
        (void)poll(fds, n, wait_ms(now_ns, deadline_ns));
    }
}
