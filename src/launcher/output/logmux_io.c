#include "launcher/output/logmux_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/template.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/job/job.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/pty_io.h"

#define PIPE_BYTES_MAX ((size_t)1024 * 1024)
#define PIPE_BYTES_MIN ((size_t)64 * 1024)
#define DEFAULT_PREFIX "[${role_name}${local_rank}]:"

struct mux_stream {
    struct mux_worker *worker;
    int child_fd;   /* the worker's end, until logmux_started(); -1 */
    int pipe_fd;    /* kept open until everything is drained, so that a worker gets no SIGPIPE when
                       the writer dies; -1 */
    bool borrowed;  /* the caller or the other stream owns child_fd */
    int like;       /* a terminal: pipe_fd is a pseudo-terminal like it; -1: it is a pipe */
    char *path;     /* of its log file; NULL: none */
    unsigned flags; /* WRITER_SHOWN, … */
    struct loop_watch *watch; /* until the pipe is handed over */
};

enum { OUT = 0, ERR = 1 };

struct mux_worker {
    struct logmux *mux;
    uint32_t index;
    bool opened, exited, drained;
    bool handed; /* the writer has its pipes */
    bool lost;   /* a writer that had them was lost */
    char *prefix;
    char *error_path;         /* its last output is awaited; NULL: it is not */
    bool awaited;             /* the writer will report that everything is drained */
    bool held;                /* as the writer says */
    struct loop_timer *grace; /* used if no writer is needed */
    struct mux_stream streams[2];
};

struct logmux {
    struct loop *loop;
    struct writer *writer;
    struct writer_user user;
    char *prefix_template;
    struct logmux_ops ops;
    void *arg;
    size_t pipe_bytes;
    bool no_more; /* no process can write any more */
    uint32_t n_workers;
    struct mux_worker *workers;
};

/* --- to the writer ---------------------------------------------------------------------------- */

static void unwatch(struct mux_worker *w) {
    for (int k = OUT; k <= ERR; k++) {
        loop_watch_free(w->streams[k].watch);
        w->streams[k].watch = NULL;
    }
}

static const char *path_of(const struct mux_stream *s) { return s->path == NULL ? "" : s->path; }

static void hand_over(struct mux_worker *w) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct mux_stream *out = &w->streams[OUT], *err = &w->streams[ERR];
    if (w->handed)
        return;
    w->handed = true;
    unwatch(w);
    writer_wire_add_part(&text, w->prefix);
    writer_wire_add_part(&text, path_of(out));
    writer_wire_add_part(&text, path_of(err));
    const int fds[2] = {out->pipe_fd, err->pipe_fd};
    writer_send(w->mux->writer, &w->mux->user,
                &(struct writer_message){
                    .kind = WRITER_OPEN, .index = w->index, .flags = out->flags | err->flags << 1},
                text.data, text.len, fds);
}

static void hand_all_over(struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++)
        if (mux->workers[i].opened && !mux->workers[i].drained)
            hand_over(&mux->workers[i]);
}

static void ask_for_the_end(struct mux_worker *w) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct logmux *mux = w->mux;
    writer_wire_add_part(&text, w->error_path == NULL ? "" : w->error_path);
    writer_wire_add_part(&text, path_of(&w->streams[ERR]));
    const bool was_awaited = w->awaited;
    w->awaited = true;
    writer_send(
        mux->writer, &mux->user,
        &(struct writer_message){.kind = WRITER_EXITED,
                                 .index = w->index,
                                 .flags = (w->error_path == NULL ? 0 : WRITER_WANTS_LAST_OUTPUT) |
                                          (mux->no_more ? 0 : WRITER_MORE)},
        text.data, text.len, NULL);
    if (!was_awaited)
        writer_await(mux->writer, 1);
}

/* --- before a writer is needed ---------------------------------------------------------------- */

/* Whether bytes wait in a pipe. A pipe at end of file is closed. */
static bool has_bytes(struct mux_stream *s) {
    struct pollfd p = {.fd = s->pipe_fd, .events = POLLIN};
    if (s->pipe_fd < 0 || poll(&p, 1, 0) <= 0)
        return false;
    if ((p.revents & POLLIN) != 0)
        return true;
    loop_watch_free(s->watch);
    s->watch = NULL;
    file_close(&s->pipe_fd);
    return false;
}

static bool needs_writer(struct mux_worker *w) {
    bool out = has_bytes(&w->streams[OUT]), err = has_bytes(&w->streams[ERR]);
    return out || err;
}

static bool at_end(const struct mux_worker *w) {
    return w->streams[OUT].pipe_fd < 0 && w->streams[ERR].pipe_fd < 0;
}

