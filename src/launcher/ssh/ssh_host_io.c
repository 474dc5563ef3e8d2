#include "launcher/ssh/ssh_host_io.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "base/text/tail.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/stream.h"
#include "launcher/output/console_io.h"

/* ssh's exit status for its errors, ssh(1); a shell's without such a program, POSIX, XCU 2.8.2 */
#define EXIT_SSH 255
#define EXIT_NOT_FOUND 127
#define EXIT_NOT_EXECUTABLE 126

struct ssh_host {
    const struct ssh_host_env *env;
    uint32_t i;
    struct stream *stream;    /* NULL: not called, or its end was read */
    struct child_watch *ssh;  /* NULL: not called, or it has ended */
    struct loop_timer *timer; /* until it is gone although one of both is there */
    int err_fd;
    struct loop_watch *err_watch;
    struct tail tail;    /* of stderr */
    bool begun, greeted; /* the frames have begun; HELLO has come */
    bool paused;
    bool last_said; /* EXIT or FAIL has come */
    bool gone;
    struct child_status status;
    char why[SSH_HOST_LINE_MAX + 256]; /* "": it has ended well, so far */
};

/* ---- stderr ---- */

/* The last line that is not empty; "": there is none. */
static void last_line(const struct ssh_host *h, char ret[SSH_HOST_LINE_MAX]) {
    const char *text = tail_lines(&h->tail), *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1]) != NULL)
        end--;
    const char *begin = end;
    while (begin > text && begin[-1] != '\n')
        begin--;
    (void)snprintf(ret, SSH_HOST_LINE_MAX, "%.*s", (int)(end - begin), begin);
    utf8_clean(ret, false);
}

/* False: nothing more comes now, or ever. */
static bool read_stderr(struct ssh_host *h) {
    char bytes[4096];
    ssize_t n = read(h->err_fd, bytes, sizeof bytes);
    if (n > 0)
        tail_add(&h->tail, bytes, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        loop_watch_free(TAKE_PTR(h->err_watch));
        file_close(&h->err_fd);
    }
    return n > 0;
}

static void on_stderr(void *arg, int fd, unsigned events) { (void)read_stderr(arg); }

/* ---- why ---- */

#define because(h, ...) set_why(h, xasprintf(__VA_ARGS__))
static void set_why(struct ssh_host *h, char *why) {
    if (h->why[0] == '\0') /* the first reason */
        (void)snprintf(h->why, sizeof h->why, "%s", why);
    free(why);
}

/* Of a login that ended before the relay began, by how ssh has ended. */
static void because_of_end(struct ssh_host *h) {
    char line[SSH_HOST_LINE_MAX];
    last_line(h, line);
    if (line[0] == '\0')
        (void)snprintf(line, sizeof line, "it printed nothing");
    if (h->status.signalled)
        because(h, "its %s was killed by signal %d", h->env->by, h->status.code);
    else if (h->begun)
        because(h, "the connection was lost: %s", line);
    else if (h->status.code == EXIT_NOT_FOUND || h->status.code == EXIT_NOT_EXECUTABLE)
        because(h,
                "it can't run %.256s: %s (muster must be there, at the same path as on this "
                "machine)",
                h->env->program, line);
    else if (strstr(line, "Permission denied") != NULL)
        because(h, "%s (a key must be enough: muster answers no questions)", line);
    else if (h->status.code == EXIT_SSH)
        because(h, "%s", line);
    else
        because(h, "its login ended with status %d before muster began: %s", h->status.code, line);
}

static void be_gone(struct ssh_host *h) {
    if (h->gone)
        return;
    h->gone = true;
    loop_timer_set(h->timer, TIME_NEVER);
    while (h->err_fd >= 0 && read_stderr(h)) {
    }
    for (const char *line = tail_lines(&h->tail); *line != '\0'; line = text_next_line(line))
        log_debug("ssh of host %u: %.*s", h->i, (int)strcspn(line, "\n"), line);
    if (!h->last_said)
        because_of_end(h);
    h->env->ops.on_gone(h->env->arg, h->i, h->why[0] != '\0' ? h->why : NULL);
}

