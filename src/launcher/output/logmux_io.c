#include "launcher/output/logmux_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/text/log.h"
#include "base/text/template.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/worker_logs_io.h"

#define PIPE_BYTES_MAX ((size_t)1024 * 1024)
#define PIPE_BYTES_MIN ((size_t)64 * 1024)
#define DEFAULT_PREFIX "[${role_name}${local_rank}]:"

struct mux_stream {
    struct mux_worker *worker;
    int child_fd; /* the worker's end, or its file, until logmux_started(); -1 */
    int pipe_fd;  /* kept open until everything is drained, so that a worker gets no SIGPIPE when
                      the writer dies; -1 */
    int like;     /* a terminal: pipe_fd is a pseudo-terminal like it; -1: it is a pipe */
    char *path;   /* of its log file; NULL: none */
    enum stream_view view;
};

enum { OUT = 0, ERR = 1 };

/*  UNOPENED -> OPEN <-> HELD
 *               |         |
 *               v         v
 *             ENDING -> ENDING_AGAIN -> DRAINING -> DRAINED */
enum mux_state {
    MUX_UNOPENED = 1,
    MUX_OPEN,         /* the writer reads its pipes */
    MUX_HELD,         /* it has them, but reads nothing: the console takes nothing */
    MUX_ENDING,       /* the worker has exited; the writer was asked for the rest of its output */
    MUX_ENDING_AGAIN, /* that writer was lost, and the next one was asked */
    MUX_DRAINING,     /* no writer is asked any more: it is drained in the loop's next turn */
    MUX_DRAINED,
};

struct mux_worker {
    struct logmux *mux;
    uint32_t index;
    enum mux_state state;
    char *prefix;
    char *error_path; /* its last output is to be reported; NULL: it is not */
    struct mux_stream streams[2];
};

struct logmux {
    struct loop *loop;
    struct writer *writer;
    struct writer_user user;
    const struct job_spec *spec;
    const char *host;
    uint32_t first_rank;
    struct logmux_ops ops;
    void *arg;
    size_t pipe_bytes;
    bool no_more; /* no process can write any more */
    bool alone;   /* the output of one worker is shown */
    uint32_t n_workers;
    struct mux_worker *workers; /* [n_workers] */
};

static void drained(void *arg);

static bool is_awaited(enum mux_state s) { return s == MUX_ENDING || s == MUX_ENDING_AGAIN; }

static void move(struct mux_worker *w, enum mux_state to) {
    static const unsigned allowed[] = {
        [MUX_UNOPENED] = 1U << MUX_OPEN,
        [MUX_OPEN] = 1U << MUX_OPEN | 1U << MUX_HELD | 1U << MUX_ENDING | 1U << MUX_DRAINING,
        [MUX_HELD] = 1U << MUX_OPEN | 1U << MUX_HELD | 1U << MUX_ENDING | 1U << MUX_DRAINING,
        [MUX_ENDING] = 1U << MUX_ENDING_AGAIN | 1U << MUX_DRAINING | 1U << MUX_DRAINED,
        [MUX_ENDING_AGAIN] = 1U << MUX_DRAINING | 1U << MUX_DRAINED,
        [MUX_DRAINING] = 1U << MUX_DRAINED,
        [MUX_DRAINED] = 0,
    };
    assert((allowed[w->state] & 1U << to) != 0);
    int by = (int)is_awaited(to) - (int)is_awaited(w->state);
    w->state = to;
    if (by != 0)
        writer_await(w->mux->writer, by);
    if (to == MUX_DRAINING)
        loop_defer(w->mux->loop, LOOP_PRIO_CHILD, drained, w);
}

/* --- to the writer ---------------------------------------------------------------------------- */

static bool has_pipes(const struct mux_worker *w) {
    return w->streams[OUT].pipe_fd >= 0 || w->streams[ERR].pipe_fd >= 0;
}

static void hand_over(struct mux_worker *w) {
    const struct mux_stream *out = &w->streams[OUT], *err = &w->streams[ERR];
    if (!has_pipes(w))
        return;
    writer_send(w->mux->writer, &w->mux->user,
                &(struct writer_message){.kind = WRITER_OPEN,
                                         .index = w->index,
                                         .open = {.views = {out->view, err->view},
                                                  .fds = {out->pipe_fd, err->pipe_fd},
                                                  .prefix = w->prefix,
                                                  .paths = {out->path, err->path}}});
}

static void ask_for_the_end(const struct mux_worker *w) {
    const struct logmux *mux = w->mux;
    writer_send(mux->writer, &mux->user,
                &(struct writer_message){.kind = WRITER_EXITED,
                                         .index = w->index,
                                         .exited = {.wants_last_output = w->error_path != NULL,
                                                    .more = !mux->no_more,
                                                    .error_path = w->error_path,
                                                    .stderr_path = w->streams[ERR].path}});
}