/* Ends the worker without a writer. */
static void end_soon(struct mux_worker *w) {
    if (at_end(w) || w->mux->no_more)
        loop_timer_set(w->grace, clock_now_ns() + (at_end(w) ? 0 : LOGMUX_GRACE_NS));
}

static void on_readable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    struct mux_worker *w = arg;
    if (needs_writer(w))
        hand_all_over(w->mux);
    else if (w->exited && at_end(w))
        end_soon(w);
}

/* --- its end ---------------------------------------------------------------------------------- */

static void report_last_output(struct mux_worker *w, const struct logmux_last_output *last) {
    if (w->error_path == NULL)
        return;
    free(TAKE_PTR(w->error_path));
    w->mux->ops.on_last_output(w->mux->arg, w->index, last);
}

static const struct logmux_last_output no_output = {.error = "", .tail = ""};

static void drained(struct mux_worker *w) {
    unwatch(w);
    loop_timer_set(w->grace, TIME_NEVER);
    file_close(&w->streams[OUT].pipe_fd);
    file_close(&w->streams[ERR].pipe_fd);
    report_last_output(w, &no_output);
    w->drained = true;
    w->mux->ops.on_drained(w->mux->arg, w->index);
}

static void on_grace(void *arg) {
    struct mux_worker *w = arg;
    if (!w->handed && needs_writer(w)) { /* a process that it left behind has written */
        hand_all_over(w->mux);
        ask_for_the_end(w);
    } else if (!w->awaited) {
        drained(w);
    }
}

void logmux_exited(struct logmux *mux, uint32_t index, const char *error_path) {
    struct mux_worker *w = &mux->workers[index];
    if (!w->opened || w->exited)
        return;
    logmux_started(mux, index);
    w->exited = true;
    w->error_path = error_path == NULL ? NULL : xstrdup(error_path);
    if (!w->handed && needs_writer(w))
        hand_all_over(mux);
    bool asks = error_path != NULL && (error_path[0] != '\0' || w->streams[ERR].path != NULL);
    if (w->handed || asks) {
        ask_for_the_end(w);
    } else {
        end_soon(w);
        report_last_output(w, &no_output);
    }
}

void logmux_no_more(struct logmux *mux) {
    mux->no_more = true;
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        if (!w->opened || !w->exited || w->drained)
            continue;
        if (w->awaited)
            ask_for_the_end(w);
        else
            end_soon(w);
    }
}

bool logmux_is_held(const struct logmux *mux, uint32_t index) {
    return index < mux->n_workers && mux->workers[index].held;
}

bool logmux_all_drained(const struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        if (mux->workers[i].opened && !mux->workers[i].drained)
            return false;
    }
    return true;
}

/* --- messages from the writer ----------------------------------------------------------------- */

static void on_message(void *arg, struct writer_packet *p) {
    struct logmux *mux = arg;
    struct mux_worker *w = p->m.index < mux->n_workers ? &mux->workers[p->m.index] : NULL;
    if (p->m.kind == WRITER_NO_FILE)
        mux->ops.on_no_file(mux->arg, p->text);
    if (w != NULL && p->m.kind == WRITER_HELD)
        w->held = p->m.number != 0;
    if (w == NULL || !w->awaited)
        return;
    if (p->m.kind == WRITER_LAST_OUTPUT) {
        report_last_output(
            w, &(struct logmux_last_output){.error = writer_wire_part(p, 0),
                                            .bad_error = (p->m.flags & WRITER_BAD_FILE) != 0,
                                            .tail = writer_wire_part(p, 1)});
    } else if (p->m.kind == WRITER_DRAINED) {
        w->awaited = false;
        writer_await(mux->writer, -1);
        drained(w);
    }
}

/* Ends the output to log files that can hang. Returns whether there were any. */
static bool drop_files(struct logmux *mux) {
    _cleanup_(freep) char *first = NULL;
    unsigned n = 0;
    for (uint32_t i = 0; i < 2 * mux->n_workers; i++) {
        struct mux_stream *s = &mux->workers[i / 2].streams[i % 2];
        if (mux->workers[i / 2].drained)
            continue;
        char *path = TAKE_PTR(s->path);
        if ((s->flags & WRITER_TO_FILE) != 0 && n++ == 0)
            first = TAKE_PTR(path);
        s->flags &= ~(unsigned)WRITER_TO_FILE;
        free(path);
    }
    if (n == 1)
        log_warning("output of this attempt is no longer written to %s", first);
    else if (n > 1)
        log_warning("output of this attempt is no longer written to %u log files: %s, ...", n,
                    first);
    return n > 0;
}