/* Both ends have come, or the last message has said all; else the second one is waited for. */
static void look(struct ssh_host *h) {
    if (h->last_said || (h->stream == NULL && h->ssh == NULL))
        be_gone(h);
    else if (h->stream == NULL || h->ssh == NULL)
        loop_timer_set(h->timer, clock_now_ns() + SSH_HOST_LINGER_NS);
}

static void on_timer(void *arg) {
    struct ssh_host *h = arg;
    ssh_host_kill(h);
    be_gone(h);
}

/* ---- what comes ---- */

/* For the first reason. */
static void refuse(struct ssh_host *h, const char *what) {
    because(h, "%s", what);
    h->last_said = true;
    ssh_host_kill(h);
}

static void greet(struct ssh_host *h, const struct starter_message *m) {
    h->greeted = true;
    if (strcmp(m->hello.version, h->env->version) == 0)
        return;
    because(h, "%.100s is muster %.60s there, and %.60s here", h->env->program, m->hello.version,
            h->env->version);
    refuse(h, "");
}

static void obey(struct ssh_host *h, const struct starter_message *m) {
    if ((m->kind == STARTER_HELLO) == h->greeted) {
        refuse(h, "it has sent what no muster sends");
        return;
    }
    if (m->kind == STARTER_HELLO)
        greet(h, m);
    if (m->kind == STARTER_FAIL)
        because(h, "%s", m->fail.text);
    h->last_said |= m->kind == STARTER_FAIL || m->kind == STARTER_EXIT;
    if (m->kind != STARTER_FAIL && (m->kind == STARTER_EXIT || !h->last_said))
        h->env->ops.on_message(h->env->arg, h->i, m);
}

/* False: the frames have not begun. */
static bool begin(struct ssh_host *h, struct stream *s) {
    size_t len = stream_available(s), n = 0;
    int r = len == 0 ? FRAME_E_MORE : ssh_find_begin(stream_peek(s, len), len, &n);
    if (r == -EPROTONOSUPPORT)
        refuse(h, "muster there is another version, which this one can't talk to");
    else if (r < 0)
        refuse(h, "its login prints without end: muster's own beginning is not in the first "
                  "64 KiB");
    if (r != 0)
        return false;
    h->begun = true;
    stream_drain(s, n);
    return true;
}

static void read_frames(struct ssh_host *h, struct stream *s) {
    while (!h->paused && !h->last_said) {
        struct starter_message m;
        struct err err = {0};
        size_t bytes = 0, len = stream_available(s);
        const uint8_t *data = len > 0 ? stream_peek(s, MIN2(len, STARTER_DATA_FRAME_MAX)) : NULL;
        int r = data != NULL ? starter_take(data, MIN2(len, STARTER_DATA_FRAME_MAX),
                                            STARTER_FROM_RELAY, &m, &bytes, &err)
                             : FRAME_E_MORE;
        if (r == FRAME_E_MORE)
            return;
        if (r < 0) {
            log_debug("host %u: %s", h->i, err.text);
            refuse(h, "it has sent what no muster sends");
            return;
        }
        obey(h, &m);
        stream_drain(s, bytes);
        if (loop_slice_is_over(h->env->loop)) {
            stream_read_later(s);
            return;
        }
    }
}

static void on_readable(void *arg, struct stream *s) {
    struct ssh_host *h = arg;
    if (h->gone)
        return;
    if (h->begun || begin(h, s))
        read_frames(h, s);
    if (h->last_said)
        look(h);
}

/* Some logins say on stdout why they end. */
static void take_noise(struct ssh_host *h, struct stream *s) {
    char line[SSH_HOST_LINE_MAX];
    size_t len = stream_available(s);
    last_line(h, line);
    if (h->begun || line[0] != '\0' || len == 0)
        return;
    tail_add(&h->tail, (const char *)stream_peek(s, len), len);
    tail_add(&h->tail, "\n", 1); /* what comes on stderr is not of this line */
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct ssh_host *h = arg;
    while (h->err_fd >= 0 && read_stderr(h)) {
    }
    take_noise(h, s);
    h->paused = false; /* what has come is little, and all that comes */
    for (size_t before = SIZE_MAX; h->begun && stream_available(s) < before;) {
        before = stream_available(s);
        read_frames(h, s);
    }
    stream_free(TAKE_PTR(h->stream));
    look(h);
}

