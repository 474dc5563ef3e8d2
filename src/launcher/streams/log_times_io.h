/* Writes the times of a log file while that grows (log_times.h). A failure has no other effect than
 * that times are missing: the log is what counts.
 *
 *     log_times_open(&t, path, log_fd);
 *     log_times_grows(&t, clock_wall_ns());   before bytes are written
 *     log_times_grew(&t, n);                  when they are
 *     log_times_close(&t);
 *
 * A stamp is written before the bytes that it is for, so who follows the log knows their time. */
#pragma once

#include "launcher/streams/log_times.h"

struct log_times {
    char *path;    /* owned; NULL: the file is open, or no times are written */
    int fd;        /* -1: it is not open */
    uint32_t mode; /* of the log, which the file gets, too */
    uint64_t at;   /* the size of the log */
    struct log_pace pace;
};

/* log_fd: the open log file, whose size counts; borrowed. No times are written if a quarter of the
 * descriptors that this process may have is in use. The file is made with the first stamp: most
 * streams stay empty. */
void log_times_open(struct log_times *t, const char *log_path, int log_fd);
/* Writes a stamp, if one is due. */
void log_times_grows(struct log_times *t, uint64_t wall_ns);
static inline void log_times_grew(struct log_times *t, uint64_t n) { t->at += n; }
/* Whether stamps are written. */
static inline bool log_times_are_on(const struct log_times *t) {
    return t->path != NULL || t->fd >= 0;
}
void log_times_close(struct log_times *t);
