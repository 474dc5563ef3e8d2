#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "watchdog/look/kernel_log.h"

#define RECORD_MAX 8192 /* a shorter buffer than a record is refused (EINVAL) */

int source_kernel_log(const char *device, uint64_t since_ns, uint64_t deadline_ns,
                      struct strbuf *to, struct err *err) {
    char record[RECORD_MAX];
    device = device != NULL ? device : "/dev/kmsg";
    int fd = open(device, O_RDONLY | O_NONBLOCK | O_CLOEXEC), r = fd < 0 ? -errno : 0;
    struct kernel_log *log = xcalloc(1, sizeof *log);
    log->since_us = since_ns / NS_PER_US;
    log->boot_us = (clock_wall_ns() - clock_now_ns()) / NS_PER_US;
    while (r == 0 && clock_now_ns() < deadline_ns) {
        ssize_t n = read(fd, record, sizeof record);
        if (n > 0)
            (void)kernel_log_add(log, record, (size_t)n);
        else if (n == 0 || errno == EAGAIN)
            break;
        else if (errno != EPIPE && errno != EINTR) /* EPIPE: records were overwritten meanwhile */
            r = -errno;
    }
    file_close(&fd);
    kernel_log_write(log, to);
    free(log);
    if (r == -EPERM || r == -EACCES)
        return err_set(err, r, "permission denied reading %s (needs root or CAP_SYSLOG)", device);
    if (r < 0)
        return err_set(err, r, "cannot read %s: %s", device, strerror(-r));
    return 0;
}