static const struct stream_ops stream_ops = {.on_readable = on_readable, .on_closed = on_closed};

static void on_exit_of_ssh(void *arg, const struct child_status *status) {
    struct ssh_host *h = arg;
    child_watch_free(TAKE_PTR(h->ssh));
    h->status = *status;
    if (!h->gone)
        look(h);
}

/* ---- calls ---- */

static int spawn(struct ssh_host *h, char *const *argv, char *const *envp, int theirs, int err_fd,
                 struct err *err) {
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    spec.argv = argv;
    spec.envp = envp;
    spec.stdin_fd = spec.stdout_fd = theirs;
    spec.stderr_fd = err_fd;
    spec.setsid = true;
    static_assert(LAUNCHER_SIGNALS_MAX <= CHILD_IGNORED_MAX, "all fit");
    for (size_t i = 0; h->env->save != NULL && i < LAUNCHER_SIGNALS_MAX; i++)
        spec.ignored[i] = h->env->save[i];
    int r = child_spawn(&spec, &child, err);
    if (r == 0)
        h->ssh = child_watch_new(loop_reaper(h->env->loop), &child, NULL, on_exit_of_ssh, h);
    return r;
}

int ssh_host_call(const struct ssh_host_env *env, uint32_t i, char *const *argv, char *const *envp,
                  struct ssh_host **ret, struct err *err) {
    _cleanup_(file_close) int err_write = -1;
    int pair[2];
    struct ssh_host *h = *ret = xcalloc(1, sizeof *h);
    *h = (struct ssh_host){.env = env, .i = i, .err_fd = -1};
    int r = child_pipe(&h->err_fd, &err_write);
    if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        r = -errno;
    h->timer = loop_timer_new(env->loop, on_timer, h);
    if (r < 0) {
        file_close(&h->err_fd);
        return err_set(err, r, "can't start its ssh: %s", strerror(-r));
    }
    h->err_watch = loop_watch_new(env->loop, h->err_fd, LOOP_READ, LOOP_PRIO_CHILD, on_stderr, h);
    h->stream = stream_new(env->loop, pair[0], &stream_ops, h);
    stream_set_read_limit(h->stream,
                          MAX2(2 * STARTER_DATA_FRAME_MAX, SSH_NOISE_MAX + STARTER_DATA_FRAME_MAX));
    r = spawn(h, argv, envp, pair[1], err_write, err);
    file_close(&pair[1]);
    return r;
}

void ssh_host_send(struct ssh_host *h, const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    if (h->stream == NULL || h->last_said)
        return;
    starter_add(m, &frame);
    stream_write_now(h->stream, strbuf_text(&frame), frame.len);
}

static void on_secret_sent(void *arg) {
    struct strbuf *sent = arg;
    strbuf_forget(sent);
    free(sent);
}

void ssh_host_send_secret(struct ssh_host *h, struct strbuf *frames) {
    if (h->stream == NULL || h->last_said) {
        strbuf_forget(frames);
        return;
    }
    struct strbuf *own = xmalloc(sizeof *own);
    *own = *frames;
    *frames = (struct strbuf){0};
    stream_write_ref(h->stream, own->data, own->len, on_secret_sent, own);
}

size_t ssh_host_unsent(const struct ssh_host *h) {
    return h->stream != NULL ? stream_unsent(h->stream) : 0;
}

void ssh_host_hang_up(struct ssh_host *h) {
    if (h->stream != NULL)
        (void)shutdown(stream_fd(h->stream), SHUT_WR);
}

void ssh_host_kill(struct ssh_host *h) {
    if (h->ssh != NULL && child_watch_kill(h->ssh, SIGKILL) < 0)
        log_debug("ssh of host %u has ended before it was killed", h->i);
}

void ssh_host_give_up(struct ssh_host *h, const char *why) {
    refuse(h, why);
    look(h);
}

void ssh_host_pause(struct ssh_host *h, bool pause) {
    if (h->paused == pause)
        return;
    h->paused = pause;
    if (h->stream != NULL && pause)
        stream_pause(h->stream);
    else if (h->stream != NULL)
        stream_resume(h->stream);
}

