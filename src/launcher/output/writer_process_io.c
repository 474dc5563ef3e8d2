/* What runs in the log writer's process. The agent decides what goes where (logmux_io.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/idmap.h"
#include "base/text/log.h"
#include "base/text/tail.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "launcher/output/linebuf.h"
#include "launcher/output/log_times_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/logmux_io.h"
#include "launcher/output/writer_io.h"
#include "launcher/worker/error_file.h"

#define READ_BYTES ((size_t)512 * 1024)
#define READS_PER_TURN 4
#define PTY_BYTES ((size_t)64 * 1024)
/* Reads after an exit: enough for our pipes, to which what was left behind may still write. */
#define READS_AT_END 16
/* Of a longer line, each part of this size is filtered like a line. */
#define FILTERED_LINE_MAX ((size_t)1024 * 1024)
/* After this time without a read, a stream that waits for the console is reported (WRITER_HELD). */
#define HELD_NS NS_PER_S
#define MESSAGES_PER_TURN 64
#define ALIVE_NS (250 * NS_PER_MS) /* between messages while it finishes */
/* The last lines of a file are searched in so many bytes. */
#define FILE_END_BYTES ((off_t)1024 * 1024)

struct log_file {
    int fd;        /* -1: none, or closed */
    char *path;    /* owned; NULL: none */
    uint64_t lost; /* bytes that could not be written */
};

/* One stream of a worker, from its pipe to its log files and to the console. */
struct stream {
    struct worker *worker;
    enum stream_view view;
    int pipe_fd;                       /* -1: nothing to read (any more) */
    bool pty;                          /* each read returns little */
    bool waits;                        /* the last read waits for room in the console */
    uint64_t retry_ns, waits_since_ns; /* with `waits` */
    struct log_file log;
    struct log_times times; /* of the bytes in it */
    /* lines with one of these go to logdir_filtered_path(), too; borrowed; NULL: none */
    char *const *filters;
    struct log_file filtered;
    struct linebuf filtered_lines, lines;
    struct tail tail;
    struct console_source source;
    struct loop_watch *watch;
    struct loop_timer *timer; /* when lines are to be shown, or when `waits` ends */
};

enum { OUT = 0, ERR = 1 };

struct worker {
    struct process *process;
    uint32_t user, index;
    char *prefix;
    bool exited;
    bool held; /* as reported */
    struct loop_timer *grace;
    struct stream streams[2];
};

struct process {
    int fd;
    const struct job_spec *spec;
    struct loop *loop;
    struct console *console;
    struct log_sampler *own_files; /* that workers write themselves; NULL: they have no times */
    struct idmap workers;          /* user and index → struct worker */
    struct strbuf text;            /* of a PRINT that continues */
    uint64_t n_printed;
    struct loop_timer *finish; /* the next message while the console's output is finished */
    bool finishing;
    char *ended_dir;        /* of the run that is over; NULL: it is not */
    uint64_t leave_ns;      /* what the console has not taken by then is dropped */
    uint64_t again_ns;      /* so long after it has taken something; 0: that makes no difference */
    uint64_t left;          /* how much it had not taken at the last look */
    struct log_file events; /* lost: lines since the last one that was written */
    bool events_torn;       /* that one was written in part */
    int file_error; /* why log files could not be written, as reported last; 0: they could */
    struct writer_packet packet;
};

/* All streams share it: each reads and passes the bytes on in one step. */
static char read_buffer[READ_BYTES];

/* The agent always reads, so this waits only briefly. */
static void report(struct process *p, const struct writer_message *m) {
    while (writer_wire_send(p->fd, m) == -EAGAIN) {
        struct pollfd room = {.fd = p->fd, .events = POLLOUT};
        (void)poll(&room, 1, 100);
    }
}

static void report_no_file(struct process *p, uint32_t user, const char *why) {
    report(p, &(struct writer_message){.kind = WRITER_NO_FILE, .user = user, .no_file.why = why});
}

/* --- log files -------------------------------------------------------------------------------- */

