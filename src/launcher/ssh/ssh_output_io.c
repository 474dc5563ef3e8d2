#include "launcher/ssh/ssh_output_io.h"

#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "launcher/output/console_io.h"

#define PART_MAX ((size_t)64 * 1024) /* of a line */

struct ssh_output {
    struct ssh_output_ops ops;
    void *arg;
    struct console *console;
    struct console_source sources[SSH_OUTPUTS];
    uint32_t n_hosts;
    struct strbuf *parts;             /* [n_hosts * SSH_OUTPUTS]: the beginnings of lines */
    struct loop_timer *lines, *hurry; /* for these; for a reader that has stopped */
    bool lines_due;                   /* the timer runs */
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
    if (o->paused)
        o->ops.pause(o->arg, o->paused = false);
    if (o->finished)
        o->ops.on_done(o->arg);
}

static struct strbuf *part_of(const struct ssh_output *o, uint32_t host, size_t which) {
    return &o->parts[(size_t)host * SSH_OUTPUTS + which];
}

/* ---- lines ---- */

static void write_bytes(struct ssh_output *o, size_t which, const void *bytes, size_t len) {
    console_source_exact(&o->sources[which], bytes, len);
    if (!o->paused && console_pending(o->console) > SSH_OUTPUT_ROOM)
        o->ops.pause(o->arg, o->paused = true);
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
    o->lines_due = o->paused; /* hosts are paused, so the ends of their lines can't come */
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
    flush_parts(o);
    if (o->hurries)
        loop_timer_set(o->hurry, clock_now_ns() + SSH_OUTPUT_HURRY_NS);
    if (console_pending(o->console) == 0)
        o->ops.on_done(o->arg);
}

/* ---- the whole ---- */

int ssh_output_new(struct loop *loop, uint32_t n_hosts, const struct ssh_output_ops *ops, void *arg,
                   struct ssh_output **ret) {
    struct ssh_output *o = xcalloc(1, sizeof *o);
    *o = (struct ssh_output){.ops = *ops, .arg = arg, .n_hosts = n_hosts};
    o->parts = xcalloc((size_t)n_hosts * SSH_OUTPUTS, sizeof *o->parts);
    o->lines = loop_timer_new(loop, on_lines, o);
    o->hurry = loop_timer_new(loop, on_hurry, o);
    int r = console_new(loop, STDOUT_FILENO, STDERR_FILENO, &o->console);
    if (r < 0) {
        ssh_output_free(o);
        return r;
    }
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        console_source_init(&o->sources[which], o->console, stream_of(which), NULL);
    console_on_empty(o->console, on_empty, o);
    log_set_sink(console_log_sink, o->console);
    *ret = o;
    return 0;
}

void ssh_output_free(struct ssh_output *o) {
    if (o == NULL)
        return;
    log_set_sink(NULL, NULL);
    if (o->console != NULL) {
        console_on_empty(o->console, NULL, NULL);
        ssh_output_flush(o);
    }
    for (size_t i = 0; i < (size_t)o->n_hosts * SSH_OUTPUTS; i++)
        strbuf_fini(&o->parts[i]);
    free(o->parts);
    for (size_t which = 0; which < SSH_OUTPUTS; which++)
        console_source_fini(&o->sources[which]);
    console_free(o->console);
    loop_timer_free(o->lines);
    loop_timer_free(o->hurry);
    free(o);
}