/* --- its end ---------------------------------------------------------------------------------- */

static void report_last_output(struct mux_worker *w, const struct writer_last_output *last) {
    if (w->error_path == NULL)
        return;
    free(TAKE_PTR(w->error_path));
    w->mux->ops.on_last_output(w->mux->arg, w->index, last);
}

static void drained(void *arg) {
    struct mux_worker *w = arg;
    file_close(&w->streams[OUT].pipe_fd);
    file_close(&w->streams[ERR].pipe_fd);
    report_last_output(w, &(struct writer_last_output){.error = "", .tail = ""});
    move(w, MUX_DRAINED);
    w->mux->ops.on_drained(w->mux->arg, w->index);
}

void logmux_exited(struct logmux *mux, uint32_t index, const char *error_path) {
    struct mux_worker *w = &mux->workers[index];
    if (w->state != MUX_OPEN && w->state != MUX_HELD)
        return;
    logmux_started(mux, index);
    w->error_path = error_path == NULL ? NULL : xstrdup(error_path);
    if (!has_pipes(w) && error_path == NULL) {
        move(w, MUX_DRAINING);
        return;
    }
    move(w, MUX_ENDING);
    ask_for_the_end(w);
}

void logmux_no_more(struct logmux *mux) {
    mux->no_more = true;
    for (uint32_t i = 0; i < mux->n_workers; i++)
        if (is_awaited(mux->workers[i].state))
            ask_for_the_end(&mux->workers[i]);
}

bool logmux_is_held(const struct logmux *mux, uint32_t index) {
    return index < mux->n_workers && mux->workers[index].state == MUX_HELD;
}

bool logmux_all_drained(const struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        enum mux_state s = mux->workers[i].state;
        if (s != MUX_UNOPENED && s != MUX_DRAINED)
            return false;
    }
    return true;
}

/* --- messages from the writer ----------------------------------------------------------------- */

static void on_message(void *arg, struct writer_message *m) {
    struct logmux *mux = arg;
    struct mux_worker *w = m->index < mux->n_workers ? &mux->workers[m->index] : NULL;
    if (m->kind == WRITER_NO_FILE)
        mux->ops.on_no_file(mux->arg, m->no_file.why);
    if (w == NULL)
        return;
    if (m->kind == WRITER_HELD && (w->state == MUX_OPEN || w->state == MUX_HELD))
        move(w, m->held.on ? MUX_HELD : MUX_OPEN);
    if (!is_awaited(w->state))
        return;
    if (m->kind == WRITER_LAST_OUTPUT)
        report_last_output(w, &m->last_output);
    else if (m->kind == WRITER_DRAINED)
        drained(w);
}

/* Ends the output to log files that can hang. Returns whether there were any. */
static bool drop_files(struct logmux *mux) {
    _cleanup_(freep) char *first = NULL;
    unsigned n = 0;
    for (uint32_t i = 0; i < 2 * mux->n_workers; i++) {
        struct mux_stream *s = &mux->workers[i / 2].streams[i % 2];
        if (mux->workers[i / 2].state == MUX_DRAINED)
            continue;
        _cleanup_(freep) char *path = TAKE_PTR(s->path);
        if (path != NULL && s->pipe_fd >= 0 && n++ == 0)
            first = TAKE_PTR(path);
    }
    if (n == 1)
        log_warning("output of this attempt is no longer written to %s", first);
    else if (n > 1)
        log_warning("output of this attempt is no longer written to %u log files: %s, ...", n,
                    first);
    return n > 0;
}

/* The next writer gets the pipes of the last one. But a worker that has ended is awaited twice at
 * most, and files that can hang are not tried again. */
static bool on_lost(void *arg, bool hung) {
    struct logmux *mux = arg;
    const bool lacks = hung && drop_files(mux);
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        switch (w->state) {
        case MUX_UNOPENED:
        case MUX_DRAINING:
        case MUX_DRAINED: break;
        case MUX_OPEN:
        case MUX_HELD:
            move(w, MUX_OPEN);
            hand_over(w);
            break;
        case MUX_ENDING:
        case MUX_ENDING_AGAIN:
            if (hung || w->state == MUX_ENDING_AGAIN) {
                move(w, MUX_DRAINING);
                break;
            }
            move(w, MUX_ENDING_AGAIN);
            hand_over(w);
            ask_for_the_end(w);
            break;
        }
    }
    return lacks;
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool is_shown(const struct job_spec *spec, uint32_t local_rank) {
    return spec->console_ranks == NULL || spec->console_ranks[local_rank];
}

struct prefix_values {
    const struct logmux *mux;
    char local_rank[16], rank[16];
};