/* The next writer gets the pipes of the last one. But a worker that has ended is not awaited twice,
 * and files that can hang are not tried again. */
static bool on_lost(void *arg, bool hung) {
    struct logmux *mux = arg;
    const bool lacks = hung && drop_files(mux);
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        if (!w->opened || w->drained || (!w->handed && !w->awaited))
            continue;
        const bool awaited = w->awaited, again = awaited && !w->lost && !hung;
        w->lost = true;
        w->held = w->awaited = false; /* the next writer does not count this request */
        if (awaited && !again) {
            loop_timer_set(w->grace, clock_now_ns());
            continue;
        }
        if (w->handed) {
            w->handed = false;
            hand_over(w);
        }
        if (again)
            ask_for_the_end(w);
    }
    return lacks;
}

/* --- opening ---------------------------------------------------------------------------------- */

struct prefix_values {
    const struct logmux_worker *worker;
    char local_rank[16], rank[16];
};

static const char *prefix_value(void *arg, const char *name) {
    const struct prefix_values *v = arg;
    return strcmp(name, "role_name") == 0    ? v->worker->role
           : strcmp(name, "local_rank") == 0 ? v->local_rank
           : strcmp(name, "rank") == 0       ? v->rank
           : strcmp(name, "hostname") == 0   ? v->worker->hostname
                                             : NULL;
}

char *logmux_prefix(const char *prefix_template, const struct logmux_worker *worker) {
    struct prefix_values v = {.worker = worker};
    (void)snprintf(v.local_rank, sizeof v.local_rank, "%" PRIu32, worker->local_rank);
    (void)snprintf(v.rank, sizeof v.rank, "%" PRIu32, worker->rank);
    return template_substitute(prefix_template, prefix_value, &v);
}

static int open_null(int *ret, struct err *err) {
    *ret = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *ret >= 0 ? 0 : err_set(err, -errno, "can't open /dev/null: %s", strerror(errno));
}

/* Where there are no pseudo-terminals, or not enough, a pipe does, too. */
static int open_pty(struct mux_stream *s, int terminal) {
    int r = terminal < 0 ? -ENOTTY : pty_open(terminal, &s->pipe_fd, &s->child_fd);
    if (r < 0 && terminal >= 0)
        log_debug("no pseudo-terminal for a worker's output: %s", strerror(-r));
    s->like = r < 0 ? -1 : terminal;
    return r;
}

static int open_pipe(struct mux_stream *s, struct err *err) {
    struct logmux *mux = s->worker->mux;
    int r = child_pipe(&s->pipe_fd, &s->child_fd);
    if (r < 0)
        return err_set(err, r, "can't make a pipe for a worker's output: %s", strerror(-r));
    (void)fcntl(s->pipe_fd, F_SETPIPE_SZ, (int)mux->pipe_bytes); /* useful, but not required */
    return 0;
}

/* Implements the table in the header. */
static int open_stream(struct mux_stream *s, const struct logmux_worker *worker, struct err *err) {
    int k = s == &s->worker->streams[OUT] ? OUT : ERR;
    unsigned bit = k == OUT ? STD_OUT : STD_ERR;
    bool tee = (worker->tee & bit) != 0, redirect = (worker->redirects & bit) != 0;
    bool wants_file = worker->dir != NULL && (tee || redirect);
    bool through_us = tee && worker->on_console;
    if (wants_file)
        s->path = logdir_log_path(worker->dir, k);
    if (wants_file && !through_us && worker->file_fds[k] >= 0) {
        s->borrowed = true;
        s->child_fd = worker->file_fds[k];
        return 0;
    }
    if (wants_file && !through_us)
        free(TAKE_PTR(s->path)); /* it could not be opened */
    if (!worker->on_console && k == OUT)
        return open_null(&s->child_fd, err);
    bool prefixed = tee || wants_file || worker->prefixed;
    s->flags = (k == ERR ? (unsigned)WRITER_KEEP_TAIL : 0) |
               (s->path != NULL ? (unsigned)WRITER_TO_FILE : 0) |
               (worker->on_console ? (unsigned)WRITER_SHOWN : 0) |
               (prefixed ? (unsigned)WRITER_PREFIXED : 0);
    bool plain = worker->on_console && !prefixed;
    if (!plain || open_pty(s, writer_terminal(s->worker->mux->writer, k)) < 0)
        return open_pipe(s, err);
    s->flags |= worker->alone ? (unsigned)WRITER_EXACT : 0;
    return 0;
}

/* Both streams go to the same terminal, pipe or file: through one of ours, their order is kept. On
 * a terminal with several workers they have two, because a progress bar would take a line of
 * standard output for its own. */
