#include "launcher/logmux_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/child.h"
#include "io/clock.h"
#include "launcher/job.h"

#define READ_BYTES ((size_t)64 * 1024)
#define READS_PER_TURN 4
/* What an exit takes at once: more than any pipe of ours holds, but not what a process that was
 * left behind goes on to write. */
#define READS_AT_END 64
#define PIPE_BYTES_MAX ((size_t)1024 * 1024)
#define PIPE_BYTES_MIN ((size_t)64 * 1024)
#define DEFAULT_PREFIX "[${role_name}${local_rank}]:"

struct stream {
    struct worker *worker;
    int child_fd;  /* the worker's end, until logmux_started(); -1 */
    int pipe_fd;   /* -1: nothing to read (any more) */
    int file_fd;   /* of tee; -1 */
    char *path;    /* of its log file; NULL: none */
    bool shown;    /* lines go to the console */
    bool waits;    /* for room in the console */
    bool keeps_tail;
    struct strbuf tail;
    struct linebuf lines;
    struct console_source source;
    struct loop_watch *watch;
    struct loop_timer *timer; /* lines to be shown, or the end of `waits` */
    uint64_t retry_ns;
    uint64_t file_lost;       /* bytes */
};

enum { OUT = 0, ERR = 1 };

struct worker {
    struct logmux *mux;
    uint32_t index;
    bool opened, exited, drained;
    struct loop_timer *grace;
    struct stream streams[2];
};

struct logmux {
    struct loop *loop;
    struct console *console;
    char *prefix_template;
    struct logmux_ops ops;
    void *arg;
    size_t pipe_bytes;
    uint32_t n_workers;
    struct worker *workers;
};

/* --- where bytes go --------------------------------------------------------------------------- */

static void on_piece(void *arg, const struct linebuf_piece *piece) {
    struct stream *s = arg;
    console_source_piece(&s->source, piece);
}

static void write_file(struct stream *s, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(s->file_fd, data, len);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            if (s->file_lost == 0)
                log_warning("can't write to %s: %s; the job goes on without that part of the log",
                            s->path, n == 0 ? "nothing is taken" : strerror(errno));
            s->file_lost += len;
            return;
        }
    }
}

static void keep_tail(struct stream *s, const char *data, size_t len) {
    if (len > LOGMUX_TAIL_BYTES) {
        data += len - LOGMUX_TAIL_BYTES;
        len = LOGMUX_TAIL_BYTES;
    }
    if (s->tail.len + len > 2 * LOGMUX_TAIL_BYTES) {
        size_t keep = MIN2(s->tail.len, LOGMUX_TAIL_BYTES);
        memmove(s->tail.data, s->tail.data + s->tail.len - keep, keep);
        s->tail.len = keep;
    }
    strbuf_add_bytes(&s->tail, data, len);
}

static void take(struct stream *s, const char *data, size_t len, uint64_t now_ns) {
    if (s->file_fd >= 0)
        write_file(s, data, len);
    if (s->keeps_tail)
        keep_tail(s, data, len);
    if (s->shown)
        linebuf_feed(&s->lines, data, len, now_ns);
}

