#include "launcher/output/console_io.h"

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
#include "io/file.h"

#define CLEAR_LINE "\r\x1b[K"
#define PIPE_BYTES (1024 * 1024)
#define WRITE_PIECE_MAX ((size_t)512 * 1024)
#define WRITES_PER_TURN 4
#define BUFFER_KEPT ((size_t)2 * 1024 * 1024)
#define POLLED_TTY_MAX ((size_t)256)

/* --- the file --------------------------------------------------------------------------------- */

/* A queue of bytes in a file, made in $TMPDIR or /tmp when first needed; its name is removed at
 * once. It never grows above `size`: the space of bytes that were taken is used again, and is given
 * back to the disk when the queue is empty. */
struct spool {
    int fd;              /* -1: not made yet */
    uint64_t size;       /* the most bytes; 0: nothing can be added */
    uint64_t begin, end; /* positions in the stream of all bytes; the file's are modulo `size` */
    int error;           /* why nothing can be added any more, an errno; 0: it can */
};

static uint64_t spool_pending(const struct spool *s) { return s->end - s->begin; }

/* Unless the disk is full. */
static bool spool_has_room(const struct spool *s, size_t len) {
    return s->error == 0 && spool_pending(s) + len <= s->size;
}

static int make_file(void) {
    const char *tmp = getenv("TMPDIR");
    const char *dir = tmp != NULL && tmp[0] == '/' ? tmp : "/tmp";
    _cleanup_(freep) char *path = xasprintf("%s/muster-output-XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)unlink(path);
    return fd;
}

/* Writes at a position of the stream; the file is a ring. */
static int write_at(const struct spool *s, const char *data, size_t len, uint64_t at) {
    while (len > 0) {
        uint64_t from = at % s->size;
        ssize_t n = pwrite(s->fd, data, MIN2((uint64_t)len, s->size - from), (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENOSPC;
        data += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* There must be room. < 0: nothing can be added from now on. */
static int spool_add(struct spool *s, const void *data, size_t len) {
    if (s->error != 0)
        return -s->error;
    if (s->fd < 0)
        s->fd = make_file();
    int r = s->fd < 0 ? s->fd : write_at(s, data, len, s->end);
    if (r < 0)
        s->error = -r;
    else
        s->end += len;
    return r;
}

/* Gives the space back. If that fails, it is used again later. */
static void empty(struct spool *s) {
    s->begin = s->end = 0;
    if (s->fd >= 0)
        (void)!ftruncate(s->fd, 0);
}

/* Takes at most `len` of the oldest bytes. -errno: it can't be read, and all its bytes are lost. */
static ssize_t spool_take(struct spool *s, void *data, size_t len) {
    uint64_t pending = spool_pending(s), from = s->size > 0 ? s->begin % s->size : 0;
    if (pending == 0)
        return 0;
    size_t most = (size_t)MIN2(MIN2((uint64_t)len, pending), s->size - from);
    ssize_t n;
    do
        n = pread(s->fd, data, most, (off_t)from);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        int r = n < 0 ? -errno : -EIO;
        empty(s);
        s->error = -r;
        return r;
    }
    s->begin += (uint64_t)n;
    if (s->begin == s->end)
        empty(s);
    return n;
}

/* --- the queues ------------------------------------------------------------------------------- */

enum output_kind {
    OUTPUT_NONE = 1, /* closed or broken: output is dropped */
    OUTPUT_DIRECT,   /* a plain file or a device that never waits */
    OUTPUT_NONBLOCK, /* a terminal or pipe, opened again */
    OUTPUT_SOCKET,
    OUTPUT_POLLED, /* a terminal or pipe that can't be opened again */
};

/* What descriptor 1, 2 or both refer to: a queue that the loop writes without waiting. */
struct output {
    struct console *console;
    enum output_kind kind;
    int fd;
    bool owned; /* fd is closed at the end */
    bool tty;
    bool hangs;    /* a plain file: its disk can hang */
    bool unusable; /* it was closed, or is not open for writing */
    struct strbuf bytes;
    size_t done;    /* how much of bytes is already written */
    uint64_t taken; /* bytes written so far; */
    uint64_t seen;  /* at the last console_drop_if_stuck() */
    /* After bytes: what is in the file, then what still has to go there. */
    struct spool spool;
    struct strbuf behind;
    bool spilling;                      /* new bytes go to `behind` */
    struct loop_watch *watch;           /* NULL: DIRECT, NONE */
    struct loop_timer *soon;            /* DIRECT: writes at the end of the turn */
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
    struct output outputs[2];
    struct output *streams[2]; /* CONSOLE_OUT, CONSOLE_ERR; both can be the same */
    char status[CONSOLE_STATUS_MAX];
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

static bool is_closed(const struct output *o) { return o->kind == OUTPUT_NONE; }

static size_t in_memory(const struct output *o) { return o->bytes.len - o->done + o->behind.len; }

static uint64_t pending(const struct output *o) { return in_memory(o) + spool_pending(&o->spool); }

static void on_written(struct output *o);
static void on_error(struct output *o, int error);

/* Whether its reader can make it wait: a terminal, pipe or socket. */
static bool queue_has_reader(const struct output *o) {
    return o->kind != OUTPUT_NONE && o->kind != OUTPUT_DIRECT;
}

static void queue_discard(struct output *o) {
    strbuf_clear(&o->bytes);
    strbuf_clear(&o->behind);
    o->done = 0;
    o->spilling = false;
    file_close(&o->spool.fd);
    o->spool = (struct spool){.fd = -1, .size = o->spool.size};
}

#define SPILL_PIECE ((size_t)256 * 1024)

/* Lets further bytes wait in the file until the queue is empty. False: there is no room in it. */
static bool queue_spill(struct output *o) {
    bool room = spool_has_room(&o->spool, SPILL_PIECE);
    o->spilling = o->spilling || room;
    return room;
}

/* Moves bytes from memory to the file, once there are enough of them. What has no room stays. */
static void spill(struct output *o) {
    uint64_t room = o->spool.size - spool_pending(&o->spool);
    size_t n = (size_t)MIN2((uint64_t)o->behind.len, room);
    if (n < SPILL_PIECE || spool_add(&o->spool, o->behind.data, n) < 0)
        return;
    o->behind.len -= n;
    memmove(o->behind.data, o->behind.data + n, o->behind.len);
}

/* The queue's next bytes, if those before are written. */
static void unspill(struct output *o) {
    if (o->done < o->bytes.len || !o->spilling)
        return;
    strbuf_clear(&o->bytes);
    o->done = 0;
    ssize_t n = spool_take(&o->spool, strbuf_room(&o->bytes, SPILL_PIECE), SPILL_PIECE);
    if (n > 0) {
        o->bytes.len = (size_t)n;
        return;
    }
    if (n < 0)
        on_error(o, (int)-n);
    struct strbuf empty = o->bytes;
    o->bytes = o->behind;
    o->behind = empty;
    o->spilling = false;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void give_up(struct output *o) {
    o->kind = OUTPUT_NONE;
    queue_discard(o);
    loop_watch_free(TAKE_PTR(o->watch));
}

static ssize_t write_piece(struct output *o) {
    const char *data = o->bytes.data + o->done;
    size_t len = MIN2(o->bytes.len - o->done, WRITE_PIECE_MAX);
    switch (o->kind) {
    case OUTPUT_DIRECT:
    case OUTPUT_NONBLOCK: return write(o->fd, data, len);
    case OUTPUT_SOCKET: return send(o->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case OUTPUT_POLLED: {
        struct pollfd p = {.fd = o->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        return write(o->fd, data, MIN2(len, o->tty ? POLLED_TTY_MAX : (size_t)PIPE_BUF));
    }
    case OUTPUT_NONE: break;
    }
    assert_not_reached();
}

static void queue_update(struct output *o) {
    if (o->behind.len >= SPILL_PIECE)
        spill(o);
    bool any = pending(o) > 0;
    if (o->watch != NULL)
        loop_watch_set(o->watch, any ? LOOP_WRITE : 0);
    else if (o->kind == OUTPUT_DIRECT && o->soon != NULL)
        loop_timer_set(o->soon, any ? clock_now_ns() : TIME_NEVER);
}

/* Everything is written. A large buffer is given back. */
static void start_again(struct output *o) {
    o->done = 0;
    o->spilling = false;
    if (o->bytes.cap > BUFFER_KEPT)
        strbuf_fini(&o->bytes);
    if (o->behind.cap > BUFFER_KEPT)
        strbuf_fini(&o->behind);
    strbuf_clear(&o->bytes);
}

/* Writes what can be written without waiting, a bounded amount. */
static void queue_write(struct output *o) {
    for (int i = 0; i < WRITES_PER_TURN && !is_closed(o); i++) {
        unspill(o);
        if (o->done == o->bytes.len)
            break;
        ssize_t n = write_piece(o);
        if (n >= 0) {
            o->done += (size_t)n;
            o->taken += (uint64_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            break;
        int error = errno;
        if (o->kind == OUTPUT_DIRECT && (error == ENOSPC || error == EDQUOT))
            queue_discard(o);
        else
            give_up(o);
        on_error(o, error);
    }
    if (pending(o) == 0)
        start_again(o);
    on_written(o);
    queue_update(o);
}

static void on_writable(void *arg, int fd, unsigned events) { queue_write(arg); }

static void on_soon(void *arg) { queue_write(arg); }

static struct strbuf *queue_buffer(struct output *o) {
    size_t left = o->bytes.len - o->done;
    if (o->spilling)
        return &o->behind;
    /* moving the rest each time would be slow */
    if (o->done >= WRITE_PIECE_MAX && o->done >= left) {
        memmove(o->bytes.data, o->bytes.data + o->done, left);
        o->bytes.len = left;
        o->done = 0;
    }
    return &o->bytes;
}

static void queue_add(struct output *o, const void *data, size_t len) {
    if (!is_closed(o))
        strbuf_add_bytes(queue_buffer(o), data, len);
}

/* Before `more` bytes are added: a plain file's queue is written as soon as it is long enough. */
static void queue_make_room(struct output *o, size_t more) {
    if (o->kind == OUTPUT_DIRECT && pending(o) + more > WRITE_PIECE_MAX)
        queue_write(o);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Chooses how to write to fd without ever waiting. */
static void queue_open(struct output *o, int fd) {
    o->kind = OUTPUT_NONE;
    o->fd = fd;
    o->spool = (struct spool){.fd = -1};
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    o->unusable = flags < 0 || (flags & O_ACCMODE) == O_RDONLY;
    if (o->unusable || fstat(fd, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
        return; /* the null device */
    o->tty = S_ISCHR(st.st_mode) && isatty(fd);
    if (S_ISSOCK(st.st_mode)) {
        o->kind = OUTPUT_SOCKET;
    } else if (o->tty || S_ISFIFO(st.st_mode)) {
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        o->kind = again < 0 ? OUTPUT_POLLED : OUTPUT_NONBLOCK;
        o->owned = again >= 0;
        o->fd = again < 0 ? fd : again;
    } else {
        o->kind = OUTPUT_DIRECT;
        o->hangs = S_ISREG(st.st_mode);
    }
}

static void queue_start(struct output *o, struct loop *loop) {
    if (o->kind == OUTPUT_DIRECT)
        o->soon = loop_timer_new(loop, on_soon, o);
    else if (o->kind != OUTPUT_NONE)
        o->watch = loop_watch_new(loop, o->fd, 0, LOOP_PRIO_BULK, on_writable, o);
}

static void queue_close(struct output *o) {
    loop_watch_free(o->watch);
    loop_timer_free(o->soon);
    if (o->owned)
        (void)close(o->fd);
    strbuf_fini(&o->bytes);
    strbuf_fini(&o->behind);
    file_close(&o->spool.fd);
}

/* --- lines and status ------------------------------------------------------------------------- */

static void add_text(struct output *o, const char *text) { queue_add(o, text, strlen(text)); }

static void hide_status(struct output *o) {
    if (o->status_shown)
        add_text(o, CLEAR_LINE);
    o->status_shown = false;
}

/* How many bytes of UTF-8 fit into `columns`; continuation bytes take none. */
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
    queue_add(o, status, cut_to(status, columns_of(o->fd) - 1));
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

/* Some bytes were written, or none could be written now. */
static void on_written(struct output *o) {
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
    return error == EPIPE || error == ECONNRESET || (error == EIO && o->tty);
}

/* What was queued is lost. Reports the error once, unless the reader has left, as a pager may: on
 * standard error, and that of standard error on standard output, if output of workers is lost. */
static void on_error(struct output *o, int error) {
    struct output *out = output_of(o->console, CONSOLE_OUT);
    struct output *to = o == out ? output_of(o->console, CONSOLE_ERR) : out;
    const bool left = reader_left(o, error), loss = o->of_sources && !left;
    char text[192];
    o->console->failed = o->console->failed || loss;
    if (o->error_shown || is_closed(to) || left || (o != out && !loss))
        return;
    o->error_shown = true;
    begin_line(to);
    (void)snprintf(text, sizeof text,
                   "muster: can't write to standard %s: %s; the job continues; its output is "
                   "dropped\n",
                   o == out ? "output" : "error", o->unusable ? "it is closed" : strerror(error));
    add_text(to, text);
    queue_update(to);
}

/* Before a source's bytes. False: there is no reader. */
static bool make_room(struct output *o, size_t more) {
    o->of_sources = true;
    if (o->unusable)
        on_error(o, EBADF);
    if (is_closed(o))
        return false;
    queue_make_room(o, more); /* it writes, and can detect that the reader has gone */
    return !is_closed(o);
}

/* --- sources ---------------------------------------------------------------------------------- */

void console_source_init(struct console_source *s, struct console *c, enum console_stream stream,
                         const char *prefix) {
    *s = (struct console_source){
        .console = c, .stream = stream, .prefix = prefix == NULL ? "" : prefix};
    size_t len = strlen(s->prefix);
    s->known = len > 0 && s->prefix[len - 1] == ' ' ? len - 1 : 0;
}

static bool has_prefix(const struct console_source *s, const char *line, size_t len) {
    return s->known > 0 && len >= s->known && memcmp(line, s->prefix, s->known) == 0;
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
    if (!mine && piece->start != LINEBUF_NEW && piece->len == 0)
        return; /* another line has already ended this one */
    if (!mine)
        begin_line(o);
    else if (piece->start == LINEBUF_REPLACES)
        add_text(o, CLEAR_LINE);
    if ((!mine || piece->start == LINEBUF_REPLACES) && !has_prefix(s, piece->data, piece->len))
        add_text(o, s->prefix);
    queue_add(o, piece->data, piece->len);
    if (piece->ended)
        add_text(o, "\n");
    o->open = !piece->ended;
    o->open_source = piece->ended ? NULL : s;
    o->open_ns = piece->ended ? 0 : clock_now_ns();
    queue_update(o);
}

void console_source_exact(struct console_source *s, const char *data, size_t len) {
    struct output *o = output_of(s->console, s->stream);
    if (len == 0 || !make_room(o, len + sizeof CLEAR_LINE))
        return;
    hide_status(o);
    queue_add(o, data, len);
    o->open = data[len - 1] != '\n';
    o->open_source = o->open ? s : NULL;
    queue_update(o);
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

/* A copy of constant size is faster than an exact one; the line overwrites the excess. */
#define PREFIX_PIECE ((size_t)32)

static void add_lines(struct strbuf *bytes, const struct console_source *s, const char *lines,
                      size_t len) {
    const size_t whole = strlen(s->prefix);
    bool small = whole <= PREFIX_PIECE;
    char prefix[PREFIX_PIECE] = {0};
    if (small)
        memcpy(prefix, s->prefix, whole);
    while (len > 0) {
        const char *end = whole == 0 ? lines + len - 1 : memchr(lines, '\n', len);
        size_t n = (size_t)(end - lines) + 1, prefix_len = has_prefix(s, lines, n) ? 0 : whole;
        char *to = strbuf_room(bytes, prefix_len + n + PREFIX_PIECE);
        if (small)
            memcpy(to, prefix, PREFIX_PIECE);
        else
            memcpy(to, s->prefix, prefix_len);
        memcpy(to + prefix_len, lines, n);
        bytes->len += prefix_len + n;
        lines += n;
        len -= n;
    }
    bytes->data[bytes->len] = '\0';
}

/* Several whole lines, each with its newline. */
static void show_lines(struct console_source *s, const char *lines, size_t len) {
    struct output *o = output_of(s->console, s->stream);
    size_t prefix_len = strlen(s->prefix);
    while (len > 0) {
        size_t n = next_lines(lines, len);
        if (!make_room(o, n + prefix_len * (n / LINE_GUESS + 1) + sizeof CLEAR_LINE + 2))
            return;
        begin_line(o);
        add_lines(queue_buffer(o), s, lines, n);
        lines += n;
        len -= n;
    }
    queue_update(o);
}

void console_source_feed(struct console_source *s, struct linebuf *to, const char *data, size_t len,
                         uint64_t now_ns) {
    bool scans = to->collapse && memchr(data, '\r', len) != NULL;
    while (len > 0 && !scans) {
        bool empty = linebuf_is_empty(to);
        const char *end = empty ? memrchr(data, '\n', len) : memchr(data, '\n', len);
        if (end == NULL)
            break;
        size_t n = (size_t)(end - data) + 1;
        if (empty)
            show_lines(s, data, n);
        else
            linebuf_feed(to, data, n, now_ns);
        data += n;
        len -= n;
    }
    if (len > 0)
        linebuf_feed(to, data, len, now_ns);
}

bool console_source_must_wait(const struct console_source *s) {
    struct output *o = output_of(s->console, s->stream);
    size_t waiting = in_memory(o);
    if (!queue_has_reader(o))
        return false;
    if (waiting <= CONSOLE_WAIT_BYTES) {
        o->full_ns = TIME_NEVER;
        return false;
    }
    uint64_t now_ns = clock_now_ns();
    if (o->full_ns == TIME_NEVER || now_ns >= o->full_ns + CONSOLE_QUICK_NS) {
        o->quick = o->full_ns == TIME_NEVER || o->taken - o->full_taken >= CONSOLE_QUICK_BYTES;
        o->full_ns = now_ns;
        o->full_taken = o->taken;
    }
    if (o->quick && !o->spilling)
        return true;
    return waiting > CONSOLE_SPOOL_BYTES && !queue_spill(o);
}

bool console_source_is_full(const struct console_source *s) {
    struct output *o = output_of(s->console, s->stream);
    return queue_has_reader(o) && in_memory(o) > CONSOLE_MEMORY_MAX && !queue_spill(o) &&
           !s->console->takes_rest;
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
    queue_update(o);
}

void console_print(struct console *c, enum console_stream stream, const char *text, size_t len) {
    struct output *o = output_of(c, stream);
    if (is_closed(o) || len == 0)
        return;
    if (c->remote != NULL) {
        c->remote->print(c->remote_arg, stream, text, len);
        return;
    }
    queue_make_room(o, len + sizeof CLEAR_LINE + 1);
    if (in_memory(o) + len > CONSOLE_OWN_MAX) {
        o->lost += count_lines(text, len);
        return;
    }
    begin_line(o);
    queue_add(o, text, len);
    o->open = text[len - 1] != '\n';
    queue_update(o);
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
    queue_update(o);
    return true;
}

bool console_status_fits(const struct console *c, const char *text) {
    return text[cut_to(text, columns_of(c->given[CONSOLE_ERR - CONSOLE_OUT]) - 1)] == '\0';
}

bool console_source_is_dropped(const struct console_source *s) {
    const struct output *o = output_of(s->console, s->stream);
    return is_closed(o) && !(o->unusable && !o->console->failed);
}

bool console_is_terminal(const struct console *c, enum console_stream stream) {
    return output_of(c, stream)->clears;
}

bool console_failed(const struct console *c) { return c->failed; }

/* --- life ------------------------------------------------------------------------------------- */

static void output_open(struct output *o, struct console *c, int fd) {
    const char *term = getenv("TERM");
    *o = (struct output){.console = c, .full_ns = TIME_NEVER};
    queue_open(o, fd);
    o->clears = o->tty && term != NULL && strcmp(term, "dumb") != 0;
}

static bool same_output(int a, int b) {
    struct stat x, y;
    if (fstat(a, &x) < 0 || fstat(b, &y) < 0)
        return false;
    if (S_ISCHR(x.st_mode) && S_ISCHR(y.st_mode))
        return x.st_rdev == y.st_rdev;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct console *console_new(struct loop *loop, int out_fd, int err_fd) {
    struct console *c = xcalloc(1, sizeof *c);
    c->given[0] = out_fd;
    c->given[1] = err_fd;
    c->streams[0] = &c->outputs[0];
    c->streams[1] = same_output(out_fd, err_fd) ? &c->outputs[0] : &c->outputs[1];
    output_open(&c->outputs[0], c, out_fd);
    c->outputs[1] = (struct output){.console = c, .kind = OUTPUT_NONE, .spool.fd = -1};
    if (c->streams[1] == &c->outputs[1])
        output_open(&c->outputs[1], c, err_fd);
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        queue_start(&c->outputs[i], loop);
    return c;
}

void console_reopen(struct console *c, struct loop *loop) {
    c->remote = NULL;
    for (int i = 0; i < 2; i++) {
        struct output *o = &c->outputs[i];
        if (is_closed(o))
            continue;    /* console_new() has seen why */
        o->watch = NULL; /* this and the next were of the other process's loop */
        o->soon = NULL;
        queue_open(o, STDOUT_FILENO + i);
        if (queue_has_reader(o) && !o->tty) /* useful, but not required */
            (void)fcntl(o->fd, F_SETPIPE_SZ, PIPE_BYTES);
        queue_start(o, loop);
        queue_update(o);
    }
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
        queue_discard(o);
        o->status_shown = o->open = false;
        o->lost = 0;
        queue_update(o);
    }
}

bool console_may_hang(const struct console *c) {
    return c->streams[0]->hangs || c->streams[1]->hangs;
}

bool console_is_one(const struct console *c) { return c->streams[0] == c->streams[1]; }

int console_fd(const struct console *c, enum console_stream stream) {
    return c->given[stream - CONSOLE_OUT];
}

void console_spool(struct console *c, uint64_t bytes) {
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        c->outputs[i].spool.size = bytes;
}

void console_on_empty(struct console *c, void (*fn)(void *arg), void *arg) {
    c->on_empty = fn;
    c->on_empty_arg = arg;
}

uint64_t console_pending(const struct console *c) {
    return pending(&c->outputs[0]) + pending(&c->outputs[1]);
}

bool console_drop_if_stuck(struct console *c, enum console_stream stream, size_t most) {
    struct output *o = output_of(c, stream);
    bool stuck = queue_has_reader(o) && in_memory(o) > most && o->taken == o->seen;
    o->seen = o->taken;
    if (stuck) {
        give_up(o);
        on_written(o);
    }
    return stuck;
}

void console_free(struct console *c) {
    if (c == NULL)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(c->outputs); i++)
        queue_close(&c->outputs[i]);
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
            queue_write(o);
            left += pending(o);
            if (pending(o) > 0)
                fds[n++] = (struct pollfd){.fd = o->fd, .events = POLLOUT};
        }
        if (left == 0 || now_ns >= deadline_ns)
            return left;
        (void)poll(fds, n, wait_ms(now_ns, deadline_ns));
    }
}
