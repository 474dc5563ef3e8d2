#include "launcher/streams/log_watch_io.h"

#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/streams/log_times_io.h"

struct watched {
    struct list link;
    uint32_t user;
    char *path;
    int fd;           /* of the log, for its size */
    int wd;           /* of the kernel's watch, which waits for an event; -1: none */
    uint64_t look_ns; /* when it is looked at next; TIME_NEVER: when the kernel says so */
    uint64_t grew_ns;
    struct log_times times;
};

struct log_watch {
    struct loop_timer *timer;
    struct loop_watch *ready;
    int fd; /* inotify; -1: there is none, all files are looked at slowly */
    struct list files;
    uint32_t n;
};

/* Whether it has grown. */
static bool look(struct watched *f) {
    struct statx st;
    if (statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &st) < 0)
        return false;
    if (st.stx_size < f->times.at) /* it was emptied */
        f->times.at = st.stx_size;
    if (st.stx_size == f->times.at)
        return false;
    log_times_grows(&f->times, clock_wall_ns());
    log_times_grew(&f->times, st.stx_size - f->times.at);
    return true;
}

/* Lets the kernel tell of the next write. */
static void await(struct log_watch *w, struct watched *f, uint64_t now_ns) {
    f->wd = w->fd < 0 ? -1 : inotify_add_watch(w->fd, f->path, IN_MODIFY | IN_ONESHOT);
    f->look_ns = f->wd >= 0 ? TIME_NEVER : now_ns + LOG_WATCH_SLOW_NS;
    if (f->wd >= 0 && look(f)) { /* between the last look and the watch */
        f->grew_ns = now_ns;
        f->look_ns = now_ns + LOG_WATCH_NS;
    }
}

static void look_and_plan(struct log_watch *w, struct watched *f, uint64_t now_ns) {
    if (look(f))
        f->grew_ns = now_ns;
    if (now_ns - f->grew_ns < LOG_WATCH_QUIET_NS)
        f->look_ns = now_ns + LOG_WATCH_NS;
    else
        await(w, f, now_ns);
}

static void set_timer(struct log_watch *w) {
    uint64_t next_ns = TIME_NEVER;
    LIST_FOR_EACH(struct watched, f, &w->files, link)
        next_ns = MIN2(next_ns, f->look_ns);
    loop_timer_set(w->timer, next_ns);
}

/* Files that are due soon are looked at together. */
static void on_timer(void *arg) {
    struct log_watch *w = arg;
    uint64_t now_ns = clock_now_ns();
    LIST_FOR_EACH(struct watched, f, &w->files, link)
        if (f->look_ns <= now_ns + LOG_WATCH_NS / 4)
            look_and_plan(w, f, now_ns);
    set_timer(w);
}

static void on_event(struct log_watch *w, int wd, uint64_t now_ns) {
    LIST_FOR_EACH(struct watched, f, &w->files, link) {
        if (f->wd != wd)
            continue;
        f->wd = -1; /* it was for one event */
        f->grew_ns = now_ns;
        look_and_plan(w, f, now_ns);
        return;
    }
}

static void on_ready(void *arg, int fd, unsigned events) {
    (void)events;
    struct log_watch *w = arg;
    union {
        struct inotify_event event;
        char bytes[4096];
    } buffer;
    uint64_t now_ns = clock_now_ns();
    ssize_t n = read(fd, &buffer, sizeof buffer);
    for (ssize_t at = 0; at + (ssize_t)sizeof buffer.event <= n;) {
        struct inotify_event e;
        memcpy(&e, buffer.bytes + at, sizeof e);
        at += (ssize_t)(sizeof e + e.len);
        if ((e.mask & IN_MODIFY) != 0)
            on_event(w, e.wd, now_ns);
    }
    set_timer(w);
}

static void drop(struct log_watch *w, struct watched *f) {
    if (f->fd >= 0)
        (void)look(f);
    file_close(&f->fd);
    if (f->wd >= 0)
        (void)inotify_rm_watch(w->fd, f->wd);
    list_remove(&f->link);
    w->n--;
    log_times_close(&f->times);
    free(f->path);
    free(f);
}

void log_watch_add(struct log_watch *w, uint32_t user, const char *path, int fd) {
    if (w == NULL || w->n == LOG_WATCH_FILES_MAX)
        return;
    struct watched *f = xcalloc(1, sizeof *f);
    f->user = user;
    f->path = xstrdup(path);
    f->wd = -1;
    f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    log_times_open(&f->times, path, fd);
    list_append(&w->files, &f->link);
    w->n++;
    if (f->fd < 0 || !log_times_are_on(&f->times))
        drop(w, f);
    else
        await(w, f, clock_now_ns());
    set_timer(w);
}

void log_watch_drop(struct log_watch *w, uint32_t user) {
    if (w == NULL)
        return;
    LIST_FOR_EACH(struct watched, f, &w->files, link)
        if (f->user == user)
            drop(w, f);
    set_timer(w);
}

struct log_watch *log_watch_new(struct loop *loop) {
    struct log_watch *w = xcalloc(1, sizeof *w);
    list_init(&w->files);
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int r = loop_timer_new(loop, on_timer, w, &w->timer);
    if (r == 0 && w->fd >= 0 &&
        loop_watch_new(loop, w->fd, LOOP_READ, LOOP_PRIO_CHILD, on_ready, w, &w->ready) < 0)
        file_close(&w->fd);
    if (r < 0) {
        log_watch_free(w);
        return NULL;
    }
    return w;
}

void log_watch_free(struct log_watch *w) {
    if (w == NULL)
        return;
    LIST_FOR_EACH(struct watched, f, &w->files, link)
        drop(w, f);
    loop_watch_free(w->ready);
    loop_timer_free(w->timer);
    file_close(&w->fd);
    free(w);
}
