#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "watchdog/look/recorder.h"
#include "watchdog/look/socket_io.h"

#define HTTP_HEAD_MAX 8192
#define LOOK_MS 50 /* between two looks at the file */
#define SETTLED 4  /* so many looks without a change: it is written */

static const char request[] = "POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\n"
                              "Content-Length: 0\r\nConnection: close\r\n\r\n";

static int dial(const char *path, uint64_t deadline_ns, int *ret) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof at.sun_path)
        return -ENAMETOOLONG;
    memcpy(at.sun_path, path, n);
    if (path[0] == '@')
        at.sun_path[0] = '\0';
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] != '@'));
    return socket_dial((const struct sockaddr *)(const void *)&at, len, deadline_ns, ret);
}

static int explain(int r, const char *path, struct err *err) {
    if (r == -ENOENT || r == -ECONNREFUSED)
        return err_set(err, r,
                       "the worker has no server for it: its program does not use worker_main() of "
                       "torch.distributed.elastic.control_plane");
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the worker's server at %s did not answer in time", path);
    if (r == -EMSGSIZE)
        return err_set(err, r, "the worker's server at %s answered with more than %u bytes", path,
                       RECORDER_ANSWER_MAX);
    return err_set(err, r, "cannot ask the worker's server at %s: %s", path, strerror(-r));
}

int source_recorder(const char *socket, uint64_t deadline_ns, struct strbuf *to,
                    uint64_t *ret_collectives, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf answer = {0};
    const char *body = NULL;
    size_t len = 0;
    int fd = -1;
    int r = dial(socket, deadline_ns, &fd);
    if (r == 0)
        r = socket_send_text(fd, request, deadline_ns);
    if (r == 0)
        r = socket_receive_all(fd, &answer, HTTP_HEAD_MAX + RECORDER_ANSWER_MAX, deadline_ns);
    file_close(&fd);
    if (r < 0)
        return explain(r, socket, err);
    r = recorder_http_body(strbuf_text(&answer), answer.len, &body, &len, err);
    if (r == 0)
        r = recorder_read(body, len, (double)clock_wall_ns() / 1e9, to, ret_collectives, err);
    if (r < 0)
        err_prefix(err, "the answer of the worker's server at %s cannot be read", socket);
    return r;
}

static int trigger(const char *fifo) {
    struct stat st;
    int fd = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = fstat(fd, &st) < 0 ? -errno : !S_ISFIFO(st.st_mode) ? -EINVAL : 0;
    if (r == 0 && write(fd, "1", 1) != 1)
        r = -errno; /* EAGAIN: it is full, so it was asked often */
    file_close(&fd);
    return r == -EAGAIN ? 0 : r;
}

static int ask_for_file(const char *fifo, struct err *err) {
    int r = trigger(fifo);
    if (r == -ENXIO)
        return err_set(err, r, "no process reads %s: no worker uses NCCL, or its recorder is off",
                       fifo);
    if (r == -ENOENT)
        return err_set(err, r, "%s does not exist: the worker does not use NCCL's recorder", fifo);
    if (r < 0)
        return err_set(err, r, "cannot write into %s: %s", fifo,
                       r == -EINVAL ? "not a FIFO" : strerror(-r));
    return 0;
}

/* What a look at a file has shown. */
struct watched {
    struct stat before, last;
    bool existed;
    bool waits; /* it is not there yet, or still grows */
    int same;   /* looks in a row without a change */
};

/* Whether the file is another one than at first, or was written since. */
static bool is_new(const struct stat *now, const struct stat *before, bool existed) {
    return !existed || now->st_ino != before->st_ino || now->st_size != before->st_size ||
           now->st_mtim.tv_sec != before->st_mtim.tv_sec ||
           now->st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

static void look(struct source_recorder_dump *d, struct watched *w) {
    struct stat now;
    if (lstat(d->dump, &now) < 0 || !S_ISREG(now.st_mode) || now.st_size <= 0 ||
        !is_new(&now, &w->before, w->existed))
        return;
    w->same = is_new(&now, &w->last, true) ? 0 : w->same + 1;
    w->last = now;
    w->waits = w->same < SETTLED;
    d->bytes = w->waits ? 0 : (uint64_t)now.st_size;
}

static int copy_open(int in, int out, uint64_t deadline_ns) {
    char piece[65536];
    size_t total = 0;
    struct stat st;
    if (fstat(in, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    if (st.st_size > (off_t)RECORDER_DUMP_MAX)
        return -EFBIG; /* before much of it takes room where the logs are */
    for (ssize_t n; (n = read(in, piece, sizeof piece)) != 0; total += (size_t)n) {
        if (n < 0)
            return -errno;
        if (total + (size_t)n > RECORDER_DUMP_MAX)
            return -EFBIG;
        if (clock_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
        errno = EIO;
        if (write(out, piece, (size_t)n) != n)
            return -errno;
    }
    return 0;
}

/* Never a part of it; and never over itself, by whatever name. */
static int copy(const char *from, const char *to, uint64_t deadline_ns) {
    _cleanup_(freep) char *part = xasprintf("%s.part", to);
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW), r = in < 0 ? -errno : 0;
    if (r == 0)
        (void)unlink(part);
    int out = r < 0 ? -1 : open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (r == 0)
        r = out < 0 ? -errno : copy_open(in, out, deadline_ns);
    file_close(&in);
    if (out >= 0 && (r < 0 || rename(part, to) < 0)) {
        r = r < 0 ? r : -errno;
        (void)unlink(part);
    }
    file_close(&out);
    return r;
}

static void begin(struct source_recorder_dump *d, struct watched *w) {
    d->bytes = 0;
    d->err = (struct err){0};
    w->existed = d->dump != NULL && lstat(d->dump, &w->before) == 0;
    d->code = ask_for_file(d->fifo, &d->err);
    w->waits = d->code == 0 && d->dump != NULL;
}

static void keep(struct source_recorder_dump *d, uint64_t end_ns) {
    int r = d->keep == NULL ? 0 : copy(d->dump, d->keep, end_ns);
    const char *why = r == -EPERM       ? "the file is another user's"
                      : r == -ETIMEDOUT ? "no time was left"
                      : r == -EFBIG && d->bytes > RECORDER_DUMP_MAX
                          ? "the file is larger than 64 MiB"
                          : strerror(-r);
    if (r < 0)
        d->code = err_set(&d->err, r, "cannot copy %s to %s: %s", d->dump, d->keep, why);
}

void source_recorder_dumps(struct source_recorder_dump *list, size_t n, uint64_t deadline_ns,
                           uint64_t copied_ns) {
    _cleanup_(freep) struct watched *watched = xcalloc(n + 1, sizeof *watched);
    bool waits = false;
    for (size_t i = 0; i < n; i++) {
        begin(&list[i], &watched[i]);
        waits = waits || watched[i].waits;
    }
    while (waits && clock_now_ns() < deadline_ns) {
        (void)poll(NULL, 0, LOOK_MS);
        waits = false;
        for (size_t i = 0; i < n; i++) {
            bool waited = watched[i].waits;
            if (waited)
                look(&list[i], &watched[i]);
            if (waited && !watched[i].waits)
                keep(&list[i], copied_ns);
            waits = waits || watched[i].waits;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (watched[i].waits)
            list[i].code = err_set(&list[i].err, -ETIMEDOUT,
                                   "it was asked by %s, but has not written %s in time",
                                   list[i].fifo, list[i].dump);
}