/* Opens a log file for appending; a new one gets the job's mode. Reports a failure. */
static int open_log(struct process *p, uint32_t user, const char *path) {
    int fd = own_file_make(path, O_WRONLY | O_APPEND, p->spec->log_mode);
    if (fd >= 0)
        return fd;
    _cleanup_(freep) char *why = xasprintf("can't open the log file %s: %s", path,
                                           fd == -ELOOP ? "it is a link" : strerror(-fd));
    report_no_file(p, user, why);
    return -1;
}

/* A cause is reported once, and at the end what each file lacks. */
static void report_not_written(struct process *p, const char *path, int error) {
    if (p->file_error != error)
        log_warning("can't write to %s: %s; the job continues without that part of the log", path,
                    strerror(error));
    p->file_error = error;
}

static void log_file_write(struct log_file *f, struct process *p, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(f->fd, data, len);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            if (f->lost == 0)
                report_not_written(p, f->path, n == 0 ? ENOSPC : errno);
            f->lost += len;
            return;
        }
    }
}

static void log_file_end(struct log_file *f) {
    if (f->fd >= 0 && f->lost > 0)
        log_warning("%s lacks %" PRIu64 " bytes that could not be written", f->path, f->lost);
    file_close(&f->fd);
}

/* --- where bytes go --------------------------------------------------------------------------- */

static bool is_shown(const struct stream *s) { return s->view != STREAM_HIDDEN; }

static void on_piece(void *arg, const struct linebuf_piece *piece) {
    struct stream *s = arg;
    console_source_piece(&s->source, piece);
}

static bool contains_any(const struct linebuf_piece *piece, char *const *texts) {
    for (; *texts != NULL; texts++)
        if (memmem(piece->data, piece->len, *texts, strlen(*texts)) != NULL)
            return true;
    return false;
}

/* All workers append to one file, so each line is one write. */
static void on_filtered_piece(void *arg, const struct linebuf_piece *piece) {
    struct stream *s = arg;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    if (piece->len == 0 && !piece->ended)
        return;
    if (!contains_any(piece, s->filters))
        return;
    strbuf_add(&line, s->worker->prefix);
    strbuf_add_bytes(&line, piece->data, piece->len);
    strbuf_add_char(&line, '\n');
    log_file_write(&s->filtered, s->worker->process, line.data, line.len);
}

static void write_log(struct stream *s, const char *data, size_t len) {
    uint64_t lost = s->log.lost;
    log_times_grows(&s->times, clock_wall_ns());
    log_file_write(&s->log, s->worker->process, data, len);
    log_times_grew(&s->times, len - (s->log.lost - lost));
}

static void take(struct stream *s, const char *data, size_t len, uint64_t now_ns) {
    if (s->log.fd >= 0)
        write_log(s, data, len);
    if (s->filtered.fd >= 0)
        linebuf_feed(&s->filtered_lines, data, len, now_ns);
    if (s == &s->worker->streams[ERR])
        tail_add(&s->tail, data, len);
    if (!is_shown(s) || console_source_is_dropped(&s->source))
        return;
    if (s->view == STREAM_EXACT)
        console_source_exact(&s->source, data, len);
    else
        console_source_feed(&s->source, &s->lines, data, len, now_ns);
}

static void end_stream(struct stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_free(TAKE_PTR(s->watch));
    loop_timer_free(TAKE_PTR(s->timer));
    file_close(&s->pipe_fd);
    if (is_shown(s) && linebuf_finish(&s->lines))
        console_source_end(&s->source);
    if (s->filtered.fd >= 0)
        (void)linebuf_finish(&s->filtered_lines);
    log_times_close(&s->times);
    log_file_end(&s->log);
    log_file_end(&s->filtered);
}

/* --- workers ---------------------------------------------------------------------------------- */

static uint64_t key_of(uint32_t user, uint32_t index) {
    return (uint64_t)user << 32 | (index + UINT64_C(1));
}

