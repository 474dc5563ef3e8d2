/* In the log writer's process: the two streams of one worker, from its pipes to its log files and
 * to the console. The agent decides what goes where (logmux_io.h). */
#pragma once

#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/output/console_io.h"

struct writer_worker;

struct writer_worker_config { /* everything is copied; [0] standard output, [1] standard error */
    uint32_t user, index;
    uint32_t log_mode;
    unsigned flags; /* WRITER_SHOWN, _PREFIXED, _TO_FILE, _KEEP_TAIL of each stream */
    const char *prefix;
    const char *paths[2]; /* of its log files; "": none */
    /* Lines of a stream with a file that contain one of these texts also go to the file beside the
     * workers' folders (logdir_filtered_path()). NULL: none. Borrowed as long as the worker is. */
    char *const *filters[2];
    int fds[2]; /* pipes; the callee owns them; -1: none */
};

struct writer_worker_ops {
    /* The worker has exited, and everything is read, or LOGMUX_GRACE_NS has passed. It may free the
     * worker. */
    void (*on_drained)(void *arg, uint32_t user, uint32_t index);
    /* A log file can't be opened. Called from inside writer_worker_new(). */
    void (*on_no_file)(void *arg, uint32_t user, const char *why);
    /* The first write to a log file that failed, with its errno; and how many bytes the file lacks,
     * at the end of the stream. */
    void (*on_not_written)(void *arg, const char *path, int error);
    void (*on_lacking)(void *arg, const char *path, uint64_t bytes);
    /* For WRITER_HELD_NS nothing of what waits in its pipes was read, because the console takes
     * nothing; or that is over. */
    void (*on_held)(void *arg, uint32_t user, uint32_t index, bool held);
};
#define WRITER_HELD_NS NS_PER_S

_must_use_ int writer_worker_new(struct loop *loop, struct console *console,
                                 const struct writer_worker_config *config,
                                 const struct writer_worker_ops *ops, void *arg,
                                 struct writer_worker **ret);
/* Shows console lines that have no newline yet; nothing more is read. Takes NULL. */
void writer_worker_free(struct writer_worker *w);
/* What is in the worker's pipes is read at once. more: they are read to their end; else for
 * LOGMUX_GRACE_NS at most. */
void writer_worker_exited(struct writer_worker *w, bool more);
/* The text for logmux_last_output.tail. path: the file that standard error went to, or "". w may be
 * NULL. */
void writer_stderr_tail(const struct writer_worker *w, const char *path, struct strbuf *ret);

/* Opens a log file for appending; a new one gets this mode. -1, with a clause in *ret_why
 * (malloc'ed): also if the path is a link. */
_must_use_ int writer_open_log(const char *path, uint32_t mode, char **ret_why);
