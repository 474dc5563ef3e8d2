/* Where the output of the workers of one generation goes: to files, to the console, or both. The
 * log writer's process reads the pipes and writes (writer_io.h). This file makes the pipes and
 * passes them to it.
 *
 * For each stream (torchrun's rules; muster's improvements are in brackets):
 *   redirected       the worker itself writes to the file (O_APPEND), not through the log writer
 *   tee              the file gets the raw bytes, the console gets the lines with a prefix
 *   neither          console [whole lines, never torn or mixed with others'], with the prefix
 *                    where --prefix asks for it: AUTO on a terminal if several workers are shown;
 *                    if the console is a terminal, the worker gets a pseudo-terminal, which is
 *                    narrower than it by the prefix, and if it is the only worker that is shown,
 *                    exactly its bytes are; if both streams are the same file (`> log 2>&1`), the
 *                    order of a worker's lines is kept
 *   not shown        (--local-ranks-filter) tee: as redirected; neither: dropped (stderr's end is
 *                    kept for the report)
 *   no folder        all goes to the console, what should be in files with its prefix; with
 *                    --log-dir=/dev/null only tee with it
 *
 * If a log file can't be written (disk full), this is reported once, and at the end how much is
 * missing. If a file can't be opened, ops.on_no_file() reports it, and that stream goes to the
 * console with a prefix. If a file system hangs, only workers that write to it must wait. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/output/writer_io.h"

/* After logmux_no_more() pipes are read to their end, or for this long, if a process that workers
 * left behind holds them open. */
#define LOGMUX_GRACE_NS (500 * NS_PER_MS)
/* Pipes get 1 MiB each as long as their sum is below this (an unprivileged user's limit is 64 MiB:
 * pipe(7), pipe-user-pages-soft). */
#define LOGMUX_PIPES_MAX_BYTES ((size_t)32 * 1024 * 1024)

struct logmux;

struct logmux_ops {
    /* Everything that worker `index` wrote has been read (or the grace is over), once for each
     * logmux_exited(), from the loop. It may free the logmux. */
    void (*on_drained)(void *arg, uint32_t index);
    /* A log file can't be opened. why: a clause without a full stop. */
    void (*on_no_file)(void *arg, const char *why);
    /* If logmux_exited() asked, maybe inside it; before on_drained. Must not free the logmux. */
    void (*on_last_output)(void *arg, uint32_t index, const struct writer_last_output *last);
};

/* spec and host, this node's name in prefixes, are borrowed; first_rank: of its workers. */
_must_use_ struct logmux *logmux_new(struct loop *loop, struct writer *writer,
                                     const struct job_spec *spec, const char *host,
                                     uint32_t first_rank, const struct logmux_ops *ops, void *arg);
/* Nothing more is read. Takes NULL. */
void logmux_free(struct logmux *mux);

/* Makes the pipes of this worker. dir: the folder for its stdout.log and stderr.log, which exists;
 * NULL: none. file_fds: of the streams that only go to a file, -1: none; taken. The results are
 * borrowed until logmux_started(), and close-on-exec. Returns -errno with a sentence if there is no
 * pipe. */
_must_use_ int logmux_open(struct logmux *mux, uint32_t index, const char *dir,
                           const int file_fds[2], int *ret_stdout_fd, int *ret_stderr_fd,
                           struct err *err);
/* The terminal has another size: resizes the pseudo-terminals. Then send workers SIGWINCH. */
void logmux_resize(struct logmux *mux);
/* The child has its copies, or could not be started: closes this process's. */
void logmux_started(struct logmux *mux, uint32_t index);
/* The worker has ended (or never ran). error_path: its error file, for on_last_output; "": none;
 * NULL: last output is not wanted. */
void logmux_exited(struct logmux *mux, uint32_t index, const char *error_path);
/* No process is left that could write: pipes that are still open are given up after
 * LOGMUX_GRACE_NS. Until then they are read to their end. */
void logmux_no_more(struct logmux *mux);
/* The worker may have to wait, because the reader of the launcher's output takes nothing. */
bool logmux_is_held(const struct logmux *mux, uint32_t index);
/* Whether every opened worker is drained. */
bool logmux_all_drained(const struct logmux *mux);
