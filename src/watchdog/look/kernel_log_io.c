#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "watchdog/look/kernel_log.h"

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
    int fd = open(device, O_RDONLY | O_NONBLOCK | O_CLOEXEC), r = fd < 0 ? -errno : 0;
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
    file_close(&fd);
    if (r == -EPERM || r == -EACCES)
        return err_set(err, r, "permission denied reading %s (needs root or CAP_SYSLOG)", device);
    if (r < 0)
        return err_set(err, r, "cannot read %s: %s", device, strerror(-r));
    return 0;
}

int source_kernel_log(const char *device, uint64_t since_ns, uint64_t deadline_ns,
                      struct strbuf *to, struct err *err) {
    struct kernel_log *log = xcalloc(1, sizeof *log);
    log->since_us = since_ns / NS_PER_US;
    log->boot_us = (clock_wall_ns() - clock_now_ns()) / NS_PER_US;
    int r = kernel_log_read(device, deadline_ns, kernel_log_add, log, err);
    kernel_log_write(log, to);
    free(log);
    return r;
}
