#include "launcher/output/writer_stream_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/output/linebuf.h"
#include "launcher/output/log_times_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/logmux_io.h"
#include "launcher/output/writer_wire_io.h"

#define READ_BYTES ((size_t)256 * 1024)
#define READS_PER_TURN 4
#define PTY_BYTES ((size_t)64 * 1024)
/* How many reads follow at once after an exit: enough for any of our pipes, but bounded, because a
 * process that was left behind can continue to write. */
#define READS_AT_END 16
/* Of a longer line, each part of this size is filtered like a line. */
#define FILTERED_LINE_MAX ((size_t)1024 * 1024)

struct writer_stream {
    struct writer_worker *worker;
    int pipe_fd;            /* -1: nothing to read (any more) */
    int file_fd;            /* of tee; -1 */
    struct log_times times; /* of the bytes in it */
    char *path;             /* of its log file; NULL: none */
    char *prefix;
    bool shown; /* its lines go to the console */
    bool exact; /* its bytes do, as they come */
    bool pty;   /* each read returns little */
    bool waits; /* the last read waits for room in the console */
    bool keeps_tail;
    struct strbuf tail;
    char *const *filters; /* NULL: none */
    int filtered_fd;      /* -1: none */
    char *filtered_path;
    struct linebuf filtered;
    struct linebuf lines;
    struct console_source source;
    struct loop_watch *watch;
    struct loop_timer *timer; /* when lines are to be shown, or when `waits` ends */
    uint64_t retry_ns;
    uint64_t waits_since_ns;           /* with `waits` */
    uint64_t file_lost, filtered_lost; /* bytes */
};

enum { OUT = 0, ERR = 1 };

struct writer_worker {
    struct loop *loop;
    uint32_t user, index;
    struct writer_worker_ops ops;
    void *arg;
    bool exited;
    bool held; /* and that was told */
    struct loop_timer *grace;
    struct writer_stream streams[2];
};

/* All streams share it: each reads and passes the bytes on in one step. */
static char read_buffer[READ_BYTES];

/* --- where bytes go --------------------------------------------------------------------------- */

static void on_piece(void *arg, const struct linebuf_piece *piece) {
    struct writer_stream *s = arg;
    console_source_piece(&s->source, piece);
}

/* lost: how many bytes could not be written to this file. */
static void write_file(const struct writer_stream *s, int fd, const char *path, const char *data,
                       size_t len, uint64_t *lost) {
    const struct writer_worker *w = s->worker;
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            if (*lost == 0)
                w->ops.on_not_written(w->arg, path, n == 0 ? ENOSPC : errno);
            *lost += len;
            return;
        }
    }
}

static bool contains_any(const struct linebuf_piece *piece, char *const *texts) {
    for (; *texts != NULL; texts++)
        if (memmem(piece->data, piece->len, *texts, strlen(*texts)) != NULL)
            return true;
    return false;
}

/* All workers append to one file, so each line is one write. */
static void on_filtered_piece(void *arg, const struct linebuf_piece *piece) {
    struct writer_stream *s = arg;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    if (piece->len == 0 && !piece->ended)
        return;
    if (!contains_any(piece, s->filters))
        return;
    strbuf_add(&line, s->prefix);
    strbuf_add_bytes(&line, piece->data, piece->len);
    strbuf_add_char(&line, '\n');
    write_file(s, s->filtered_fd, s->filtered_path, line.data, line.len, &s->filtered_lost);
}

/* One byte more, so that a cut line can be recognized. */
#define KEPT_BYTES (LOGMUX_TAIL_BYTES + 1)

static void keep_tail(struct writer_stream *s, const char *data, size_t len) {
    if (len > KEPT_BYTES) {
        data += len - KEPT_BYTES;
        len = KEPT_BYTES;
    }
    if (s->tail.len + len > 2 * KEPT_BYTES) {
        size_t keep = MIN2(s->tail.len, KEPT_BYTES);
        memmove(s->tail.data, s->tail.data + s->tail.len - keep, keep);
        s->tail.len = keep;
    }
    strbuf_add_bytes(&s->tail, data, len);
}

/* Whole lines go to the console together, as long as no part of a line must be stored. This is most
 * of the work for a worker that writes fast. */
static void show(struct writer_stream *s, const char *data, size_t len, uint64_t now_ns) {
    bool scans = s->lines.collapse && memchr(data, '\r', len) != NULL;
    while (len > 0 && !scans) {
        const char *end =
            linebuf_is_empty(&s->lines) ? memrchr(data, '\n', len) : memchr(data, '\n', len);
        if (end == NULL)
            break;
        size_t n = (size_t)(end - data) + 1;
        if (linebuf_is_empty(&s->lines))
            console_source_lines(&s->source, data, n);
        else
            linebuf_feed(&s->lines, data, n, now_ns);
        data += n;
        len -= n;
    }
    if (len > 0)
        linebuf_feed(&s->lines, data, len, now_ns);
}