static void stream_free(struct stream *s) {
    end_stream(s);
    if (is_shown(s)) {
        linebuf_fini(&s->lines);
        console_source_fini(&s->source);
    }
    tail_fini(&s->tail);
    linebuf_fini(&s->filtered_lines);
    free(s->log.path);
    free(s->filtered.path);
}

static void worker_free(struct worker *w) {
    if (w == NULL)
        return;
    idmap_remove(&w->process->workers, key_of(w->user, w->index));
    loop_timer_free(w->grace);
    for (int k = OUT; k <= ERR; k++)
        stream_free(&w->streams[k]);
    free(w->prefix);
    free(w);
}

static void report_drained(struct process *p, uint32_t user, uint32_t index) {
    report(p, &(struct writer_message){.kind = WRITER_DRAINED, .user = user, .index = index});
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool worker_ended(const struct worker *w) {
    return w->streams[OUT].pipe_fd < 0 && w->streams[ERR].pipe_fd < 0;
}

/* The console has no room. What an ended worker left is bounded, and others wait for it. */
static bool must_wait(const struct stream *s) {
    if (!is_shown(s))
        return false;
    return s->worker->exited ? console_source_is_full(&s->source)
                             : console_source_must_wait(&s->source);
}

/* Fills the buffer. Of a pseudo-terminal, in several reads: each returns 4 KiB at most. */
static ssize_t read_bytes(const struct stream *s) {
    size_t len = 0;
    ssize_t n;
    do {
        n = read(s->pipe_fd, read_buffer + len, sizeof read_buffer - len);
        len += n > 0 ? (size_t)n : 0;
    } while (s->pty && n > 0 && len < PTY_BYTES);
    return len > 0 ? (ssize_t)len : n;
}

/* Reads at most `reads` times: until the pipe is empty, or with `to_end` until the end of file. */
static void read_some(struct stream *s, int reads, bool to_end) {
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

static void update_interest(struct stream *s) {
    if (s->pipe_fd < 0)
        return;
    loop_watch_set(s->watch, s->waits ? 0 : LOOP_READ);
    uint64_t quiet_ns = is_shown(s) ? linebuf_deadline_ns(&s->lines) : TIME_NEVER;
    loop_timer_set(s->timer, s->waits ? s->retry_ns : quiet_ns);
}

static void check_ended(struct worker *w) {
    if (w->exited && worker_ended(w))
        loop_timer_set(w->grace, clock_now_ns());
}

static bool is_held(const struct stream *s) {
    return s->pipe_fd >= 0 && s->waits && s->retry_ns - s->waits_since_ns >= HELD_NS;
}

static void report_held(struct worker *w) {
    bool held = !w->exited && (is_held(&w->streams[OUT]) || is_held(&w->streams[ERR]));
    if (held == w->held)
        return;
    w->held = held;
    report(w->process,
           &(struct writer_message){
               .kind = WRITER_HELD, .user = w->user, .index = w->index, .held.on = held});
}

static void read_turn(struct stream *s) {
    read_some(s, READS_PER_TURN, false);
    update_interest(s);
    report_held(s->worker);
}

/* Reads standard output before standard error: two pipes keep no order, and what a worker printed
 * before an error should be shown before it. */
static void read_in_order(struct stream *s) {
    struct stream *out = &s->worker->streams[OUT];
    if (s != out && out->pipe_fd >= 0 && !out->waits)
        read_turn(out);
    read_turn(s);
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct stream *s = arg;
    read_in_order(s);
    check_ended(s->worker);
}

/* A line is unfinished only if its worker has been quiet. The rest can be in the pipe, because this
 * process was late or waited for room. */
static void on_timer(void *arg) {
    struct stream *s = arg;
    read_in_order(s);
    if (s->pipe_fd >= 0 && !s->waits) {
        uint64_t now_ns = clock_now_ns();
        bool due = is_shown(s) && linebuf_deadline_ns(&s->lines) <= now_ns;
        if (due && linebuf_is_bar(&s->lines) && console_source_yields(&s->source))
            linebuf_defer(&s->lines, now_ns);
        else if (due)
            linebuf_flush(&s->lines);
        update_interest(s);
    }
    check_ended(s->worker);
}

/* Both pipes are at their end, or the grace is over; it lasts while the console has no room. */
static void on_grace(void *arg) {
    struct worker *w = arg;
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
    report_drained(w->process, w->user, w->index);
    worker_free(w);
}

/* path: the file that standard error went to, or "". w may be NULL. */
static void stderr_tail(const struct worker *w, const char *path, struct strbuf *ret) {
    _cleanup_(tail_fini) struct tail file = {0};
    const struct tail *all = &file;
    if (w != NULL && w->streams[ERR].tail.text.len > 0)
        all = &w->streams[ERR].tail;
    else if (path[0] != '\0')
        file_read_end(path, FILE_END_BYTES, &file);
    strbuf_add(ret, tail_lines(all));
    if (ret->len > 0 && ret->data[ret->len - 1] != '\n')
        strbuf_add_char(ret, '\n');
}

/* --- opening and ending ----------------------------------------------------------------------- */

static void open_filtered(struct stream *s, int k) {
    struct worker *w = s->worker;
    _cleanup_(freep) char *path = xstrdup(s->log.path); /* NODE/RANK/stdout.log */
    s->filtered.path = logdir_filtered_path(dirname(dirname(path)), k);
    s->filtered.fd = open_log(w->process, w->user, s->filtered.path);
    linebuf_init(&s->filtered_lines, FILTERED_LINE_MAX, false, on_filtered_piece, s);
}

static void open_stream(struct stream *s, const struct writer_message *m, int k) {
    struct worker *w = s->worker;
    struct process *p = w->process;
    s->pipe_fd = m->open.fds[k];
    s->view = m->open.views[k];
    s->log.fd = s->filtered.fd = s->times.fd = -1;
    if (s->pipe_fd < 0)
        return;
    s->filters = p->spec->filters[k];
    if (m->open.paths[k][0] != '\0') {
        s->log.path = xstrdup(m->open.paths[k]);
        s->log.fd = open_log(p, w->user, s->log.path);
        if (s->log.fd >= 0)
            log_times_open(&s->times, s->log.path, s->log.fd);
        if (s->filters != NULL)
            open_filtered(s, k);
    }
    s->pty = isatty(s->pipe_fd);
    enum console_stream to = k == OUT ? CONSOLE_OUT : CONSOLE_ERR;
    if (is_shown(s)) {
        linebuf_init(&s->lines, LINEBUF_LINE_MAX, console_is_terminal(p->console, to), on_piece, s);
        console_source_init(&s->source, p->console, to,
                            s->view == STREAM_PREFIXED ? w->prefix : NULL);
    }
    s->watch = loop_watch_new(p->loop, s->pipe_fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, s);
    s->timer = loop_timer_new(p->loop, on_timer, s);
}

static void open_worker(struct process *p, const struct writer_message *m) {
    struct worker *w = xcalloc(1, sizeof *w);
    *w = (struct worker){
        .process = p, .user = m->user, .index = m->index, .prefix = xstrdup(m->open.prefix)};
    w->grace = loop_timer_new(p->loop, on_grace, w);
    for (int k = OUT; k <= ERR; k++) {
        w->streams[k].worker = w;
        open_stream(&w->streams[k], m, k);
    }
    idmap_put(&p->workers, key_of(m->user, m->index), w);
}

/* Adds the end of the worker's report about its own failure, if there is one. -EINVAL: adds what is
 * wrong with the file instead. */
static int read_error_file(const char *path, struct strbuf *ret) {
    _cleanup_(freep) char *text = NULL, *shown = NULL;
    _cleanup_(tail_fini) struct tail end = {0};
    size_t len = 0;
    struct err err = {0};
    int r = path[0] == '\0' ? -ENOENT : file_read_text(path, ERROR_FILE_MAX_BYTES, &text, &len);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    if (r < 0)
        (void)err_set(&err, r, "can't read the error file: %s",
                      r == -EFBIG    ? "it has more than 1 MiB"
                      : r == -EINVAL ? "it is not a regular file"
                                     : strerror(-r));
    else
        r = error_file_parse(text, len, &shown, &err);
    const char *what = r < 0 ? err.text : shown;
    tail_add(&end, what, strlen(what));
    strbuf_add(ret, strbuf_text(&end.text));
    return r < 0 ? -EINVAL : 0;
}

static void report_last_output(struct process *p, const struct worker *w,
                               const struct writer_message *m) {
    _cleanup_(strbuf_fini) struct strbuf error = {0}, tail = {0};
    bool bad = read_error_file(m->exited.error_path, &error) < 0;
    stderr_tail(w, m->exited.stderr_path, &tail);
    report(p, &(struct writer_message){.kind = WRITER_LAST_OUTPUT,
                                       .user = m->user,
                                       .index = m->index,
                                       .last_output = {.bad_file = bad,
                                                       .error = strbuf_text(&error),
                                                       .tail = strbuf_text(&tail)}});
}

/* What is in the worker's pipes is read at once; later to their end, or, if no process is left that
 * can write, for LOGMUX_GRACE_NS at most. */
static void exited(struct process *p, const struct writer_message *m) {
    struct worker *w = idmap_get(&p->workers, key_of(m->user, m->index));
    for (int k = OUT; w != NULL && k <= ERR; k++) {
        w->exited = true;
        read_some(&w->streams[k], READS_AT_END, true);
        update_interest(&w->streams[k]);
    }
    if (w != NULL && (!m->exited.more || worker_ended(w)))
        loop_timer_set(w->grace, clock_now_ns() + (worker_ended(w) ? 0 : LOGMUX_GRACE_NS));
    if (m->exited.wants_last_output)
        report_last_output(p, w, m);
    if (w == NULL)
        report_drained(p, m->user, m->index);
}

static void drop_user(struct process *p, uint32_t user) {
    log_sampler_drop(p->own_files, user);
    for (uint32_t i = 0; i < p->spec->nproc; i++)
        worker_free(idmap_get(&p->workers, key_of(user, i)));
}

/* --- folders and files of a start ------------------------------------------------------------- */

static int make_node_dir(const struct process *p, const struct writer_message *m, char **run_dir,
                         char **ret, struct err *err) {
    const struct job_spec *spec = p->spec;
    int r = 0;
    if (*run_dir == NULL)
        r = logdir_claim_run(spec->log_dir, spec->run_id, m->prepare.nonce, spec->log_mode, run_dir,
                             err);
    return r < 0 ? r
                 : logdir_make_generation(*run_dir, m->prepare.generation, m->prepare.node,
                                          spec->log_mode, ret, err);
}

static void report_files(struct process *p, uint32_t user, uint32_t i, const char *dir) {
    const struct job_spec *spec = p->spec;
    unsigned tee = std_map_get(&spec->tee, i), redirects = std_map_get(&spec->redirects, i);
    bool shown = spec->console_ranks == NULL || spec->console_ranks[i];
    unsigned own = (redirects & ~tee) | (shown ? STD_NONE : tee);
    _cleanup_(writer_wire_close) struct writer_message m = {
        .kind = WRITER_FILES, .user = user, .index = i, .files = {{-1, -1}, dir}};
    for (int k = OUT; k <= ERR; k++) {
        unsigned bit = k == OUT ? STD_OUT : STD_ERR;
        _cleanup_(freep) char *path = logdir_log_path(dir, k);
        if ((own & bit) == 0)
            continue;
        m.files.fds[k] = open_log(p, user, path);
        if (m.files.fds[k] >= 0)
            log_sampler_add(p->own_files, user, path, m.files.fds[k]);
    }
    report(p, &m);
}

/* The file of the filtered lines of all workers. It is there even if no line matches. */
static void make_filtered(struct process *p, uint32_t user, const char *node_dir, int k) {
    _cleanup_(freep) char *path = logdir_filtered_path(node_dir, k);
    int fd = open_log(p, user, path);
    file_close(&fd);
}

static void prepare(struct process *p, const struct writer_message *m) {
    const char *old = m->prepare.run_dir;
    _cleanup_(freep) char *run_dir = old[0] != '\0' ? xstrdup(old) : NULL, *node_dir = NULL;
    struct err err = {0};
    bool ours = p->spec->log_dir != NULL;
    int r = make_node_dir(p, m, &run_dir, &node_dir, &err);
    if (r == -ENOENT && ours && run_dir != NULL) { /* it was removed: claim a new one */
        free(TAKE_PTR(run_dir));
        r = make_node_dir(p, m, &run_dir, &node_dir, &err);
    }
    for (uint32_t i = 0; r == 0 && i < p->spec->nproc; i++) {
        _cleanup_(freep) char *dir = NULL;
        r = logdir_make_worker(node_dir, m->prepare.first_rank + i, p->spec->log_mode, &dir, &err);
        if (r == 0)
            report_files(p, m->user, i, dir);
    }
    for (int k = OUT; r == 0 && k <= ERR; k++)
        if (p->spec->filters[k] != NULL)
            make_filtered(p, m->user, node_dir, k);
    int linked = ours && node_dir != NULL ? logdir_set_latest(run_dir, m->prepare.generation) : 0;
    if (linked < 0) /* the link is only a convenience: the logs exist without it */
        log_warning("can't set the link %s/latest: %s", run_dir, strerror(-linked));
    report(p, &(struct writer_message){.kind = WRITER_PREPARED,
                                       .user = m->user,
                                       .prepared = {.result = r,
                                                    .run_dir = run_dir,
                                                    .node_dir = node_dir,
                                                    .why = r < 0 ? err.text : NULL}});
}

/* At once or not at all. */
static void write_event(struct process *p, const struct writer_message *m) {
    struct log_file *f = &p->events;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    struct stat st;
    bool removed = f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_nlink == 0; /* and made again */
    if (f->path == NULL || strcmp(f->path, m->event.path) != 0 || removed) {
        file_close(&f->fd);
        free(f->path);
        f->path = xstrdup(m->event.path);
    }
    if (f->fd < 0)
        f->fd = own_file_make(f->path, O_WRONLY | O_APPEND, p->spec->log_mode);
    if (p->events_torn)
        strbuf_add_char(&line, '\n');
    strbuf_add_bytes(&line, m->event.line, strcspn(m->event.line, "\n"));
    if (f->lost > 0) { /* in place of its last brace */
        line.len--;
        strbuf_printf(&line, ",\"lines_lost_before\":%" PRIu64 "}", f->lost);
    }
    strbuf_add_char(&line, '\n');
    ssize_t n = f->fd < 0 ? 0 : write(f->fd, strbuf_text(&line), line.len);
    int error = f->fd < 0 ? -f->fd : n < 0 ? errno : ENOSPC;
    p->events_torn = n > 0 ? n < (ssize_t)line.len : p->events_torn;
    if (n == (ssize_t)line.len) {
        f->lost = 0;
        return;
    }
    if (f->lost++ == 0)
        log_warning("can't write to %s: %s; the job continues, and lost lines are counted", f->path,
                    strerror(error));
}

/* --- from the agent --------------------------------------------------------------------------- */

static void pong(struct process *p) {
    report(p, &(struct writer_message){.kind = WRITER_PONG, .pong.n_printed = p->n_printed});
}

static void print(struct process *p, const struct writer_message *m) {
    strbuf_add_bytes(&p->text, m->print.text, m->print.len);
    p->n_printed++;
    if (!m->print.more) {
        console_print(p->console, m->print.stream, p->text.data, p->text.len);
        strbuf_clear(&p->text);
    }
    pong(p);
}

/* What is left to do on the disk: when everything is shown, because it can hang. */
static void finish_files(struct process *p) {
    log_sampler_free(TAKE_PTR(p->own_files));
    if (p->ended_dir != NULL) /* without it "muster logs -f" on other machines continues */
        (void)!logdir_set_ended(p->ended_dir, p->spec->log_mode);
}

/* Ends this process when the console has written everything, or may not wait any longer. */
static void continue_finishing(void *arg) {
    struct process *p = arg;
    uint64_t left = console_pending(p->console), now_ns = clock_now_ns();
    if (!p->finishing)
        return;
    if (left < p->left && p->again_ns > 0)
        p->leave_ns = now_ns + p->again_ns;
    p->left = left;
    if (left > 0 && now_ns < p->leave_ns) {
        pong(p); /* the agent waits as long as these messages come */
        loop_timer_set(p->finish, MIN2(p->leave_ns, now_ns + ALIVE_NS));
        return;
    }
    p->finishing = false;
    finish_files(p);
    bool failed = p->file_error != 0 || console_failed(p->console);
    report(p, &(struct writer_message){.kind = WRITER_FINISHED,
                                       .finished = {.left = left, .failed = failed}});
    loop_quit(p->loop);
}

/* Everything is read, and the agent ends. The loop continues, because the agent may change its mind
 * about how long to wait. */
static void finish(struct process *p, const struct writer_message *m) {
    uint32_t ms = m->finish.ms;
    p->finishing = true;
    p->leave_ns = ms == WRITER_PATIENT ? TIME_NEVER : clock_now_ns() + ms * NS_PER_MS;
    p->again_ns = m->finish.while_taken && ms != WRITER_PATIENT ? ms * NS_PER_MS : 0;
    p->left = console_pending(p->console);
    (void)console_flush(p->console, clock_now_ns());
    continue_finishing(p);
}

static void take_message(struct process *p, const struct writer_message *m) {
    switch (m->kind) {
    case WRITER_PRINT: print(p, m); return;
    case WRITER_STATUS: (void)console_status(p->console, m->status.text); return;
    case WRITER_PREPARE: prepare(p, m); return;
    case WRITER_OPEN: open_worker(p, m); return;
    case WRITER_EXITED: exited(p, m); return;
    case WRITER_EVENT: write_event(p, m); return;
    case WRITER_ENDED:
        free(p->ended_dir);
        p->ended_dir = xstrdup(m->ended.run_dir);
        return;
    case WRITER_DROP: drop_user(p, m->user); return;
    case WRITER_TAKE_REST: console_take_rest(p->console); return;
    case WRITER_PING: pong(p); return;
    case WRITER_FINISH: finish(p, m); return;
    case WRITER_FILES:
    case WRITER_PREPARED:
    case WRITER_NO_FILE:
    case WRITER_LAST_OUTPUT:
    case WRITER_DRAINED:
    case WRITER_HELD:
    case WRITER_PONG:
    case WRITER_FINISHED: break;
    }
    assert_not_reached();
}

static void on_ready(void *arg, int fd, unsigned events) {
    struct process *p = arg;
    for (int i = 0; i < MESSAGES_PER_TURN; i++) {
        int r = writer_wire_receive(fd, &p->packet);
        if (r == -EAGAIN)
            return;
        if (r == 0) { /* the agent has died */
            loop_quit(p->loop);
            return;
        }
        take_message(p, &p->packet.m);
    }
}

int writer_process_run(int fd, struct console *console, const struct job_spec *spec) {
    struct process *p = xcalloc(1, sizeof *p);
    /* Workers have sessions of their own, and the kernel's autogroups (sched(7)) share the CPUs
     * among sessions. In a session of its own, the writer does not use the agent's share to read
     * what all workers write. */
    (void)setsid();
    p->fd = fd;
    p->console = console;
    p->spec = spec;
    p->events.fd = -1;
    log_set_sink(console_log_sink, console);
    if (loop_new(&p->loop) < 0)
        return 1;
    p->finish = loop_timer_new(p->loop, continue_finishing, p);
    console_on_empty(console, continue_finishing, p);
    console_reopen(console, p->loop);
    console_spool(console, spec->output_spool);
    (void)!loop_watch_new(p->loop, fd, LOOP_READ, LOOP_PRIO_LEASE, on_ready, p);
    p->own_files = log_sampler_new(p->loop);
    int r = loop_run(p->loop);
    log_sampler_free(p->own_files);
    return r < 0; /* the kernel frees the rest */
}
