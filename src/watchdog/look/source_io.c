/* What others report when they are asked: the recorder and NCCL of a worker, and the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "watchdog/look/kernel_log.h"
#include "watchdog/look/ras.h"
#include "watchdog/look/recorder.h"

/* ---- a connection to a service on this node ----
 *
 * It may be slow, broken or hostile: each call ends at its deadline (CLOCK_MONOTONIC, ns). */

#define PIECE 16384

/* The next call waits no longer; option: SO_SNDTIMEO or SO_RCVTIMEO. socket(7). It is interrupted
 * when this process was stopped and continues, even without a handler: signal(7) */
static int set_end(int fd, int option, uint64_t deadline_ns) {
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timeval time = {.tv_sec = (time_t)(left / NS_PER_S),
                           .tv_usec = (suseconds_t)(left % NS_PER_S / NS_PER_US)};
    if (time.tv_sec == 0 && time.tv_usec == 0) /* that would be for ever */
        return -ETIMEDOUT;
    return setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) < 0 ? -errno : 0;
}

static int failure(void) { return errno == EAGAIN || errno == EINPROGRESS ? -ETIMEDOUT : -errno; }

/* *ret: a connected socket, close-on-exec; the caller closes it. -ETIMEDOUT; others from the
 * kernel. */
static int socket_dial(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns, int *ret) {
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r;
    do
        r = set_end(fd, SO_SNDTIMEO, deadline_ns);
    while (r == 0 && connect(fd, to, len) < 0 && (r = failure()) == -EINTR);
    if (r == 0)
        *ret = fd;
    else
        file_close(&fd);
    return r;
}

