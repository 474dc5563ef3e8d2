#include "launcher/output/log_times_io.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "io/clock.h"
#include "io/file.h"

bool log_pace_is_due(struct log_pace *pace, uint64_t now_ns) {
    uint64_t passed_ns = now_ns - pace->last_ns;
    bool back = now_ns < pace->last_ns;
    if (!back && passed_ns < LOG_PACE_MIN_NS && pace->last_ns != 0)
        return false;
    uint64_t spent_ns = back || passed_ns >= pace->spent_ns ? 0 : pace->spent_ns - passed_ns;
    if (spent_ns + LOG_PACE_NS > LOG_PACE_BURST * LOG_PACE_NS)
        return false;
    pace->spent_ns = spent_ns + LOG_PACE_NS;
    pace->last_ns = now_ns;
    return true;
}

char *log_times_path(const char *log_path) {
    const char *name = path_name(log_path), *dot = strrchr(log_path, '.');
    size_t n = dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name);
    return xasprintf("%.*s.%.*s.times", (int)(name - log_path), log_path, (int)n, name);
}

void log_times_open(struct log_times *t, const char *log_path, int log_fd) {
    struct stat st;
    *t = (struct log_times){.fd = -1};
    if (fstat(log_fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    t->at = (uint64_t)st.st_size;
    t->mode = st.st_mode & 0666;
    t->path = log_times_path(log_path);
}

static void make(struct log_times *t) {
    _cleanup_(freep) char *path = TAKE_PTR(t->path);
    int fd = own_file_make(path, O_WRONLY | O_APPEND, t->mode);
    t->fd = MAX2(fd, -1);
    if (t->fd >= 0 && (size_t)t->fd >= file_limit() / 4) /* they are for pipes and logs first */
        file_close(&t->fd);
}

void log_times_grows(struct log_times *t, uint64_t wall_ns) {
    uint8_t bytes[LOG_STAMP_BYTES];
    if (t->path != NULL)
        make(t);
    if (t->fd < 0 || !log_pace_is_due(&t->pace, wall_ns))
        return;
    log_stamp_encode(&(struct log_stamp){.at = t->at, .ns = wall_ns}, bytes);
    if (write(t->fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes) /* the disk is full */
        file_close(&t->fd);
}

void log_times_close(struct log_times *t) {
    free(TAKE_PTR(t->path));
    file_close(&t->fd);
}

/* ---- files that workers write themselves ---- */

struct sampled {
    struct list link;
    uint32_t user;
    int fd; /* of the log, for its size */
    struct log_times times;
};

struct log_sampler {
    struct loop_timer *timer;
    struct list files;
};

/* Sizes are read without synchronizing (AT_STATX_DONT_SYNC, statx(2)): on NFS nothing is flushed
 * for them, and the server is not asked. */
static void sample(struct sampled *f) {
    struct statx st;
    if (statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &st) < 0)
        return;
    if (st.stx_size < f->times.at) /* it was emptied */
        f->times.at = st.stx_size;
    if (st.stx_size == f->times.at)
        return;
    log_times_grows(&f->times, clock_wall_ns());
    log_times_grew(&f->times, st.stx_size - f->times.at);
}

static void set_timer(struct log_sampler *s, uint64_t pause_ns) {
    loop_timer_set(s->timer, list_empty(&s->files) ? TIME_NEVER : clock_now_ns() + pause_ns);
}

static void on_timer(void *arg) {
    struct log_sampler *s = arg;
    uint64_t begin_ns = clock_now_ns();
    LIST_FOR_EACH(struct sampled, f, &s->files, link)
        sample(f);
    set_timer(s, MAX2(LOG_SAMPLES_NS, 100 * (clock_now_ns() - begin_ns)));
}

static void drop(struct log_sampler *s, struct sampled *f) {
    sample(f);
    file_close(&f->fd);
    log_times_close(&f->times);
    list_remove(&f->link);
    free(f);
}

void log_sampler_add(struct log_sampler *s, uint32_t user, const char *path, int fd) {
    int ours = s == NULL ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (ours < 0)
        return;
    struct sampled *f = xcalloc(1, sizeof *f);
    f->user = user;
    f->fd = ours;
    log_times_open(&f->times, path, fd);
    bool first = list_empty(&s->files);
    list_append(&s->files, &f->link);
    if (first)
        set_timer(s, LOG_SAMPLES_NS);
}

void log_sampler_drop(struct log_sampler *s, uint32_t user) {
    if (s == NULL)
        return;
    LIST_FOR_EACH(struct sampled, f, &s->files, link)
        if (f->user == user)
            drop(s, f);
}

struct log_sampler *log_sampler_new(struct loop *loop) {
    struct log_sampler *s = xcalloc(1, sizeof *s);
    list_init(&s->files);
    s->timer = loop_timer_new(loop, on_timer, s);
    return s;
}

void log_sampler_free(struct log_sampler *s) {
    if (s == NULL)
        return;
    LIST_FOR_EACH(struct sampled, f, &s->files, link)
        drop(s, f);
    loop_timer_free(s->timer);
    free(s);
}