static void close_fd(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void end_stream(struct stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_free(s->watch);
    s->watch = NULL;
    loop_timer_free(s->timer);
    s->timer = NULL;
    close_fd(&s->pipe_fd);
    if (s->shown && linebuf_finish(&s->lines))
        console_source_end(&s->source);
    close_fd(&s->file_fd);
    if (s->file_lost > 0)
        log_warning("%s lacks %" PRIu64 " bytes that could not be written", s->path, s->file_lost);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool worker_ended(const struct worker *w) {
    return w->streams[OUT].pipe_fd < 0 && w->streams[ERR].pipe_fd < 0;
}

/* At most `reads` times. Less than a full read means that the pipe is empty now: enough for a
 * turn, but `to_end` wants to see the end of file. */
static void read_some(struct stream *s, int reads, bool to_end) {
    char data[READ_BYTES];
    for (; reads > 0 && s->pipe_fd >= 0; reads--) {
        ssize_t n = read(s->pipe_fd, data, sizeof data);
        if (n > 0)
            take(s, data, (size_t)n, clock_now_ns());
        else if (n == 0 || (errno != EINTR && errno != EAGAIN))
            end_stream(s);
        else if (errno == EAGAIN)
            return;
        if (n > 0 && (size_t)n < sizeof data && !to_end)
            return;
    }
}

static void update_interest(struct stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_set(s->watch, s->waits ? 0 : LOOP_READ);
    uint64_t deadline_ns = s->shown ? linebuf_deadline_ns(&s->lines) : TIME_NEVER;
    if (s->waits)
        deadline_ns = MIN2(deadline_ns, s->retry_ns);
    loop_timer_set(s->timer, deadline_ns);
}

static void check_ended(struct worker *w) {
    if (w->exited && !w->drained && worker_ended(w))
        loop_timer_set(w->grace, clock_now_ns());
}

static void read_turn(struct stream *s) {
    s->waits = s->shown && console_source_must_wait(&s->source);
    if (s->waits)
        s->retry_ns = clock_now_ns() + CONSOLE_RETRY_NS;
    else
        read_some(s, READS_PER_TURN, false);
    update_interest(s);
}

static void on_readable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    struct stream *s = arg;
    struct worker *w = s->worker;
    /* What a worker printed before it complained is shown before: two pipes keep no order. */
    if (s == &w->streams[ERR] && w->streams[OUT].pipe_fd >= 0 && !w->streams[OUT].waits)
        read_turn(&w->streams[OUT]);
    read_turn(s);
    check_ended(w);
}

static void on_timer(void *arg) {
    struct stream *s = arg;
    uint64_t now_ns = clock_now_ns();
    if (s->shown && linebuf_deadline_ns(&s->lines) <= now_ns)
        linebuf_flush(&s->lines);
    if (s->waits && s->retry_ns <= now_ns)
        read_turn(s);
    update_interest(s);
    check_ended(s->worker);
}

/* Both pipes are at their end, or the grace is over. */
static void on_grace(void *arg) {
    struct worker *w = arg;
    for (int i = OUT; i <= ERR; i++) {
        read_some(&w->streams[i], READS_AT_END, true);
        end_stream(&w->streams[i]);
    }
    w->drained = true;
    w->mux->ops.on_drained(w->mux->arg, w->index);
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool name_is(const char *name, size_t len, const char *want) {
    return len == strlen(want) && memcmp(name, want, len) == 0;
}

void logmux_expand_prefix(const char *prefix_template, const struct logmux_worker *worker,
                          struct strbuf *ret) {
    static const char name_chars[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    for (const char *p = prefix_template; *p != '\0';) {
        if (p[0] != '$' || p[1] == '\0') {
            strbuf_add_char(ret, *p++);
            continue;
        }
        if (p[1] == '$') {
            strbuf_add_char(ret, '$');
            p += 2;
            continue;
        }
        bool braces = p[1] == '{';
        const char *name = p + (braces ? 2 : 1);
        size_t len = strspn(name, name_chars);
        bool good = len > 0 && (!braces || name[len] == '}');
        if (good && name_is(name, len, "role_name"))
            strbuf_add(ret, worker->role);
        else if (good && name_is(name, len, "local_rank"))
            strbuf_printf(ret, "%" PRIu32, worker->local_rank);
        else if (good && name_is(name, len, "rank"))
            strbuf_printf(ret, "%" PRIu32, worker->rank);
        else if (good && name_is(name, len, "hostname"))
            strbuf_add(ret, worker->hostname);
        else
            good = false;
        if (!good) {
            strbuf_add_char(ret, *p++);
            continue;
        }
        p = name + len + (braces ? 1 : 0);
    }
}

/* The stream's log file. False: it can't be had. */
static bool open_file(struct stream *s, const char *dir, int *ret) {
    const struct logmux *mux = s->worker->mux;
    bool out = s == &s->worker->streams[OUT];
    s->path = xasprintf("%s/%s", dir, out ? "stdout.log" : "stderr.log");
    *ret = open(s->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (*ret >= 0)
        return true;
    char why[4096 + 128];
    (void)snprintf(why, sizeof why, "can't open the log file %s: %s", s->path, strerror(errno));
    mux->ops.on_no_file(mux->arg, why);
    free(TAKE_PTR(s->path));
    return false;
}

static int open_null(int *ret, struct err *err) {
    *ret = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *ret >= 0 ? 0 : err_set(err, -errno, "can't open /dev/null: %s", strerror(errno));
}

static int open_pipe(struct stream *s, struct err *err) {
    struct logmux *mux = s->worker->mux;
    int r = child_pipe(&s->pipe_fd, &s->child_fd);
    if (r < 0)
        return err_set(err, r, "can't make a pipe for a worker's output: %s", strerror(-r));
    (void)fcntl(s->pipe_fd, F_SETPIPE_SZ, (int)mux->pipe_bytes); /* a help, not a need */
    r = loop_watch_new(mux->loop, s->pipe_fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, s,
                           &s->watch);
    if (r == 0)
        r = loop_timer_new(mux->loop, on_timer, s, &s->timer);
    return r < 0 ? err_set(err, r, "can't watch a worker's output: %s", strerror(-r)) : 0;
}

static void show_on_console(struct stream *s, const struct logmux_worker *worker, bool prefixed) {
    struct console *console = s->worker->mux->console;
    enum console_stream to = s == &s->worker->streams[OUT] ? CONSOLE_OUT : CONSOLE_ERR;
    _cleanup_(strbuf_fini) struct strbuf prefix = {0};
    if (prefixed)
        logmux_expand_prefix(s->worker->mux->prefix_template, worker, &prefix);
    s->shown = true;
    linebuf_init(&s->lines, LINEBUF_LINE_MAX, console_is_terminal(console, to), on_piece, s);
    console_source_init(&s->source, console, to, strbuf_text(&prefix));
}

/* The table of the header. */
static int open_stream(struct stream *s, const struct logmux_worker *worker, struct err *err) {
    bool out = s == &s->worker->streams[OUT];
    unsigned bit = out ? STD_OUT : STD_ERR;
    bool tee = (worker->tee & bit) != 0, redirect = (worker->redirects & bit) != 0;
    bool wants_file = worker->dir != NULL && (tee || redirect);
    bool through_us = tee && worker->on_console;
    if (wants_file && open_file(s, worker->dir, through_us ? &s->file_fd : &s->child_fd)) {
        if (!through_us)
            return 0;
    } else if (!worker->on_console && out) {
        return open_null(&s->child_fd, err);
    }
    s->keeps_tail = !out;
    if (worker->on_console)
        show_on_console(s, worker, tee || wants_file);
    return open_pipe(s, err);
}

int logmux_open(struct logmux *mux, uint32_t index, const struct logmux_worker *worker,
                int *ret_stdout_fd, int *ret_stderr_fd, struct err *err) {
    assert(index < mux->n_workers && !mux->workers[index].opened);
    struct worker *w = &mux->workers[index];
    w->opened = true;
    int r = loop_timer_new(mux->loop, on_grace, w, &w->grace);
    if (r < 0)
        return err_set(err, r, "can't watch a worker's output: %s", strerror(-r));
    for (int i = OUT; i <= ERR; i++) {
        r = open_stream(&w->streams[i], worker, err);
        if (r < 0) {
            end_stream(&w->streams[OUT]);
            end_stream(&w->streams[ERR]);
            return r;
        }
    }
    *ret_stdout_fd = w->streams[OUT].child_fd;
    *ret_stderr_fd = w->streams[ERR].child_fd;
    return 0;
}

void logmux_started(struct logmux *mux, uint32_t index) {
    for (int i = OUT; i <= ERR; i++)
        close_fd(&mux->workers[index].streams[i].child_fd);
}

void logmux_exited(struct logmux *mux, uint32_t index) {
    struct worker *w = &mux->workers[index];
    if (!w->opened || w->exited)
        return;
    logmux_started(mux, index);
    w->exited = true;
    for (int i = OUT; i <= ERR; i++) {
        struct stream *s = &w->streams[i];
        /* A slow pipeline's data may wait in the pipe until the grace is over; last words not. */
        if (i == OUT && s->pipe_fd >= 0 && s->shown && console_source_must_wait(&s->source))
            continue;
        read_some(s, READS_AT_END, true);
        update_interest(s);
    }
    if (w->grace != NULL)
        loop_timer_set(w->grace, clock_now_ns() + (worker_ended(w) ? 0 : LOGMUX_GRACE_NS));
}

bool logmux_all_drained(const struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        if (mux->workers[i].opened && !mux->workers[i].drained)
            return false;
    }
    return true;
}

/* --- the last lines --------------------------------------------------------------------------- */

/* The end of a file, and one byte before so that a cut line is known as such. */
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
    close_fd(&fd);
}

/* One line as a terminal would show it: of a progress bar the last state. */
static void add_line(const char *line, const char *end, struct strbuf *ret) {
    while (end > line && end[-1] == '\r')
        end--;
    const char *cr = memrchr(line, '\r', (size_t)(end - line));
    const char *from = cr == NULL ? line : cr + 1;
    strbuf_add_bytes(ret, from, (size_t)(end - from));
    strbuf_add_char(ret, '\n');
}

void logmux_stderr_tail(struct logmux *mux, uint32_t index, struct strbuf *ret) {
    struct stream *s = &mux->workers[index].streams[ERR];
    _cleanup_(strbuf_fini) struct strbuf file = {0};
    const struct strbuf *all = &s->tail;
    strbuf_clear(ret);
    if (!s->keeps_tail && s->path != NULL) {
        read_file_end(s->path, &file);
        all = &file;
    }
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

int logmux_new(struct loop *loop, struct console *console, uint32_t n_workers,
               const char *prefix_template, const struct logmux_ops *ops, void *arg,
               struct logmux **ret) {
    struct logmux *mux = xcalloc(1, sizeof *mux);
    bool given = prefix_template != NULL && prefix_template[0] != '\0';
    mux->loop = loop;
    mux->console = console;
    mux->prefix_template = xstrdup(given ? prefix_template : DEFAULT_PREFIX);
    mux->ops = *ops;
    mux->arg = arg;
    mux->n_workers = n_workers;
    mux->pipe_bytes = PIPE_BYTES_MAX;
    while (mux->pipe_bytes > PIPE_BYTES_MIN &&
           mux->pipe_bytes * n_workers * 2 > LOGMUX_PIPES_MAX_BYTES)
        mux->pipe_bytes /= 2;
    mux->workers = xcalloc(MAX2(n_workers, 1u), sizeof *mux->workers);
    for (uint32_t i = 0; i < n_workers; i++) {
        struct worker *w = &mux->workers[i];
        w->mux = mux;
        w->index = i;
        for (int k = OUT; k <= ERR; k++) {
            struct stream *s = &w->streams[k];
            s->worker = w;
            s->child_fd = s->pipe_fd = s->file_fd = -1;
        }
    }
    *ret = mux;
    return 0;
}

static void stream_fini(struct stream *s) {
    end_stream(s);
    close_fd(&s->child_fd);
    close_fd(&s->file_fd);
    if (s->shown) {
        linebuf_fini(&s->lines);
        console_source_fini(&s->source);
    }
    strbuf_fini(&s->tail);
    free(s->path);
}

void logmux_free(struct logmux *mux) {
    if (mux == NULL)
        return;
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        loop_timer_free(mux->workers[i].grace);
        for (int k = OUT; k <= ERR; k++)
            stream_fini(&mux->workers[i].streams[k]);
    }
    free(mux->workers);
    free(mux->prefix_template);
    free(mux);
}
