/* In the log writer's process: the two streams of one worker, from its pipes to its log files and
 * to the console. What goes where was decided by the agent (logmux_io.h). */
#pragma once

#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/logs/console_io.h"

struct writer_worker;

struct writer_worker_config { /* all is copied; [0] standard output, [1] standard error */
    uint32_t user, index;
    unsigned flags; /* WRITER_SHOWN, _PREFIXED, _TO_FILE, _KEEP_TAIL of each stream */
    const char *prefix;
    const char *paths[2]; /* of its log files; "": none */
    int fds[2];           /* pipes; taken; -1: none */
};

struct writer_worker_ops {
    /* It has exited, and all is taken, or LOGMUX_GRACE_NS has passed. May free the worker. */
    void (*on_drained)(void *arg, uint32_t user, uint32_t index);
    /* From inside writer_worker_new(): a log file can't be opened. */
    void (*on_no_file)(void *arg, uint32_t user, const char *why);
};

_must_use_ int writer_worker_new(struct loop *loop, struct console *console,
                                 const struct writer_worker_config *config,
                                 const struct writer_worker_ops *ops, void *arg,
                                 struct writer_worker **ret);
/* Console lines without their end are shown; nothing more is read. NULL is fine. */
void writer_worker_free(struct writer_worker *w);
/* What lies in its pipes is taken at once. */
void writer_worker_exited(struct writer_worker *w);
/* As logmux_last_output.tail. path: of the file that standard error went to, where it did; else "".
 * w may be NULL. */
void writer_stderr_tail(const struct writer_worker *w, const char *path, struct strbuf *ret);

/* A log file, for appending; -1, with a clause in *ret_why (malloc'ed). */
_must_use_ int writer_open_log(const char *path, char **ret_why);
