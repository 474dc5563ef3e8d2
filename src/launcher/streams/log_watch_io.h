/* Writes the times of log files that workers write themselves (log_times_io.h): by looking at their
 * sizes. A file that is not written to costs nothing: the kernel says when it is written to again
 * (inotify(7)). From then on it is looked at every LOG_WATCH_NS, until it has been quiet for a
 * while. The writes of the workers are not slowed down: each watch of the kernel is for one event.
 *
 *     w = log_watch_new(loop);
 *     log_watch_add(w, user, path, fd);
 *     log_watch_drop(w, user);
 *     log_watch_free(w);
 *
 * Sizes are asked for without synchronizing (AT_STATX_DONT_SYNC, statx(2)): on NFS nothing is
 * flushed for them, and the server is not asked. A failure has no other effect than that times are
 * missing. */
#pragma once

#include <stdint.h>

#include "io/loop.h"

#define LOG_WATCH_NS (20 * NS_PER_MS)
#define LOG_WATCH_QUIET_NS (200 * NS_PER_MS)
/* If the kernel has no watch for it (fs.inotify.max_user_watches). */
#define LOG_WATCH_SLOW_NS (1 * NS_PER_S)
#define LOG_WATCH_FILES_MAX 8192 /* others have no times */

struct log_watch;

/* NULL: the loop has no timer for it. */
struct log_watch *log_watch_new(struct loop *loop);
/* Looks at each file once more. Takes NULL. */
void log_watch_free(struct log_watch *w);
/* fd: the open file; borrowed for the call. user: a number for log_watch_drop(). w may be NULL. */
void log_watch_add(struct log_watch *w, uint32_t user, const char *path, int fd);
void log_watch_drop(struct log_watch *w, uint32_t user);