/* The whole text. No SIGPIPE. */
static int socket_send_text(int fd, const char *text, uint64_t deadline_ns) {
    for (size_t left = strlen(text); left > 0;) {
        int r = set_end(fd, SO_SNDTIMEO, deadline_ns);
        ssize_t n = r < 0 ? 0 : send(fd, text, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (r < 0 || n < 0)
            return r < 0 ? r : failure();
        text += n;
        left -= (size_t)n;
    }
    return 0;
}

/* Adds what has arrived, at least a byte, until `to` has `max` bytes. Returns 1; 0: the other end
 * has closed; -EMSGSIZE: there is more than max; -ETIMEDOUT; others from the kernel. */
static int socket_receive(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    char piece[PIECE];
    ssize_t n;
    int r;
    do {
        r = set_end(fd, SO_RCVTIMEO, deadline_ns);
        n = r < 0 ? 0 : recv(fd, piece, sizeof piece, 0);
    } while (n < 0 && errno == EINTR);
    if (r < 0 || n < 0)
        return r < 0 ? r : failure();
    if ((size_t)n > max - MIN2(to->len, max))
        return -EMSGSIZE;
    strbuf_add_bytes(to, piece, (size_t)n);
    return n > 0;
}

/* The same, until the other end closes: 0, or an error. */
static int socket_receive_all(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    int r = 1;
    while (r == 1)
        r = socket_receive(fd, to, max, deadline_ns);
    return r;
}

/* ---- PyTorch's and NCCL's flight recorders ---- */

#define HTTP_HEAD_MAX 8192
#define LOOK_MS 50 /* between two looks at the file */
#define SETTLED 4  /* so many looks without a change: it is written */

static const char request[] = "POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\n"
                              "Content-Length: 0\r\nConnection: close\r\n\r\n";

static int dial_unix(const char *path, uint64_t deadline_ns, int *ret) {
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

static int explain_recorder(int r, const char *path, struct err *err) {
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
    int r = dial_unix(socket, deadline_ns, &fd);
    if (r == 0)
        r = socket_send_text(fd, request, deadline_ns);
    if (r == 0)
        r = socket_receive_all(fd, &answer, HTTP_HEAD_MAX + RECORDER_ANSWER_MAX, deadline_ns);
    file_close(&fd);
    if (r < 0)
        return explain_recorder(r, socket, err);
    r = recorder_http_body(strbuf_text(&answer), answer.len, &body, &len, err);
    if (r == 0)
        r = recorder_read(body, len, (double)clock_wall_ns() / 1e9, to, ret_collectives, err);
    if (r < 0)
        err_prefix(err, "the answer of the worker's server at %s cannot be read", socket);
    return r;
}

static int trigger(const char *fifo) {
    struct stat st;
    _cleanup_(file_close) int fd = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = fstat(fd, &st) < 0 ? -errno : !S_ISFIFO(st.st_mode) ? -EINVAL : 0;
    if (r == 0 && write(fd, "1", 1) != 1)
        r = -errno; /* EAGAIN: it is full, so it was asked often */
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

/* ---- NCCL's RAS ---- */

#define REPLY_MAX 1024 /* of the lines before the answer */

/* "localhost:28028", "10.0.0.1:28028", "[::1]:28028". Returns how many addresses it has:
 * "localhost" is two, because NCCL listens on the one that its resolver returned. -EINVAL. */
static int find_addrs(const char *address, struct addr ret[2], struct err *err) {
    const char *colon = strrchr(address, ':');
    uint16_t port = 0;
    if (colon == NULL || parse_port(colon + 1, &port) < 0 || port == 0)
        return err_set(err, -EINVAL, "NCCL_RAS_ADDR=%s is not HOST:PORT", address);
    _cleanup_(freep) char *host = xstrndup(address, (size_t)(colon - address));
    int n = strcmp(host, "localhost") == 0 ? 2 : 1;
    if (addr_from_literal(n == 2 ? "127.0.0.1" : host, port, &ret[0]) < 0 ||
        addr_from_literal("::1", port, &ret[1]) < 0)
        return err_set(err, -EINVAL,
                       "NCCL_RAS_ADDR=%s: muster asks only IP addresses and localhost", address);
    return n;
}

static int dial_any(const struct addr *addrs, int n, uint64_t deadline_ns, int *ret) {
    int r = -EINVAL;
    for (int i = 0; i < n; i++) {
        r = socket_dial((const struct sockaddr *)&addrs[i].ss, addrs[i].len, deadline_ns, ret);
        if (r != -ECONNREFUSED && r != -EADDRNOTAVAIL && r != -EAFNOSUPPORT)
            return r;
    }
    return r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT ? -ECONNREFUSED : r;
}

/* Sends a line and reads the line with which the service replies. 1: the reply begins as expected.
 */
static int command(int fd, const char *line, const char *expected, uint64_t deadline_ns) {
    _cleanup_(strbuf_fini) struct strbuf reply = {0};
    int r = socket_send_text(fd, line, deadline_ns);
    while (r == 0 && strchr(strbuf_text(&reply), '\n') == NULL) {
        r = socket_receive(fd, &reply, REPLY_MAX, deadline_ns);
        r = r == 0 ? -ECONNRESET : r == 1 ? 0 : r;
    }
    if (r == -EMSGSIZE)
        return -EPROTO;
    return r < 0 ? r : strncmp(strbuf_text(&reply), expected, strlen(expected)) == 0;
}

/* -EPROTO: the program that listens there is not RAS; -ENOTSUP: it does not know JSON. */
static int question(int fd, uint64_t deadline_ns, struct strbuf *answer) {
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    char line[64];
    int r = command(fd, "CLIENT PROTOCOL 2\n", "SERVER PROTOCOL ", deadline_ns);
    if (r <= 0)
        return r < 0 ? r : -EPROTO;
    /* How long it waits for other processes, twice: they have a second left to answer in. */
    uint64_t seconds = left * 2 / 5 / NS_PER_S;
    (void)snprintf(line, sizeof line, "TIMEOUT %u\n", (unsigned)MAX2(seconds, (uint64_t)1));
    r = command(fd, line, "OK", deadline_ns);
    if (r >= 0)
        r = command(fd, "SET FORMAT json\n", "OK", deadline_ns);
    if (r <= 0)
        return r < 0 ? r : -ENOTSUP;
    r = socket_send_text(fd, "VERBOSE STATUS\n", deadline_ns);
    return r < 0 ? r : socket_receive_all(fd, answer, RAS_ANSWER_MAX, deadline_ns);
}

static int explain_ras(int r, const char *address, struct err *err) {
    if (r == -ECONNREFUSED)
        return err_set(err, r,
                       "no answer on %s: no worker uses NCCL 2.28.7 or newer, or NCCL_RAS_ENABLE "
                       "is 0",
                       address);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "NCCL's RAS service on %s did not answer in time", address);
    if (r == -EMSGSIZE)
        return err_set(err, r, "NCCL's RAS service on %s answered with more than %u bytes", address,
                       RAS_ANSWER_MAX);
    if (r == -ENOTSUP)
        return err_set(err, r,
                       "NCCL's RAS service on %s cannot answer in JSON: NCCL 2.28.7 or newer is "
                       "needed",
                       address);
    if (r == -EPROTO)
        return err_set(err, -EINVAL, "the program listening on %s is not NCCL's RAS service",
                       address);
    return err_set(err, r, "cannot ask NCCL's RAS service on %s: %s", address, strerror(-r));
}

int source_ras(const char *address, uint64_t deadline_ns, struct ras *ret, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf answer = {0};
    struct addr addrs[2];
    int fd = -1;
    *ret = (struct ras){0};
    int n = find_addrs(address, addrs, err);
    if (n < 0)
        return n;
    int r = dial_any(addrs, n, deadline_ns, &fd);
    if (r == 0)
        r = question(fd, deadline_ns, &answer);
    file_close(&fd);
    if (r < 0)
        return explain_ras(r, address, err);
    r = ras_read(strbuf_text(&answer), answer.len, ret, err);
    if (r < 0)
        err_prefix(err, "the answer of NCCL's RAS service on %s cannot be read", address);
    return r;
}

/* ---- the log of the kernel ---- */

#define RECORD_MAX 8192 /* a shorter buffer than a record is refused (EINVAL) */

/* Returns how many bytes remain: a line that is not complete yet. */
static size_t take_lines(char *text, size_t len, kernel_log_fn *fn, void *arg) {
    char *line = text, *end;
    while ((end = memchr(line, '\n', len)) != NULL) {
        fn(arg, line, (size_t)(end - line));
        len -= (size_t)(end + 1 - line);
        line = end + 1;
    }
    memmove(text, line, len);
    return len;
}

/* Each read(2) of the device returns one record, with its newline. */
int kernel_log_read(const char *device, uint64_t deadline_ns, kernel_log_fn *fn, void *arg,
                    struct err *err) {
    char text[RECORD_MAX];
    size_t kept = 0;
    device = device != NULL ? device : "/dev/kmsg";
    _cleanup_(file_close) int fd = open(device, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int r = fd < 0 ? -errno : 0;
    while (r == 0 && clock_now_ns() < deadline_ns) {
        ssize_t n = read(fd, text + kept, sizeof text - kept);
        if (n > 0)
            kept = take_lines(text, kept + (size_t)n, fn, arg);
        else if (n == 0 || errno == EAGAIN)
            break;
        else if (errno != EPIPE && errno != EINTR) /* EPIPE: records were overwritten meanwhile */
            r = -errno;
        if (kept == sizeof text)
            kept = 0; /* a line of a file that is too long for a record */
    }
    if (r == -EPERM || r == -EACCES)
        return err_set(err, r, "permission denied reading %s (needs root or CAP_SYSLOG)", device);
    if (r < 0)
        return err_set(err, r, "cannot read %s: %s", device, strerror(-r));
    return 0;
}

int source_kernel_log(const char *device, uint64_t since_ns, uint64_t deadline_ns,
                      struct strbuf *to, struct err *err) {
    _cleanup_(freep) struct kernel_log *log = xcalloc(1, sizeof *log);
    log->since_us = since_ns / NS_PER_US;
    log->boot_us = (clock_wall_ns() - clock_now_ns()) / NS_PER_US;
    int r = kernel_log_read(device, deadline_ns, kernel_log_add, log, err);
    kernel_log_write(log, to);
    return r;
}