static void write_log(struct writer_stream *s, const char *data, size_t len) {
    uint64_t lost = s->file_lost;
    log_times_grows(&s->times, clock_wall_ns());
    write_file(s, s->file_fd, s->path, data, len, &s->file_lost);
    log_times_grew(&s->times, len - (s->file_lost - lost));
}

static void take(struct writer_stream *s, const char *data, size_t len, uint64_t now_ns) {
    if (s->file_fd >= 0)
        write_log(s, data, len);
    if (s->filtered_fd >= 0)
        linebuf_feed(&s->filtered, data, len, now_ns);
    if (s->keeps_tail)
        keep_tail(s, data, len);
    bool visible = s->shown && !console_source_is_dropped(&s->source);
    if (visible && s->exact)
        console_source_exact(&s->source, data, len);
    else if (visible)
        show(s, data, len, now_ns);
}

static void end_stream(struct writer_stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_free(s->watch);
    s->watch = NULL;
    loop_timer_free(s->timer);
    s->timer = NULL;
    file_close(&s->pipe_fd);
    if (s->shown && linebuf_finish(&s->lines))
        console_source_end(&s->source);
    if (s->filtered_fd >= 0)
        (void)linebuf_finish(&s->filtered);
    file_close(&s->file_fd);
    log_times_close(&s->times);
    file_close(&s->filtered_fd);
    const struct writer_worker *w = s->worker;
    if (s->file_lost > 0)
        w->ops.on_lacking(w->arg, s->path, s->file_lost);
    if (s->filtered_lost > 0)
        w->ops.on_lacking(w->arg, s->filtered_path, s->filtered_lost);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool worker_ended(const struct writer_worker *w) {
    return w->streams[OUT].pipe_fd < 0 && w->streams[ERR].pipe_fd < 0;
}

/* Whether the console has no room for this stream's bytes now. What a worker that has ended left is
 * bounded, and others wait for it. */
static bool must_wait(const struct writer_stream *s) {
    if (!s->shown)
        return false;
    return s->worker->exited ? console_source_is_full(&s->source)
                             : console_source_must_wait(&s->source);
}

/* Fills the buffer. Of a pseudo-terminal, in several reads: each returns 4 KiB at most. */
static ssize_t read_bytes(const struct writer_stream *s) {
    size_t len = 0;
    ssize_t n;
    do {
        n = read(s->pipe_fd, read_buffer + len, sizeof read_buffer - len);
        len += n > 0 ? (size_t)n : 0;
    } while (s->pty && n > 0 && len < PTY_BYTES);
    return len > 0 ? (ssize_t)len : n;
}

/* Reads at most `reads` times. A read that is not full means that the pipe is empty now. That is
 * enough for a turn, but with `to_end` it reads until the end of file. */
static void read_some(struct writer_stream *s, int reads, bool to_end) {
    bool waited = s->waits;
    s->waits = false;
    for (; reads > 0 && s->pipe_fd >= 0; reads--) {
        s->waits = must_wait(s);
        if (s->waits) {
            uint64_t now_ns = clock_now_ns();
            s->retry_ns = now_ns + CONSOLE_RETRY_NS;
            s->waits_since_ns = waited ? s->waits_since_ns : now_ns;
            return;
        }
        waited = false;
        ssize_t n = read_bytes(s);
        if (n > 0)
            take(s, read_buffer, (size_t)n, clock_now_ns());
        else if (n == 0 || (errno != EINTR && errno != EAGAIN))
            end_stream(s);
        else if (errno == EAGAIN)
            return;
        if (n > 0 && (size_t)n < sizeof read_buffer && !to_end)
            return;
    }
}

static void update_interest(struct writer_stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_set(s->watch, s->waits ? 0 : LOOP_READ);
    uint64_t quiet_ns = s->shown ? linebuf_deadline_ns(&s->lines) : TIME_NEVER;
    loop_timer_set(s->timer, s->waits ? s->retry_ns : quiet_ns);
}

static void check_ended(struct writer_worker *w) {
    if (w->exited && worker_ended(w))
        loop_timer_set(w->grace, clock_now_ns());
}

static bool is_held(const struct writer_stream *s) {
    return s->pipe_fd >= 0 && s->waits && s->retry_ns - s->waits_since_ns >= WRITER_HELD_NS;
}

static void tell_held(struct writer_worker *w) {
    bool held = !w->exited && (is_held(&w->streams[OUT]) || is_held(&w->streams[ERR]));
    if (held == w->held)
        return;
    w->held = held;
    w->ops.on_held(w->arg, w->user, w->index, held);
}

static void read_turn(struct writer_stream *s) {
    read_some(s, READS_PER_TURN, false);
    update_interest(s);
    tell_held(s->worker);
}

/* Reads standard output before standard error: two pipes keep no order, and what a worker printed
 * before an error should be shown before it. */
static void read_in_order(struct writer_stream *s) {
    struct writer_stream *out = &s->worker->streams[OUT];
    if (s != out && out->pipe_fd >= 0 && !out->waits)
        read_turn(out);
    read_turn(s);
}

static void on_readable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    struct writer_stream *s = arg;
    read_in_order(s);
    check_ended(s->worker);
}