void ssh_host_free(struct ssh_host *h) {
    if (h == NULL)
        return;
    ssh_host_kill(h);
    child_watch_free(h->ssh);
    stream_free(h->stream);
    loop_watch_free(h->err_watch);
    file_close(&h->err_fd);
    loop_timer_free(h->timer);
    tail_fini(&h->tail);
    free(h);
}

/* ==== what all hosts write ==== */

/* One stream of a host. */
struct line {
    struct ssh_output *output;
    struct console_source source;
    struct linebuf text;
    bool left_out;   /* the line that has begun */
    bool cut;        /* the last bytes filled a frame: the end of a line may follow */
    char prefix[64]; /* of the line that has begun; "": none is known */
};

struct ssh_output {
    struct ssh_output_ops ops;
    void *arg;
    struct console *console;
    uint32_t n_hosts;
    struct line *lines; /* [n_hosts * SSH_OUTPUTS] */
    struct loop_timer *unended,
        *hurry;       /* for lines without an end; for a reader that has stopped */
    bool unended_due; /* the timer runs */
    bool hurries;
    bool only_workers, dropped;
    bool paused;
    bool finished;
};

static enum console_stream stream_of(size_t which) {
    return which == 0 ? CONSOLE_OUT : CONSOLE_ERR;
}

static void on_empty(void *arg) {
    struct ssh_output *o = arg;
    if (o->paused) {
        o->ops.pause(o->arg, o->paused = false);
        if (o->unended_due) /* only now the ends of their lines can come */
            loop_timer_set(o->unended, clock_now_ns() + LINEBUF_QUIET_NS);
    }
    if (o->finished)
        o->ops.on_done(o->arg);
}

static bool leaves_out(const struct line *l) {
    return l->source.stream == CONSOLE_ERR && (l->output->only_workers || l->output->dropped);
}

/* Also lines about an output pipe that was closed by order of the head, which has reported it. */
static bool is_left_out(const struct line *l, const struct linebuf_piece *piece) {
    const char *with = l->output->only_workers ? "muster: " : "muster: can't write to standard ";
    return leaves_out(l) && piece->len >= strlen(with) &&
           memcmp(piece->data, with, strlen(with)) == 0;
}

/* "[rank3]: " or "[default3]:", which the rest of the line gets again if another line comes in
 * between. */
static void keep_prefix(struct line *l, const struct linebuf_piece *piece) {
    (void)snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)piece->len, piece->data);
    const char *end = l->prefix[0] == '[' && !piece->ended ? strstr(l->prefix, "]:") : NULL;
    l->prefix[end == NULL ? 0 : end - l->prefix + (end[2] == ' ' ? 3 : 2)] = '\0';
}

static void on_piece(void *arg, const struct linebuf_piece *piece) {
    struct line *l = arg;
    if (piece->start == LINEBUF_NEW)
        l->left_out = is_left_out(l, piece);
    if (!l->left_out)
        console_source_piece(&l->source, piece);
    if (piece->start == LINEBUF_NEW || piece->ended)
        keep_prefix(l, piece);
}

void ssh_output_add(struct ssh_output *o, uint32_t host, size_t which, const void *data,
                    size_t len) {
    struct line *l = &o->lines[(size_t)host * SSH_OUTPUTS + which];
    uint64_t now_ns = clock_now_ns();
    if (leaves_out(l))
        linebuf_feed(&l->text, data, len, now_ns);
    else
        console_source_feed(&l->source, &l->text, data, len, now_ns);
    if (!o->paused && console_pending(o->console) > SSH_OUTPUT_ROOM)
        o->ops.pause(o->arg, o->paused = true);
    /* Less than the smallest pipe holds (two pages, if its user has many: pipe(7)), and all that
     * was in the agent's: what has no end was shown there, after its quiet time. */
    if (!l->cut && len < PIPE_BUF)
        linebuf_flush(&l->text);
    l->cut = len == STARTER_DATA_MAX;
    if (o->unended_due || linebuf_deadline_ns(&l->text) == TIME_NEVER)
        return;
    o->unended_due = true;
    loop_timer_set(o->unended, now_ns + LINEBUF_QUIET_NS);
}