static const char *prefix_value(void *arg, const char *name) {
    const struct prefix_values *v = arg;
    return strcmp(name, "role_name") == 0    ? v->mux->spec->role
           : strcmp(name, "local_rank") == 0 ? v->local_rank
           : strcmp(name, "rank") == 0       ? v->rank
           : strcmp(name, "hostname") == 0   ? v->mux->host
                                             : NULL;
}

static char *prefix_of(const struct mux_worker *w) {
    const struct logmux *mux = w->mux;
    const struct job_spec *spec = mux->spec;
    struct prefix_values v = {.mux = mux};
    const char *text = spec->line_prefix;
    (void)snprintf(v.local_rank, sizeof v.local_rank, "%" PRIu32, w->index);
    (void)snprintf(v.rank, sizeof v.rank, "%" PRIu32, mux->first_rank + w->index);
    if (spec->prefix == JOB_PREFIX_NEVER)
        text = "";
    else if (text == NULL)
        text = worker_logs_asked_for(spec) ? DEFAULT_PREFIX : JOB_RANK_PREFIX;
    return template_substitute(text, prefix_value, &v);
}

static int open_null(int *ret, struct err *err) {
    *ret = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *ret >= 0 ? 0 : err_set(err, -errno, "can't open /dev/null: %s", strerror(errno));
}

/* A pseudo-terminal with the settings of the terminal `like`, but raw: it changes no byte, so these
 * can be passed on. It never becomes a controlling terminal by being opened here. Reading gives EIO
 * after the last process has closed its end. -errno: no /dev/ptmx, the limit kernel.pty.max.
 * pty(7) */
static int pty_open(int like, int *ret_ours, int *ret_workers) {
    struct termios settings;
    /* the worker's end by ours, because its name can be of another mount namespace */
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), workers = -1;
    if (ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0)
        workers = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool ok =
        workers >= 0 && (tcgetattr(like, &settings) == 0 || tcgetattr(workers, &settings) == 0);
    if (ok) {
        cfmakeraw(&settings);
        ok = tcsetattr(workers, TCSANOW, &settings) == 0;
    }
    if (!ok) {
        int r = errno != 0 ? -errno : -EIO;
        file_close(&workers);
        file_close(&ours);
        return r;
    }
    *ret_ours = ours;
    *ret_workers = workers;
    return 0;
}

/* Where there are no pseudo-terminals, or not enough, a pipe does, too. */
static int open_pty(struct mux_stream *s, int terminal) {
    int r = terminal < 0 ? -ENOTTY : pty_open(terminal, &s->pipe_fd, &s->child_fd);
    if (r < 0 && terminal >= 0)
        log_debug("no pseudo-terminal for a worker's output: %s", strerror(-r));
    s->like = r < 0 ? -1 : terminal;
    return r;
}

