#include "launcher/ssh/ssh_output_io.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"

#define PART_MAX ((size_t)64 * 1024) /* of a line */

/* The head's standard output or error. It never blocks: bytes wait here for a slow reader. */
struct console {
    struct ssh_output *of;
    int fd;                   /* borrowed, and unchanged: other processes use it, too */
    struct loop_watch *watch; /* NULL: a file, which never has to be waited for */
    struct strbuf queue;
    size_t done;            /* bytes at its beginning that are written */
    uint64_t written, seen; /* bytes in all; at the last check whether it is stuck */
    bool gone;
};

struct ssh_output {
    struct loop *loop;
    struct ssh_output_ops ops;
    void *arg;
    struct console consoles[SSH_OUTPUTS];
    uint32_t n_hosts;
    struct strbuf *parts;             /* [n_hosts * SSH_OUTPUTS]: the beginnings of lines */
    struct loop_timer *lines, *hurry; /* for these; for a reader that has stopped */
    bool lines_due;                   /* the timer runs */
    bool hurries;
    bool only_workers, dropped;
    bool finished;
};

static bool console_is_full(const struct console *c) {
    return c->queue.len - c->done > SSH_OUTPUT_ROOM;
}

static bool console_is_empty(const struct console *c) { return c->queue.len == c->done; }

static bool is_full(const struct ssh_output *o) {
    return console_is_full(&o->consoles[0]) || console_is_full(&o->consoles[1]);
}

static void done_if_written(struct ssh_output *o) {
    if (o->finished && console_is_empty(&o->consoles[0]) && console_is_empty(&o->consoles[1]))
        o->ops.on_done(o->arg);
}

/* A console was full, and is not any more. */
static void on_room(struct ssh_output *o) {
    if (!is_full(o))
        o->ops.pause(o->arg, false);
}

/* ---- writing ---- */

static void drop(struct console *c) {
    c->done = 0;
    strbuf_clear(&c->queue);
}

/* One write of as much as a pipe takes without blocking when poll(2) says that it is writable
 * (pipe(7): PIPE_BUF). False: it would block. */
static bool write_some(struct console *c) {
    size_t left = c->queue.len - c->done;
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    if (c->watch != NULL && poll(&p, 1, 0) <= 0)
        return false;
    ssize_t n = write(c->fd, strbuf_text(&c->queue) + c->done,
                      c->watch != NULL ? MIN2(left, (size_t)PIPE_BUF) : left);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    if (n < 0) {
        c->gone = true;
        drop(c);
    } else {
        c->done += (size_t)n;
        c->written += (size_t)n;
    }
    return true;
}

static void console_flush(struct console *c) {
    bool was_full = console_is_full(c), was_empty = console_is_empty(c);
    while (!console_is_empty(c) && write_some(c) && !loop_slice_is_over(c->of->loop)) {
    }
    if (console_is_empty(c))
        drop(c);
    if (c->watch != NULL)
        loop_watch_set(c->watch, console_is_empty(c) ? 0 : LOOP_WRITE);
    if (was_full && !console_is_full(c))
        on_room(c->of);
    if (!was_empty && console_is_empty(c))
        done_if_written(c->of);
}

static void on_writable(void *arg, int fd, unsigned events) { console_flush(arg); }

static void console_add(struct console *c, const void *bytes, size_t len) {
    if (c->gone || len == 0)
        return;
    if (c->done > SSH_OUTPUT_ROOM) { /* what is written makes room */
        c->queue.len -= c->done;
        memmove(c->queue.data, c->queue.data + c->done, c->queue.len);
        c->queue.data[c->queue.len] = '\0';
        c->done = 0;
    }
    strbuf_add_bytes(&c->queue, bytes, len);
    if (c->watch != NULL)
        loop_watch_set(c->watch, LOOP_WRITE); /* one turn's lines are written together */
    else
        console_flush(c);
}

/* If it is full, and has taken nothing since the last check, it gets no more. */
static bool console_drop_if_stuck(struct console *c) {
    bool stuck = console_is_full(c) && c->written == c->seen;
    c->seen = c->written;
    if (!stuck)
        return false;
    c->gone = true;
    drop(c);
    if (c->watch != NULL)
        loop_watch_set(c->watch, 0);
    on_room(c->of);
    return true;
}

static struct strbuf *part_of(const struct ssh_output *o, uint32_t host, size_t which) {
    return &o->parts[(size_t)host * SSH_OUTPUTS + which];
}

/* ---- lines ---- */

static void write_bytes(struct ssh_output *o, size_t which, const void *bytes, size_t len) {
    bool was_full = is_full(o);
    console_add(&o->consoles[which], bytes, len);
    if (!was_full && is_full(o))
        o->ops.pause(o->arg, true);
}

