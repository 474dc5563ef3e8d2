#include "launcher/ssh/ssh_output_io.h"

#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/output/console_io.h"

/* One stream of a host. */
struct line {
    struct ssh_output *output;
    struct console_source source;
    struct linebuf text;
    bool left_out; /* the line that has begun */
};

struct ssh_output {
    struct ssh_output_ops ops;
    void *arg;
    struct console *console;
    uint32_t n_hosts;
    struct line *lines;                 /* [n_hosts * SSH_OUTPUTS] */
    struct loop_timer *unended, *hurry; /* for lines without an end; for a reader that has stopped */
    bool unended_due;                   /* the timer runs */
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

/* ---- lines ---- */

/* Also lines about an output pipe that was closed by order of the head, which has reported it. */
static bool is_left_out(const struct line *l, const struct linebuf_piece *piece) {
    const struct ssh_output *o = l->output;
    const char *with = o->only_workers ? "muster: " : "muster: can't write to standard ";
    return l->source.stream == CONSOLE_ERR && (o->only_workers || o->dropped) &&
           piece->len >= strlen(with) && memcmp(piece->data, with, strlen(with)) == 0;
}

static void on_piece(void *arg, const struct linebuf_piece *piece) {
    struct line *l = arg;
    struct ssh_output *o = l->output;
    if (piece->start == LINEBUF_NEW)
        l->left_out = is_left_out(l, piece);
    if (!l->left_out)
        console_source_piece(&l->source, piece);
    if (!o->paused && console_pending(o->console) > SSH_OUTPUT_ROOM)
        o->ops.pause(o->arg, o->paused = true);
}

void ssh_output_add(struct ssh_output *o, uint32_t host, size_t which, const void *data,
                    size_t len) {
    struct linebuf *text = &o->lines[(size_t)host * SSH_OUTPUTS + which].text;
    uint64_t now_ns = clock_now_ns();
    linebuf_feed(text, data, len, now_ns);
    if (o->unended_due || linebuf_deadline_ns(text) == TIME_NEVER)
        return;
    o->unended_due = true;
    loop_timer_set(o->unended, now_ns + LINEBUF_QUIET_NS);
}

void ssh_output_end_host(struct ssh_output *o, uint32_t host) {
    for (size_t which = 0; which < SSH_OUTPUTS; which++) {
        struct line *l = &o->lines[(size_t)host * SSH_OUTPUTS + which];
        if (linebuf_finish(&l->text))
            console_source_end(&l->source);
    }
}

static void on_unended(void *arg) {
    struct ssh_output *o = arg;
    o->unended_due = o->paused; /* hosts are paused, so the ends of their lines can't come */
    if (o->unended_due)
        loop_timer_set(o->unended, clock_now_ns() + LINEBUF_QUIET_NS);
    for (size_t i = 0; i < (size_t)o->n_hosts * SSH_OUTPUTS && !o->unended_due; i++)
        linebuf_flush(&o->lines[i].text);
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

/* ---- the whole ---- */

int ssh_output_new(struct loop *loop, uint32_t n_hosts, const struct ssh_output_ops *ops, void *arg,
                   struct ssh_output **ret) {
    struct ssh_output *o = xcalloc(1, sizeof *o);
    *o = (struct ssh_output){.ops = *ops, .arg = arg, .n_hosts = n_hosts};
    o->lines = xcalloc((size_t)n_hosts * SSH_OUTPUTS, sizeof *o->lines);
    o->unended = loop_timer_new(loop, on_unended, o);
    o->hurry = loop_timer_new(loop, on_hurry, o);
    int r = console_new(loop, STDOUT_FILENO, STDERR_FILENO, &o->console);
    if (r < 0) {
        ssh_output_free(o);
        return r;
    }
    for (size_t i = 0; i < (size_t)n_hosts * SSH_OUTPUTS; i++) {
        struct line *l = &o->lines[i];
        l->output = o;
        linebuf_init(&l->text, LINEBUF_LINE_MAX, false, on_piece, l);
        console_source_init(&l->source, o->console, stream_of(i % SSH_OUTPUTS), NULL);
    }
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