/* A line is unfinished only if its worker has been quiet. The rest can be in the pipe, because this
 * process was late or waited for room. */
static void on_timer(void *arg) {
    struct writer_stream *s = arg;
    read_in_order(s);
    if (s->pipe_fd >= 0 && !s->waits) {
        uint64_t now_ns = clock_now_ns();
        bool due = s->shown && linebuf_deadline_ns(&s->lines) <= now_ns;
        if (due && linebuf_is_bar(&s->lines) && console_source_yields(&s->source))
            linebuf_defer(&s->lines, now_ns);
        else if (due)
            linebuf_flush(&s->lines);
        update_interest(s);
    }
    check_ended(s->worker);
}

/* Both pipes are at their end, or the grace is over. While the console has no room for what is left
 * in them, the grace is extended. */
static void on_grace(void *arg) {
    struct writer_worker *w = arg;
    for (int i = OUT; i <= ERR; i++) {
        read_some(&w->streams[i], READS_AT_END, true);
        update_interest(&w->streams[i]);
        if (w->streams[i].pipe_fd >= 0 && w->streams[i].waits) {
            loop_timer_set(w->grace, clock_now_ns() + LOGMUX_GRACE_NS);
            return;
        }
    }
    for (int i = OUT; i <= ERR; i++)
        end_stream(&w->streams[i]);
    w->ops.on_drained(w->arg, w->user, w->index);
}

/* --- the last lines --------------------------------------------------------------------------- */

/* Reads the end of a file, and one byte more so that a cut line can be recognized. */
static void read_file_end(const char *path, struct strbuf *ret) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        char data[LOGMUX_TAIL_BYTES + 1];
        off_t from = st.st_size > (off_t)sizeof data ? st.st_size - (off_t)sizeof data : 0;
        ssize_t n = pread(fd, data, sizeof data, from);
        if (n > 0)
            strbuf_add_bytes(ret, data, (size_t)n);
    }
    file_close(&fd);
}

/* Adds one line as a terminal would show it: a progress bar in its last state. */
static void add_line(const char *line, const char *end, struct strbuf *ret) {
    while (end > line && end[-1] == '\r')
        end--;
    const char *cr = memrchr(line, '\r', (size_t)(end - line));
    const char *from = cr == NULL ? line : cr + 1;
    strbuf_add_bytes(ret, from, (size_t)(end - from));
    strbuf_add_char(ret, '\n');
}

void writer_stderr_tail(const struct writer_worker *w, const char *path, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf file = {0};
    const struct strbuf *all = &file;
    strbuf_clear(ret);
    if (w != NULL && w->streams[ERR].keeps_tail)
        all = &w->streams[ERR].tail;
    else if (path[0] != '\0')
        read_file_end(path, &file);
    const char *text = strbuf_text(all), *end = text + all->len, *p = end;
    const char *first = all->len > LOGMUX_TAIL_BYTES ? end - LOGMUX_TAIL_BYTES : text;
    if (first > text && first[-1] != '\n') {
        const char *nl = memchr(first, '\n', (size_t)(end - first));
        first = nl == NULL || nl + 1 == end ? first : nl + 1;
    }
    for (int n = 0; p > first && n < LOGMUX_TAIL_LINES; n++) {
        const char *nl = memrchr(first, '\n', (size_t)(p - 1 - first));
        p = nl == NULL ? first : nl + 1;
    }
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl == NULL ? end : nl;
        add_line(p, stop, ret);
        p = stop + 1;
    }
}

/* --- life ------------------------------------------------------------------------------------- */

int writer_open_log(const char *path, uint32_t mode, char **ret_why) {
    int fd = own_file_make(path, O_WRONLY | O_APPEND, mode);
    if (fd < 0)
        *ret_why = xasprintf("can't open the log file %s: %s", path,
                             fd == -ELOOP ? "it is a link" : strerror(-fd));
    return MAX2(fd, -1);
}

