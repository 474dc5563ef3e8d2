/* Where the output of the workers of one generation goes: to files, to the console, or both. The
 * log writer's process reads the pipes and writes (writer_io.h). This file makes the pipes and
 * passes them to it.
 *
 *     mux = logmux_new(loop, writer, n_workers, NULL, &ops, me);
 *     for each worker:  logmux_open(mux, i, &worker, &out_fd, &err_fd, &err);
 *     … worker_group_start(specs with stdout_fd = out_fd, stderr_fd = err_fd) …
 *     for each worker:  logmux_started(mux, i);          closes our copies of the child's ends
 *     on_exit of i:     logmux_exited(mux, i, …);        ops.on_last_output(i), ops.on_drained(i)
 *     logmux_free(mux);
 *
 * For each stream (torchrun's rules; muster's improvements are in brackets):
 *   redirected       the worker itself writes to the file (O_APPEND), not through the log writer
 *   tee              the file gets the raw bytes, the console gets the lines with a prefix
 *   neither          console [whole lines, never torn or mixed with others'], with the prefix
 *                    where `prefix` asks for it: AUTO on a terminal if several workers are shown;
 *                    if the console is a terminal, the worker gets a pseudo-terminal, which is
 *                    narrower than it by the prefix, and if it is the only worker that is shown,
 *                    exactly its bytes are; if both streams are the same file (`> log 2>&1`), the
 *                    order of a worker's lines is kept
 *   not on_console   tee: as redirected; neither: dropped (stderr's end is kept for the report)
 *   no folder        (dir NULL: --log-dir=/dev/null) all goes to the console, tee with its prefix
 *
 * The console never blocks the job (console_io.h). If a log file can't be written (disk full), this
 * is reported once, and how much is missing is reported at the end. The worker continues, and so
 * does its console output. If a file can't be opened, ops.on_no_file() reports it, and that stream
 * goes to the console with a prefix. If a file system hangs, only workers that write to it must
 * wait. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/output/writer_io.h"

/* After logmux_no_more() pipes are read to their end, or for this long: a process that workers left
 * behind, and that lives on, can hold them open. */
#define LOGMUX_GRACE_NS (500 * NS_PER_MS)
/* Pipes get 1 MiB each as long as their sum is below this (an unprivileged user's limit is 64 MiB:
 * pipe(7), pipe-user-pages-soft). */
#define LOGMUX_PIPES_MAX_BYTES ((size_t)32 * 1024 * 1024)

struct logmux;

struct logmux_worker {
    uint32_t local_rank, rank;
    const char *role, *hostname; /* borrowed for the call */
    /* must exist; for stdout.log, stderr.log; NULL: no files. Copied */
    const char *dir;
    int file_fds[2];         /* of the streams that only go to a file; -1: none. Borrowed */
    unsigned redirects, tee; /* STD_* bits of job.h, of this local rank */
    enum job_prefix prefix;  /* lines for the console have the prefix */
    bool on_console;         /* --local-ranks-filter allows its output */
    bool alone;              /* and no other worker's */
};

/* What is known about a worker's end. A missing text is "". */
struct logmux_last_output {
    const char *error; /* the text of its error file, for the user */
    bool bad_error;    /* the file is not valid; error has the reason */
    /* The last lines of its standard error (of both streams, if they are one), also if that went to
     * a file, each with its newline: tail_lines(). */
    const char *tail;
};

struct logmux_ops {
    /* Everything that worker `index` wrote has been read (or the grace is over). Called once for
     * each logmux_exited(), from the loop. It may free the logmux. */
    void (*on_drained)(void *arg, uint32_t index);
    /* A log file can't be opened. why: a clause without a full stop. */
    void (*on_no_file)(void *arg, const char *why);
    /* Called if logmux_exited() asked for the last output; before on_drained, and possibly from
     * inside logmux_exited(). It must not free the logmux. */
    void (*on_last_output)(void *arg, uint32_t index, const struct logmux_last_output *last);
};

/* prefix_template: with ${role_name} ${local_rank} ${rank} ${hostname}; NULL:
 * "[${role_name}${local_rank}]:". Copied. */
_must_use_ struct logmux *logmux_new(struct loop *loop, struct writer *writer, uint32_t n_workers,
                                     const char *prefix_template, const struct logmux_ops *ops,
                                     void *arg);
/* Nothing more is read. Takes NULL. */
void logmux_free(struct logmux *mux);

/* Makes the pipes of worker index < n_workers. The logmux owns the descriptors. They are
 * close-on-exec and valid until logmux_started(). Returns -errno with a sentence if there is no
 * pipe. */
_must_use_ int logmux_open(struct logmux *mux, uint32_t index, const struct logmux_worker *worker,
                           int *ret_stdout_fd, int *ret_stderr_fd, struct err *err);
/* The terminal has another size: tells the pseudo-terminals. Then the workers can be told. */
void logmux_resize(struct logmux *mux);
/* The child has its copies, or could not be started: closes this process's. */
void logmux_started(struct logmux *mux, uint32_t index);
/* The worker has ended (or never ran). error_path: its error file, for on_last_output; "": the
 * writer need not read one; NULL: last output is not wanted. */
void logmux_exited(struct logmux *mux, uint32_t index, const char *error_path);
/* No process is left that could write: pipes that are still open are given up after
 * LOGMUX_GRACE_NS. Until then they are read to their end. */
void logmux_no_more(struct logmux *mux);
/* Nothing of what worker `index` writes was read for some time, because nobody reads the launcher's
 * own output: it may have to wait for that. */
bool logmux_is_held(const struct logmux *mux, uint32_t index);
/* Whether every opened worker is drained. True if none was opened. */
bool logmux_all_drained(const struct logmux *mux);

/* The prefix of that worker's tee'd lines, malloc'ed. For tests. */
_must_use_ char *logmux_prefix(const char *prefix_template, const struct logmux_worker *worker);