void ssh_output_end_host(struct ssh_output *o, uint32_t host) {
    for (size_t which = 0; which < SSH_OUTPUTS; which++) {
        struct line *l = &o->lines[(size_t)host * SSH_OUTPUTS + which];
        if (!linebuf_finish(&l->text))
            continue;
        l->prefix[0] = '\0'; /* the agent has ended what needs an end */
        console_source_end(&l->source);
    }
}

static void on_unended(void *arg) {
    struct ssh_output *o = arg;
    uint64_t now_ns = clock_now_ns(), next_ns = TIME_NEVER;
    for (size_t i = 0; i < (size_t)o->n_hosts * SSH_OUTPUTS && !o->paused; i++) {
        struct linebuf *text = &o->lines[i].text;
        if (linebuf_deadline_ns(text) <= now_ns)
            linebuf_flush(text);
        else
            next_ns = MIN2(next_ns, linebuf_deadline_ns(text));
    }
    o->unended_due = o->paused || next_ns != TIME_NEVER; /* paused: on_empty() sets it */
    loop_timer_set(o->unended, next_ns);
}

void ssh_output_only_workers(struct ssh_output *o) { o->only_workers = true; }

/* ---- the reader ---- */

/* After a signal: what a reader does not take must not hide the end from us. */
static void on_hurry(void *arg) {
    struct ssh_output *o = arg;
    if (o->finished) {
        o->ops.on_done(o->arg);
        return;
    }
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        if (console_drop_if_stuck(o->console, stream_of(which), SSH_OUTPUT_ROOM / 2)) {
            o->dropped = true;
            log_warning("standard %s is not read; discarding the rest",
                        which == SSH_OUTPUT_OUT ? "output" : "error");
            o->ops.on_dropped(o->arg, which);
        }
    loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
}

void ssh_output_flush(struct ssh_output *o) { (void)console_flush(o->console, 0); }

void ssh_output_hurry(struct ssh_output *o) {
    if (o->hurries)
        return;
    o->hurries = true;
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        (void)console_drop_if_stuck(o->console, stream_of(which), SIZE_MAX);
    loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
}

void ssh_output_finish(struct ssh_output *o) {
    o->finished = true;
    for (uint32_t host = 0; host < o->n_hosts; host++)
        ssh_output_end_host(o, host);
    if (o->hurries)
        loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
    if (console_pending(o->console) == 0)
        o->ops.on_done(o->arg);
}

/* ---- all of it ---- */

struct ssh_output *ssh_output_new(struct loop *loop, uint32_t n_hosts,
                                  const struct ssh_output_ops *ops, void *arg) {
    struct ssh_output *o = xcalloc(1, sizeof *o);
    *o = (struct ssh_output){.ops = *ops, .arg = arg, .n_hosts = n_hosts};
    o->lines = xcalloc((size_t)n_hosts * SSH_OUTPUTS, sizeof *o->lines);
    o->unended = loop_timer_new(loop, on_unended, o);
    o->hurry = loop_timer_new(loop, on_hurry, o);
    o->console = console_new(loop, STDOUT_FILENO, STDERR_FILENO);
    for (size_t i = 0; i < (size_t)n_hosts * SSH_OUTPUTS; i++) {
        struct line *l = &o->lines[i];
        l->output = o;
        linebuf_init(&l->text, LINEBUF_LINE_MAX, false, on_piece, l);
        console_source_init(&l->source, o->console, stream_of(i % SSH_OUTPUTS), l->prefix);
    }
    console_on_empty(o->console, on_empty, o);
    log_set_sink(console_log_sink, o->console);
    return o;
}

void ssh_output_free(struct ssh_output *o) {
    if (o == NULL)
        return;
    log_set_sink(NULL, NULL);
    console_on_empty(o->console, NULL, NULL);
    ssh_output_flush(o);
    for (size_t i = 0; i < (size_t)o->n_hosts * SSH_OUTPUTS; i++) {
        linebuf_fini(&o->lines[i].text);
        console_source_fini(&o->lines[i].source);
    }
    free(o->lines);
    console_free(o->console);
    loop_timer_free(o->unended);
    loop_timer_free(o->hurry);
    free(o);
}
