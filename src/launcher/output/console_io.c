#include "launcher/output/console_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/output/console_queue_io.h"

#define CLEAR_LINE "\r\x1b[K"
#define PIPE_BYTES (1024 * 1024)

/* What descriptor 1, 2 or both refer to. */
struct output {
    struct console *console;
    struct console_queue queue;
    bool clears;                        /* the terminal understands CLEAR_LINE */
    bool open;                          /* the last line queued has no newline */
    struct console_source *open_source; /* the source of that line; NULL: it was freed */
    uint64_t open_ns;                   /* when that source wrote last */
    uint64_t lost;                      /* lines dropped and not yet reported */
    bool status_shown;                  /* the status line is the last thing queued */
    bool error_shown;                   /* the error was reported */
    bool of_sources;                    /* some of what is queued is output of sources */
    /* A time in which much is in memory; TIME_NEVER: not much is. What the reader had taken then,
     * and whether it has been quick. */
    uint64_t full_ns, full_taken;
    bool quick;
};

struct console {
    struct loop *loop;
    struct output outputs[2];
    struct output *streams[2]; /* CONSOLE_OUT, CONSOLE_ERR; both can be the same */
    char status[CONSOLE_STATUS_MAX];
    uint64_t lost;
    bool failed;
    bool takes_rest;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    int given[2];                        /* the descriptors that it was made with */
    const struct console_remote *remote; /* NULL: none is in use */
    void *remote_arg;
};

static struct output *output_of(const struct console *c, enum console_stream stream) {
    return c->streams[stream - CONSOLE_OUT];
}

static bool is_closed(const struct output *o) { return console_queue_is_closed(&o->queue); }

static uint64_t pending(const struct output *o) { return console_queue_pending(&o->queue); }

static size_t in_memory(const struct output *o) { return console_queue_in_memory(&o->queue); }

static void add_text(struct output *o, const char *text) {
    console_queue_add(&o->queue, text, strlen(text));
}

static void hide_status(struct output *o) {
    if (o->status_shown)
        add_text(o, CLEAR_LINE);
    o->status_shown = false;
}

/* How many bytes of a text fit into `columns`. Continuation bytes of UTF-8 characters take no
 * column. */
static size_t cut_to(const char *text, size_t columns) {
    size_t i = 0, used = 0;
    for (; text[i] != '\0'; i++) {
        bool begins = ((uint8_t)text[i] & 0xc0) != 0x80;
        if (begins && used++ == columns)
            break;
    }
    return i;
}

