#include "launcher/report/events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "launcher/output/console_io.h"
#include "launcher/output/worker_logs_io.h"

struct events {
    struct events_config config;
    int fd;                      /* -1: standard error, or the log folder: */
    bool in_logs;                /* the file is in the log folder; */
    struct strbuf held;          /* these lines wait for it */
    struct timeline_entry start; /* is held back; kind 0: none */
    struct loop_timer *timer;    /* NULL: no start is */
    uint64_t began_ns;
    bool begun;        /* the first line is written */
    bool torn;         /* a line was written in part: the next one begins with a newline */
    uint64_t lost_now; /* lost since the last line that was written */
    uint64_t lost;
};

static void write_start(void *events);

/* O_NONBLOCK is for pipes; it has no effect on files. */
static int open_log(const char *path, uint32_t mode, int *ret_fd, struct err *err) {
    struct err why = {0};
    int fd = own_path_open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK, mode, &why);
    if (fd == -ENXIO)
        return err_set(err, -ENXIO,
                       "--event-log=%s: no process reads from this pipe; start its reader first",
                       path);
    if (fd < 0)
        return err_set(err, fd, "--event-log=%s: can't open the file for appending: %s", path,
                       why.code != 0 ? why.text : strerror(-fd));
    *ret_fd = fd;
    return 0;
}

int events_new(const struct events_config *config, struct events **ret, struct err *err) {
    const char *path = config->path;
    int fd = -1, r = 0;
    *ret = NULL;
    if (path == NULL)
        return 0;
    bool to_console = strcmp(path, "-") == 0, in_logs = path[0] == '\0';
    assert(!to_console || config->console != NULL);
    if (!to_console && !in_logs)
        r = open_log(path, config->mode, &fd, err);
    if (r < 0)
        return r;
    *ret = xcalloc(1, sizeof **ret);
    **ret = (struct events){
        .config = *config, .fd = fd, .in_logs = in_logs, .began_ns = clock_now_ns()};
    if (in_logs)
        (*ret)->config.path = EVENTS_NAME;
    if (config->loop != NULL)
        (*ret)->timer = loop_timer_new(config->loop, write_start, *ret);
    return 0;
}

static void lose(struct events *e, const char *why) {
    e->lost_now++;
    if (e->lost++ > 0)
        return; /* it was reported */
    log_warning("--event-log=%s: cannot write: %s; the job continues, and lost lines are counted",
                e->config.path, why);
}

/* Uses one write, so that lines of several writers are never mixed. */
static void write_line(struct events *e, const struct strbuf *line) {
    const char *text = strbuf_text(line);
    /* A full disk can take a part of the line; the rest is not tried again. */
    ssize_t n;
    do
        n = write(e->fd, text, line->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)line->len) {
        e->torn = false;
        e->lost_now = 0;
        return;
    }
    int code = n < 0 ? errno : ENOSPC;
    e->torn = e->torn || n > 0;
    lose(e, code == EAGAIN ? "the pipe is full, its reader is too slow" : strerror(code));
}

static void put(struct events *e, const struct strbuf *line) {
    if (e->in_logs)
        worker_logs_event(e->config.logs, EVENTS_NAME, strbuf_text(line));
    else if (e->fd < 0)
        console_print(e->config.console, CONSOLE_ERR, strbuf_text(line), line->len);
    else
        write_line(e, line);
}

static void put_first(struct events *e) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    e->begun = true;
    if (e->config.fill == NULL)
        return;
    events_begin_line(&e->config, e->began_ns, clock_wall_ns() - (clock_now_ns() - e->began_ns),
                      &line);
    put(e, &line);
}

/* The folder is known now: writes what has waited for it. */
static void put_held(struct events *e) {
    char *rest = NULL, *line = e->held.len > 0 ? strtok_r(e->held.data, "\n", &rest) : NULL;
    for (; line != NULL; line = strtok_r(NULL, "\n", &rest))
        worker_logs_event(e->config.logs, EVENTS_NAME, line);
    strbuf_fini(&e->held);
}

static void write_entry(struct events *e, const struct timeline_entry *entry) {
    uint64_t now_ns = clock_now_ns();
    uint64_t ago_ns = now_ns > entry->at_ns ? now_ns - entry->at_ns : 0;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    if (e->torn)
        strbuf_add_char(&line, '\n');
    events_line(e->config.run_id, e->config.host, entry, clock_wall_ns() - ago_ns, e->lost_now,
                &line);
    if (e->in_logs && worker_logs_kept(e->config.logs) == NULL) {
        if (e->held.len + line.len <= EVENTS_HELD_MAX) {
            strbuf_add_bytes(&e->held, strbuf_text(&line), line.len);
            e->lost_now = 0;
        } else {
            lose(e, "no log folder could be made");
        }
        return;
    }
    if (!e->begun)
        put_first(e);
    put_held(e);
    put(e, &line);
}

static void write_start(void *arg) {
    struct events *e = arg;
    if (e->start.kind == 0)
        return;
    loop_timer_set(e->timer, TIME_NEVER);
    write_entry(e, &e->start);
    e->start.kind = 0;
}

void events_write(struct events *e, const struct timeline_entry *entry) {
    if (e == NULL)
        return;
    bool is_warm = entry->kind == TIMELINE_WARM;
    if (is_warm && generation_compare(e->start.generation, entry->generation) == 0) {
        e->start.has_warm = true;
        e->start.n_warm = entry->n_warm;
        memcpy(e->start.cold_because, entry->cold_because, sizeof e->start.cold_because);
    }
    write_start(e);
    if (e->timer != NULL && entry->kind == TIMELINE_STARTED) {
        e->start = *entry;
        loop_timer_set(e->timer, clock_now_ns() + EVENTS_START_WAIT_NS);
    } else if (!is_warm) {
        write_entry(e, entry);
    }
}

void events_free(struct events *e) {
    if (e == NULL)
        return;
    write_start(e);
    loop_timer_free(e->timer);
    if (e->lost > 0)
        log_warning("--event-log=%s: %llu lines were lost", e->config.path,
                    (unsigned long long)e->lost);
    file_close(&e->fd);
    strbuf_fini(&e->held);
    free(e);
}