static void open_filtered(struct writer_stream *s, int k,
                          const struct writer_worker_config *config) {
    const struct writer_worker *w = s->worker;
    _cleanup_(freep) char *dir = xstrdup(s->path), *why = NULL;
    for (int up = 0; up < 2; up++) { /* NODE/RANK/stdout.log */
        char *slash = strrchr(dir, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
    s->filters = config->filters[k];
    s->prefix = xstrdup(config->prefix);
    s->filtered_path = logdir_filtered_path(dir, k);
    s->filtered_fd = writer_open_log(s->filtered_path, config->log_mode, &why);
    if (s->filtered_fd < 0)
        w->ops.on_no_file(w->arg, w->user, why);
    linebuf_init(&s->filtered, FILTERED_LINE_MAX, false, on_filtered_piece, s);
}

static void open_stream(struct writer_stream *s, const struct writer_worker_config *config,
                        struct console *console) {
    struct writer_worker *w = s->worker;
    int k = s == &w->streams[OUT] ? OUT : ERR;
    s->pipe_fd = config->fds[k];
    s->file_fd = s->filtered_fd = -1;
    if (s->pipe_fd < 0)
        return;
    if ((config->flags & (unsigned)WRITER_TO_FILE << k) != 0) {
        s->path = xstrdup(config->paths[k]);
        _cleanup_(freep) char *why = NULL;
        s->file_fd = writer_open_log(s->path, config->log_mode, &why);
        if (s->file_fd < 0)
            w->ops.on_no_file(w->arg, w->user, why);
        else
            log_times_open(&s->times, s->path, s->file_fd);
        if (config->filters[k] != NULL)
            open_filtered(s, k, config);
    }
    s->keeps_tail = (config->flags & (unsigned)WRITER_KEEP_TAIL << k) != 0;
    s->shown = (config->flags & (unsigned)WRITER_SHOWN << k) != 0;
    s->exact = (config->flags & (unsigned)WRITER_EXACT << k) != 0;
    s->pty = isatty(s->pipe_fd);
    enum console_stream to = k == OUT ? CONSOLE_OUT : CONSOLE_ERR;
    if (s->shown) {
        linebuf_init(&s->lines, LINEBUF_LINE_MAX, console_is_terminal(console, to), on_piece, s);
        console_source_init(&s->source, console, to, config->prefix);
        if ((config->flags & (unsigned)WRITER_PREFIXED << k) == 0)
            s->source.prefix[0] = '\0';
    }
    int r =
        loop_watch_new(w->loop, s->pipe_fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, s, &s->watch);
    if (r == 0)
        r = loop_timer_new(w->loop, on_timer, s, &s->timer);
    if (r < 0) {
        log_warning("a worker's output can't be read: %s", strerror(-r));
        end_stream(s);
    }
}

int writer_worker_new(struct loop *loop, struct console *console,
                      const struct writer_worker_config *config,
                      const struct writer_worker_ops *ops, void *arg, struct writer_worker **ret) {
    struct writer_worker *w = xcalloc(1, sizeof *w);
    *w = (struct writer_worker){
        .loop = loop, .user = config->user, .index = config->index, .ops = *ops, .arg = arg};
    int r = loop_timer_new(loop, on_grace, w, &w->grace);
    for (int k = OUT; k <= ERR; k++) {
        w->streams[k].worker = w;
        w->streams[k].pipe_fd = w->streams[k].file_fd = w->streams[k].filtered_fd = -1;
        w->streams[k].times.fd = -1;
        if (r == 0)
            open_stream(&w->streams[k], config, console);
    }
    if (r < 0) {
        writer_worker_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void writer_worker_exited(struct writer_worker *w, bool more) {
    w->exited = true;
    for (int i = OUT; i <= ERR; i++) {
        struct writer_stream *s = &w->streams[i];
        read_some(s, READS_AT_END, true);
        update_interest(s);
    }
    if (!more || worker_ended(w))
        loop_timer_set(w->grace, clock_now_ns() + (worker_ended(w) ? 0 : LOGMUX_GRACE_NS));
}

static void stream_fini(struct writer_stream *s) {
    end_stream(s);
    file_close(&s->file_fd);
    log_times_close(&s->times);
    file_close(&s->filtered_fd);
    if (s->shown) {
        linebuf_fini(&s->lines);
        console_source_fini(&s->source);
    }
    strbuf_fini(&s->tail);
    linebuf_fini(&s->filtered);
    free(s->path);
    free(s->filtered_path);
    free(s->prefix);
}

void writer_worker_free(struct writer_worker *w) {
    if (w == NULL)
        return;
    loop_timer_free(w->grace);
    for (int k = OUT; k <= ERR; k++)
        stream_fini(&w->streams[k]);
    free(w);
}