static size_t columns_of(int fd) {
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

static void show_status(struct output *o) {
    const char *status = o->console->status;
    if (status[0] == '\0' || o->status_shown || o->open || !o->clears || is_closed(o) ||
        o != output_of(o->console, CONSOLE_ERR))
        return;
    console_queue_add(&o->queue, status, cut_to(status, columns_of(o->queue.fd) - 1));
    o->status_shown = true;
}

/* Ends an open line and hides the status, so that a new line can begin. */
static void begin_line(struct output *o) {
    hide_status(o);
    if (o->open)
        add_text(o, "\n");
    o->open = false;
    o->open_source = NULL;
}

static void show_marker(struct output *o) {
    char text[96];
    uint64_t lost = o->lost;
    o->lost = 0;
    begin_line(o);
    (void)snprintf(text, sizeof text,
                   "muster: %" PRIu64 " %s not shown: the terminal is too slow\n", lost,
                   lost == 1 ? "line" : "lines");
    add_text(o, text);
}

static void on_written(void *arg) {
    struct output *o = arg;
    if (o->lost > 0 && in_memory(o) < CONSOLE_OWN_MAX / 2)
        show_marker(o);
    if (in_memory(o) <= CONSOLE_WAIT_BYTES)
        o->full_ns = TIME_NEVER;
    if (pending(o) > 0)
        return;
    o->of_sources = false;
    show_status(o);
    if (o->console->on_empty != NULL && console_pending(o->console) == 0)
        o->console->on_empty(o->console->on_empty_arg);
}

/* A reader may leave on purpose. */
static bool reader_left(const struct output *o, int error) {
    return error == EPIPE || error == ECONNRESET || (error == EIO && o->queue.tty);
}

/* Reports the error once: on standard error, and that of standard error on standard output, if
 * output of workers is lost and its reader has not left on purpose. */
static void on_error(void *arg, int error) {
    struct output *o = arg, *out = output_of(o->console, CONSOLE_OUT);
    struct output *to = o == out ? output_of(o->console, CONSOLE_ERR) : out;
    bool loss = o->of_sources && !reader_left(o, error);
    char text[192];
    o->console->failed = o->console->failed || loss;
    if (o->error_shown || is_closed(to) || (o != out && !loss))
        return;
    o->error_shown = true;
    begin_line(to);
    (void)snprintf(text, sizeof text,
                   "muster: can't write to standard %s: %s; the job continues; its output is "
                   "dropped\n",
                   o == out ? "output" : "error",
                   o->queue.unusable ? "it is closed" : strerror(error));
    add_text(to, text);
    console_queue_update(&to->queue);
}

static const struct console_queue_ops queue_ops = {on_written, on_error};

/* Before a source's bytes. False: there is no reader. */
static bool make_room(struct output *o, size_t more) {
    o->of_sources = true;
    if (o->queue.unusable)
        on_error(o, EBADF);
    if (is_closed(o))
        return false;
    console_queue_make_room(&o->queue, more); /* it writes, and can find out that nobody reads */
    return !is_closed(o);
}

static void lose(struct output *o, uint64_t lines) {
    o->lost += lines;
    o->console->lost += lines;
}

/* --- sources ---------------------------------------------------------------------------------- */

void console_source_init(struct console_source *s, struct console *c, enum console_stream stream,
                         const char *prefix) {
    *s = (struct console_source){
        .console = c, .stream = stream, .prefix = prefix == NULL ? "" : prefix};
}

void console_source_fini(struct console_source *s) {
    if (s->console == NULL)
        return;
    struct output *o = output_of(s->console, s->stream);
    if (o->open_source == s)
        o->open_source = NULL;
    *s = (struct console_source){0};
}

void console_source_piece(struct console_source *s, const struct linebuf_piece *piece) {
    struct output *o = output_of(s->console, s->stream);
    if (!make_room(o, piece->len + strlen(s->prefix) + sizeof CLEAR_LINE + 2))
        return;
    bool mine = o->open && o->open_source == s && piece->start != LINEBUF_NEW;
    if (!mine)
        begin_line(o);
    else if (piece->start == LINEBUF_REPLACES)
        add_text(o, CLEAR_LINE);
    if (!mine || piece->start == LINEBUF_REPLACES)
        add_text(o, s->prefix);
    console_queue_add(&o->queue, piece->data, piece->len);
    if (piece->ended)
        add_text(o, "\n");
    o->open = !piece->ended;
    o->open_source = piece->ended ? NULL : s;
    o->open_ns = piece->ended ? 0 : clock_now_ns();
    console_queue_update(&o->queue);
}

void console_source_exact(struct console_source *s, const char *data, size_t len) {
    struct output *o = output_of(s->console, s->stream);
    if (len == 0 || !make_room(o, len + sizeof CLEAR_LINE))
        return;
    hide_status(o);
    console_queue_add(&o->queue, data, len);
    o->open = data[len - 1] != '\n';
    o->open_source = o->open ? s : NULL;
    console_queue_update(&o->queue);
}

bool console_source_yields(const struct console_source *s) {
    const struct output *o = output_of(s->console, s->stream);
    return o->open && o->open_source != NULL && o->open_source != s &&
           clock_now_ns() < o->open_ns + CONSOLE_BAR_NS;
}

static uint64_t count_lines(const char *text, size_t len) {
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return MAX2(n, UINT64_C(1));
}

#define LINES_PIECE ((size_t)16 * 1024)
#define LINE_GUESS 16 /* assumed bytes of a line */

/* At most LINES_PIECE, but at least one line. */
static size_t next_lines(const char *lines, size_t len) {
    if (len <= LINES_PIECE)
        return len;
    const char *end = memrchr(lines, '\n', LINES_PIECE);
    if (end == NULL)
        end = memchr(lines + LINES_PIECE, '\n', len - LINES_PIECE);
    return (size_t)(end - lines) + 1;
}

/* Prefixes are copied as a piece of constant size, because that is faster than copying their exact
 * size. The line then overwrites the excess bytes. */
#define PREFIX_PIECE ((size_t)32)

static void add_lines(struct strbuf *bytes, const char *source_prefix, size_t prefix_len,
                      const char *lines, size_t len) {
    bool small = prefix_len <= PREFIX_PIECE;
    char prefix[PREFIX_PIECE] = {0};
    if (small)
        memcpy(prefix, source_prefix, prefix_len);
    while (len > 0) {
        const char *end = prefix_len == 0 ? lines + len - 1 : memchr(lines, '\n', len);
        size_t n = (size_t)(end - lines) + 1;
        char *to = strbuf_room(bytes, prefix_len + n + PREFIX_PIECE);
        if (small)
            memcpy(to, prefix, PREFIX_PIECE);
        else
            memcpy(to, source_prefix, prefix_len);
        memcpy(to + prefix_len, lines, n);
        bytes->len += prefix_len + n;
        lines += n;
        len -= n;
    }
    bytes->data[bytes->len] = '\0';
}

void console_source_lines(struct console_source *s, const char *lines, size_t len) {
    struct output *o = output_of(s->console, s->stream);
    size_t prefix_len = strlen(s->prefix);
    while (len > 0) {
        size_t n = next_lines(lines, len);
        if (!make_room(o, n + prefix_len * (n / LINE_GUESS + 1) + sizeof CLEAR_LINE + 2))
            return;
        begin_line(o);
        add_lines(console_queue_buffer(&o->queue), s->prefix, prefix_len, lines, n);
        lines += n;
        len -= n;
    }
    console_queue_update(&o->queue);
}

bool console_source_must_wait(const struct console_source *s) {
    struct output *o = output_of(s->console, s->stream);
    size_t waiting = in_memory(o);
    if (!console_queue_has_reader(&o->queue))
        return false;
    if (waiting <= CONSOLE_WAIT_BYTES) {
        o->full_ns = TIME_NEVER;
        return false;
    }
    uint64_t now_ns = clock_now_ns();
    if (o->full_ns == TIME_NEVER || now_ns >= o->full_ns + CONSOLE_QUICK_NS) {
        o->quick =
            o->full_ns == TIME_NEVER || o->queue.taken - o->full_taken >= CONSOLE_QUICK_BYTES;
        o->full_ns = now_ns;
        o->full_taken = o->queue.taken;
    }
    if (o->quick && !o->queue.spilling)
        return true;
    return waiting > CONSOLE_SPOOL_BYTES && !console_queue_spill(&o->queue);
}

bool console_source_is_full(const struct console_source *s) {
    struct output *o = output_of(s->console, s->stream);
    return console_queue_has_reader(&o->queue) && in_memory(o) > CONSOLE_MEMORY_MAX &&
           !console_queue_spill(&o->queue) && !s->console->takes_rest;
}

void console_take_rest(struct console *c) { c->takes_rest = true; }

void console_source_end(struct console_source *s) {
    struct output *o = output_of(s->console, s->stream);
    if (!o->open || o->open_source != s)
        return;
    o->open_source = NULL;
    if (s->prefix[0] == '\0')
        return;
    add_text(o, "\n");
    o->open = false;
    console_queue_update(&o->queue);
}

void console_print(struct console *c, enum console_stream stream, const char *text, size_t len) {
    struct output *o = output_of(c, stream);
    if (is_closed(o) || len == 0)
        return;
    if (c->remote != NULL) {
        c->remote->print(c->remote_arg, stream, text, len);
        return;
    }
    console_queue_make_room(&o->queue, len + sizeof CLEAR_LINE + 1);
    if (in_memory(o) + len > CONSOLE_OWN_MAX) {
        lose(o, count_lines(text, len));
        return;
    }
    begin_line(o);
    console_queue_add(&o->queue, text, len);
    o->open = text[len - 1] != '\n';
    console_queue_update(&o->queue);
}

void console_log_sink(void *arg, const char *line, size_t len) {
    console_print(arg, CONSOLE_ERR, line, len);
}

bool console_status(struct console *c, const char *text) {
    struct output *o = output_of(c, CONSOLE_ERR);
    if (!o->clears || is_closed(o))
        return false;
    const char *new_text = text == NULL ? "" : text;
    if (strcmp(c->status, new_text) == 0)
        return true;
    (void)snprintf(c->status, sizeof c->status, "%s", new_text);
    if (c->remote != NULL) {
        c->remote->status(c->remote_arg, c->status);
        return true;
    }
    hide_status(o);
    if (pending(o) == 0 || o->lost == 0)
        show_status(o);
    console_queue_update(&o->queue);
    return true;
}

bool console_status_fits(const struct console *c, const char *text) {
    return text[cut_to(text, columns_of(c->given[CONSOLE_ERR - CONSOLE_OUT]) - 1)] == '\0';
}

bool console_source_is_dropped(const struct console_source *s) {
    const struct output *o = output_of(s->console, s->stream);
    return is_closed(o) && !(o->queue.unusable && !o->console->failed);
}

bool console_is_terminal(const struct console *c, enum console_stream stream) {
    return output_of(c, stream)->clears;
}

uint64_t console_lines_lost(const struct console *c) { return c->lost; }

bool console_failed(const struct console *c) { return c->failed; }

/* --- life ------------------------------------------------------------------------------------- */

static void output_open(struct output *o, struct console *c, int fd) {
    const char *term = getenv("TERM");
    *o = (struct output){.console = c, .full_ns = TIME_NEVER};
    console_queue_open(&o->queue, fd);
    o->clears = o->queue.tty && term != NULL && strcmp(term, "dumb") != 0;
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
    c->streams[0] = &c->outputs[0];
    c->streams[1] = same_output(out_fd, err_fd) ? &c->outputs[0] : &c->outputs[1];
    output_open(&c->outputs[0], c, out_fd);
    c->outputs[1] =
        (struct output){.console = c, .queue.kind = CONSOLE_QUEUE_NONE, .queue.spool.fd = -1};
    if (c->streams[1] == &c->outputs[1])
        output_open(&c->outputs[1], c, err_fd);
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++) {
        struct output *o = &c->outputs[i];
        int r = console_queue_start(&o->queue, loop, &queue_ops, o);
        if (r < 0) {
            console_free(c);
            return r;
        }
    }
    *ret = c;
    return 0;
}