/* Gives it the size of the user's terminal, without the columns of the prefix. */
static void resize(const struct mux_stream *s) {
    size_t prefix = s->view == STREAM_PREFIXED ? strlen(s->worker->prefix) : 0;
    struct winsize size;
    if (s->pipe_fd < 0 || s->like < 0 || ioctl(s->like, TIOCGWINSZ, &size) < 0)
        return;
    if (size.ws_col > prefix)
        size.ws_col = (unsigned short)(size.ws_col - prefix);
    (void)ioctl(s->pipe_fd, TIOCSWINSZ, &size);
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
static int open_stream(struct mux_stream *s, const char *dir, struct err *err) {
    const struct logmux *mux = s->worker->mux;
    const struct job_spec *spec = mux->spec;
    const uint32_t index = s->worker->index;
    int k = s == &s->worker->streams[OUT] ? OUT : ERR;
    unsigned bit = k == OUT ? STD_OUT : STD_ERR;
    bool shown = is_shown(spec, index), always = spec->output == JOB_OUTPUT_PREFIXED;
    bool redirect = (std_map_get(&spec->redirects, index) & bit) != 0;
    bool lacks = dir == NULL && !(spec->log_dir != NULL && logdir_is_null(spec->log_dir));
    bool tee = (std_map_get(&spec->tee, index) & bit) != 0 || (lacks && redirect);
    bool wants_file = dir != NULL && (tee || redirect), through_us = tee && shown;
    if (wants_file && (through_us || s->child_fd >= 0)) /* else it could not be opened */
        s->path = logdir_log_path(dir, k);
    if (s->child_fd >= 0)
        return 0;
    if (!shown && k == OUT)
        return open_null(&s->child_fd, err);
    const int terminal = tee || wants_file ? -1 : writer_terminal(mux->writer, k);
    bool prefixed = tee || wants_file || spec->prefix == JOB_PREFIX_ALWAYS ||
                    (spec->prefix == JOB_PREFIX_AUTO && (always || (terminal >= 0 && !mux->alone)));
    s->view = !shown ? STREAM_HIDDEN : prefixed ? STREAM_PREFIXED : STREAM_LINES;
    if (!shown || open_pty(s, terminal) < 0)
        return open_pipe(s, err);
    if (mux->alone && !prefixed)
        s->view = STREAM_EXACT;
    resize(s);
    return 0;
}

/* Both streams go to the same terminal, pipe or file: through one of ours, their order is kept. On
 * a terminal with several workers they have two, because a progress bar would take a line of
 * standard output for its own. */
static bool has_one_output(const struct mux_worker *w) {
    const struct logmux *mux = w->mux;
    const struct job_spec *spec = mux->spec;
    unsigned files = std_map_get(&spec->redirects, w->index) | std_map_get(&spec->tee, w->index);
    return is_shown(spec, w->index) && files == STD_NONE && writer_has_one_output(mux->writer) &&
           (mux->alone || writer_terminal(mux->writer, ERR) < 0);
}

static int open_both(struct mux_worker *w, const char *dir, struct err *err) {
    struct mux_stream *out = &w->streams[OUT];
    int r = open_stream(&w->streams[ERR], dir, err);
    if (r < 0 || !has_one_output(w))
        return r < 0 ? r : open_stream(out, dir, err);
    out->child_fd = w->streams[ERR].child_fd;
    return 0;
}

int logmux_open(struct logmux *mux, uint32_t index, const char *dir, const int file_fds[2],
                int *ret_stdout_fd, int *ret_stderr_fd, struct err *err) {
    assert(index < mux->n_workers && mux->workers[index].state == MUX_UNOPENED);
    struct mux_worker *w = &mux->workers[index];
    w->prefix = prefix_of(w);
    move(w, MUX_OPEN);
    for (int k = OUT; k <= ERR; k++)
        w->streams[k].child_fd = file_fds[k];
    int r = open_both(w, dir, err);
    if (r < 0) {
        file_close(&w->streams[OUT].pipe_fd);
        file_close(&w->streams[ERR].pipe_fd);
        return r;
    }
    hand_over(w);
    *ret_stdout_fd = w->streams[OUT].child_fd;
    *ret_stderr_fd = w->streams[ERR].child_fd;
    return 0;
}

void logmux_resize(struct logmux *mux) {
    for (uint32_t i = 0; i < mux->n_workers; i++)
        for (int k = OUT; k <= ERR; k++)
            resize(&mux->workers[i].streams[k]);
}

void logmux_started(struct logmux *mux, uint32_t index) {
    int *out = &mux->workers[index].streams[OUT].child_fd;
    int *err = &mux->workers[index].streams[ERR].child_fd;
    *out = *out == *err ? -1 : *out;
    file_close(out);
    file_close(err);
}

struct logmux *logmux_new(struct loop *loop, struct writer *writer, const struct job_spec *spec,
                          const char *host, uint32_t first_rank, const struct logmux_ops *ops,
                          void *arg) {
    const uint32_t n_workers = spec->nproc;
    uint32_t n_shown = 0;
    struct logmux *mux = xcalloc(1, sizeof *mux);
    *mux = (struct logmux){.loop = loop,
                           .writer = writer,
                           .spec = spec,
                           .host = host,
                           .first_rank = first_rank,
                           .ops = *ops,
                           .arg = arg,
                           .pipe_bytes = PIPE_BYTES_MAX,
                           .n_workers = n_workers};
    while (mux->pipe_bytes > PIPE_BYTES_MIN &&
           mux->pipe_bytes * n_workers * 2 > LOGMUX_PIPES_MAX_BYTES)
        mux->pipe_bytes /= 2;
    mux->workers = xcalloc(MAX2(n_workers, 1u), sizeof *mux->workers);
    for (uint32_t i = 0; i < n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        w->mux = mux;
        w->index = i;
        w->state = MUX_UNOPENED;
        n_shown += is_shown(spec, i);
        for (int k = OUT; k <= ERR; k++) {
            struct mux_stream *s = &w->streams[k];
            s->worker = w;
            s->child_fd = s->pipe_fd = s->like = -1;
        }
    }
    mux->alone = n_shown == 1;
    mux->user.on_message = on_message;
    mux->user.on_lost = on_lost;
    mux->user.arg = mux;
    writer_add(writer, &mux->user);
    return mux;
}

void logmux_free(struct logmux *mux) {
    if (mux == NULL)
        return;
    writer_remove(mux->writer, &mux->user);
    for (uint32_t i = 0; i < mux->n_workers; i++) {
        struct mux_worker *w = &mux->workers[i];
        if (is_awaited(w->state))
            writer_await(mux->writer, -1);
        loop_defer_drop(mux->loop, drained, w);
        logmux_started(mux, i);
        for (int k = OUT; k <= ERR; k++) {
            file_close(&w->streams[k].pipe_fd);
            free(w->streams[k].path);
        }
        free(w->prefix);
        free(w->error_path);
    }
    free(mux->workers);
    free(mux);
}