static bool has_one_output(const struct mux_worker *w, const struct logmux_worker *worker) {
    const struct writer *writer = w->mux->writer;
    return worker->on_console && (worker->redirects | worker->tee) == STD_NONE &&
           writer_has_one_output(writer) && (worker->alone || writer_terminal(writer, ERR) < 0);
}

static int open_both(struct mux_worker *w, const struct logmux_worker *worker, struct err *err) {
    struct mux_stream *out = &w->streams[OUT];
    int r = open_stream(&w->streams[ERR], worker, err);
    if (r < 0 || !has_one_output(w, worker))
        return r < 0 ? r : open_stream(out, worker, err);
    out->child_fd = w->streams[ERR].child_fd;
    out->borrowed = true;
    return 0;
}

static int open_streams(struct mux_worker *w, const struct logmux_worker *worker, struct err *err) {
    struct logmux *mux = w->mux;
    w->prefix = logmux_prefix(mux->prefix_template, worker);
    int r = open_both(w, worker, err);
    bool files = ((w->streams[OUT].flags | w->streams[ERR].flags) & WRITER_TO_FILE) != 0;
    if (r == 0 && !at_end(w) && (files || writer_runs(mux->writer))) {
        hand_over(w);
        return 0;
    }
    for (int k = OUT; k <= ERR && r == 0; k++) {
        struct mux_stream *s = &w->streams[k];
        if (s->pipe_fd < 0)
            continue;
        r = loop_watch_new(mux->loop, s->pipe_fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, w,
                           &s->watch);
        if (r < 0)
            (void)err_set(err, r, "can't watch a worker's output: %s", strerror(-r));
    }
    return r;
}

int logmux_open(struct logmux *mux, uint32_t index, const struct logmux_worker *worker,
                int *ret_stdout_fd, int *ret_stderr_fd, struct err *err) {
    assert(index < mux->n_workers && !mux->workers[index].opened);
    struct mux_worker *w = &mux->workers[index];
    w->opened = true;
    int r = loop_timer_new(mux->loop, on_grace, w, &w->grace);
    if (r < 0)
        return err_set(err, r, "can't watch a worker's output: %s", strerror(-r));
    r = open_streams(w, worker, err);
    if (r < 0) {
        unwatch(w);
        file_close(&w->streams[OUT].pipe_fd);
        file_close(&w->streams[ERR].pipe_fd);
        return r;
    }
    *ret_stdout_fd = w->streams[OUT].child_fd;
    *ret_stderr_fd = w->streams[ERR].child_fd;
    return 0;
}

void logmux_resize(struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        for (int k = OUT; k <= ERR; k++) {
            struct mux_stream *s = &mux->workers[i].streams[k];
            if (s->pipe_fd >= 0 && s->like >= 0)
                pty_resize(s->pipe_fd, s->like);
        }
    }
}

void logmux_started(struct logmux *mux, uint32_t index) {
    for (int k = OUT; k <= ERR; k++) {
        struct mux_stream *s = &mux->workers[index].streams[k];
        if (!s->borrowed)
            file_close(&s->child_fd);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

int logmux_new(struct loop *loop, struct writer *writer, uint32_t n_workers,
               const char *prefix_template, const struct logmux_ops *ops, void *arg,
               struct logmux **ret) {
    struct logmux *mux = xcalloc(1, sizeof *mux);
    bool given = prefix_template != NULL && prefix_template[0] != '\0';
    mux->loop = loop;
    mux->writer = writer;
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
        struct mux_worker *w = &mux->workers[i];
        w->mux = mux;
        w->index = i;
        for (int k = OUT; k <= ERR; k++) {
            struct mux_stream *s = &w->streams[k];
            s->worker = w;
            s->child_fd = s->pipe_fd = s->like = -1;
        }
    }
    mux->user.on_message = on_message;
    mux->user.on_lost = on_lost;
    mux->user.arg = mux;
    writer_add(writer, &mux->user);
    *ret = mux;
    return 0;
}

void logmux_free(struct logmux *mux) {
    if (mux == NULL)
        return;
    writer_remove(mux->writer, &mux->user);
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        if (w->awaited)
            writer_await(mux->writer, -1);
        unwatch(w);
        loop_timer_free(w->grace);
        logmux_started(mux, i);
        for (int k = OUT; k <= ERR; k++) {
            file_close(&w->streams[k].pipe_fd);
            free(w->streams[k].path);
        }
        free(w->prefix);
        free(w->error_path);
    }
    free(mux->workers);
    free(mux->prefix_template);
    free(mux);
}