/* Runs in a copy of the process that made the console: the old loop and its watches are not used
 * any more. */
int console_reopen(struct console *c, struct loop *loop) {
    c->loop = loop;
    c->remote = NULL;
    for (int i = 0; i < 2; i++) {
        struct output *o = &c->outputs[i], old = *o;
        if (is_closed(&old))
            continue; /* console_new() has seen why */
        output_open(o, c, STDOUT_FILENO + i);
        o->queue.spool.size = old.queue.spool.size;
        o->queue.bytes = old.queue.bytes;
        o->queue.done = old.queue.done;
        o->open = old.open;
        o->lost = old.lost;
        o->status_shown = old.status_shown;
        if (console_queue_is_pipe(&o->queue)) /* useful, but not required */
            (void)fcntl(o->queue.fd, F_SETPIPE_SZ, PIPE_BYTES);
        int r = console_queue_start(&o->queue, loop, &queue_ops, o);
        if (r < 0)
            return r;
        console_queue_update(&o->queue);
    }
    return 0;
}

/* The remote has a copy of what was queued, and of the status line. */
void console_use_remote(struct console *c, const struct console_remote *remote, void *arg) {
    bool same = c->remote == remote;
    c->remote = remote;
    c->remote_arg = arg;
    if (same)
        return;
    c->status[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++) {
        struct output *o = &c->outputs[i];
        if (is_closed(o))
            continue;
        console_queue_discard(&o->queue);
        o->status_shown = o->open = false;
        o->lost = 0;
        console_queue_update(&o->queue);
    }
}