static bool begins(const uint8_t *line, size_t len, const char *with) {
    return len >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

/* Lines about an output pipe that was closed by order of the head, which has reported it itself. */
static bool is_left_out(const struct ssh_output *o, const uint8_t *line, size_t len) {
    return begins(line, len, o->only_workers ? "muster: " : "muster: can't write to standard ");
}

static void write_lines(struct ssh_output *o, size_t which, const uint8_t *bytes, size_t len) {
    if (which != SSH_OUTPUT_ERR || (!o->only_workers && !o->dropped)) {
        write_bytes(o, which, bytes, len);
        return;
    }
    for (size_t n; len > 0; bytes += n, len -= n) {
        const uint8_t *end = memchr(bytes, '\n', len);
        n = end != NULL ? (size_t)(end - bytes) + 1 : len;
        if (!is_left_out(o, bytes, n))
            write_bytes(o, which, bytes, n);
    }
}

static void flush_part(struct ssh_output *o, uint32_t host, size_t which) {
    struct strbuf *part = part_of(o, host, which);
    write_lines(o, which, (const uint8_t *)strbuf_text(part), part->len);
    strbuf_clear(part);
}

/* A line is written in one piece, so that lines of several hosts don't mix. */
void ssh_output_add(struct ssh_output *o, uint32_t host, size_t which, const void *data,
                    size_t len) {
    struct strbuf *part = part_of(o, host, which);
    const uint8_t *bytes = data, *end = memrchr(bytes, '\n', len);
    size_t whole = end != NULL ? (size_t)(end - bytes) + 1 : 0;
    if (whole > 0 && part->len > 0) { /* the rest of a line that has begun */
        size_t rest = (size_t)((const uint8_t *)memchr(bytes, '\n', whole) - bytes) + 1;
        strbuf_add_bytes(part, bytes, rest);
        flush_part(o, host, which);
        bytes += rest;
        len -= rest;
        whole -= rest;
    }
    write_lines(o, which, bytes, whole);
    strbuf_add_bytes(part, bytes + whole, len - whole);
    if (part->len > PART_MAX)
        flush_part(o, host, which);
    if (part->len > 0 && !o->lines_due) {
        o->lines_due = true;
        loop_timer_set(o->lines, clock_now_ns() + SSH_OUTPUT_LINE_NS);
    }
}

void ssh_output_end_host(struct ssh_output *o, uint32_t host) {
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        flush_part(o, host, which);
}

static void flush_parts(struct ssh_output *o) {
    for (uint32_t host = 0; host < o->n_hosts; host++)
        ssh_output_end_host(o, host);
}

static void on_lines(void *arg) {
    struct ssh_output *o = arg;
    o->lines_due = is_full(o); /* hosts are paused, so the ends of their lines can't come */
    if (o->lines_due)
        loop_timer_set(o->lines, clock_now_ns() + SSH_OUTPUT_LINE_NS);
    else
        flush_parts(o);
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
        if (console_drop_if_stuck(&o->consoles[which])) {
            o->dropped = true;
            log_warning("standard %s is not read; discarding the rest",
                        which == SSH_OUTPUT_OUT ? "output" : "error");
            o->ops.on_dropped(o->arg, which);
        }
    loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
}

void ssh_output_flush(struct ssh_output *o) {
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        console_flush(&o->consoles[which]);
}

void ssh_output_hurry(struct ssh_output *o) {
    if (o->hurries)
        return;
    o->hurries = true;
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        o->consoles[which].seen = o->consoles[which].written;
    loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
}

void ssh_output_finish(struct ssh_output *o) {
    o->finished = true;
    flush_parts(o);
    if (o->hurries)
        loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
    done_if_written(o);
}

/* ---- the whole ---- */

static int console_open(struct ssh_output *o, size_t which, int fd) {
    struct console *c = &o->consoles[which];
    struct stat st;
    c->of = o;
    c->fd = fd;
    bool waits =
        isatty(fd) || (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
    return waits ? loop_watch_new(o->loop, fd, 0, LOOP_PRIO_BULK, on_writable, c, &c->watch) : 0;
}

static void on_own_line(void *arg, const char *line, size_t len) {
    write_bytes(arg, SSH_OUTPUT_ERR, line, len);
}

int ssh_output_new(struct loop *loop, uint32_t n_hosts, const struct ssh_output_ops *ops, void *arg,
                   struct ssh_output **ret) {
    struct ssh_output *o = xcalloc(1, sizeof *o);
    *o = (struct ssh_output){.loop = loop, .ops = *ops, .arg = arg, .n_hosts = n_hosts};
    o->parts = xcalloc((size_t)n_hosts * SSH_OUTPUTS, sizeof *o->parts);
    o->lines = loop_timer_new(loop, on_lines, o);
    o->hurry = loop_timer_new(loop, on_hurry, o);
    int r = console_open(o, SSH_OUTPUT_OUT, STDOUT_FILENO);
    if (r == 0)
        r = console_open(o, SSH_OUTPUT_ERR, STDERR_FILENO);
    if (r < 0) {
        ssh_output_free(o);
        return r;
    }
    log_set_sink(on_own_line, o);
    *ret = o;
    return 0;
}

void ssh_output_free(struct ssh_output *o) {
    if (o == NULL)
        return;
    log_set_sink(NULL, NULL);
    for (size_t i = 0; i < (size_t)o->n_hosts * SSH_OUTPUTS; i++)
        strbuf_fini(&o->parts[i]);
    free(o->parts);
    for (size_t which = 0; which < SSH_OUTPUTS; which++) {
        loop_watch_free(o->consoles[which].watch);
        strbuf_fini(&o->consoles[which].queue);
    }
    loop_timer_free(o->lines);
    loop_timer_free(o->hurry);
    free(o);
}
