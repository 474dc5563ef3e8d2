#include "launcher/streams/log_times_io.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "io/own_path.h"

/* Descriptors are for pipes and logs first. */
static bool is_scarce(int fd) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd >= limit.rlim_cur / 4;
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
    t->fd = MAX2(own_file_make(path, O_WRONLY | O_APPEND, t->mode), -1);
    if (t->fd >= 0 && is_scarce(t->fd))
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