bool console_may_hang(const struct console *c) {
    return c->streams[0]->queue.hangs || c->streams[1]->queue.hangs;
}

bool console_is_one(const struct console *c) { return c->streams[0] == c->streams[1]; }

int console_fd(const struct console *c, enum console_stream stream) {
    return c->given[stream - CONSOLE_OUT];
}

void console_spool(struct console *c, uint64_t bytes) {
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        c->outputs[i].queue.spool.size = bytes;
}

void console_on_empty(struct console *c, void (*fn)(void *arg), void *arg) {
    c->on_empty = fn;
    c->on_empty_arg = arg;
}

uint64_t console_pending(const struct console *c) {
    return pending(&c->outputs[0]) + pending(&c->outputs[1]);
}

void console_free(struct console *c) {
    if (c == NULL)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        console_queue_close(&c->outputs[i].queue);
    free(c);
}

static int wait_ms(uint64_t now_ns, uint64_t deadline_ns) {
    uint64_t ms = now_ns >= deadline_ns ? 0 : (deadline_ns - now_ns) / NS_PER_MS + 1;
    return (int)MIN2(MAX2(ms, UINT64_C(1)), UINT64_C(100));
}

uint64_t console_flush(struct console *c, uint64_t deadline_ns) {
    c->status[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        hide_status(&c->outputs[i]);
    for (;;) {
        struct pollfd fds[2];
        nfds_t n = 0;
        uint64_t left = 0;
        uint64_t now_ns = clock_now_ns();
        for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++) {
            struct output *o = &c->outputs[i];
            console_queue_write(&o->queue);
            left += pending(o);
            if (pending(o) > 0)
                fds[n++] = (struct pollfd){.fd = o->queue.fd, .events = POLLOUT};
        }
        if (left == 0 || now_ns >= deadline_ns)
            return left;
        (void)poll(fds, n, wait_ms(now_ns, deadline_ns));
    }
}
