/* Where the output of the workers of one generation goes: to files, to the console, or both. It is
 * the log writer's process that reads the pipes and writes (writer_io.h): here they are made, and
 * handed to it.
 *
 *     logmux_new(loop, writer, n_workers, NULL, &ops, me, &mux);
 *     for each worker:  logmux_open(mux, i, &worker, &out_fd, &err_fd, &err);
 *     … worker_group_start(specs with stdout_fd = out_fd, stderr_fd = err_fd) …
 *     for each worker:  logmux_started(mux, i);          closes our copies of the child's ends
 *     on_exit of i:     logmux_exited(mux, i, …);        ops.on_last_output(i), then
 * ops.on_drained(i) logmux_free(mux);
 *
 * For each stream (torchrun's rules, with what muster makes better in brackets):
 *   redirected       the worker itself writes to the file (O_APPEND); nothing passes through us
 *   tee              file gets the raw bytes, console the lines with a prefix
 *   neither          console, without a prefix [whole lines, never torn or mixed with others']
 *   not on_console   tee: as redirected; neither: dropped (stderr's tail is kept for the report)
 *   no folder        (dir NULL: --log-dir=/dev/null) all goes to the console, tee with its prefix
 *
 * As long as no worker has written a byte, and no file is asked for, there need be no writer: a
 * pipe that is readable for the first time starts it. A worker that writes nothing costs none.
 *
 * Never blocks the job on the console (console_io.h). A log file that can't be written to (disk
 * full) is told once, with how much is missing at the end; the worker goes on, and so does its
 * console output. One that can't be opened is told to ops.on_no_file(), and that stream goes to the
 * console with a prefix. On a file system that hangs, workers that write must wait, and nobody
 * else. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/logs/writer_io.h"

/* After a worker's exit its pipes are read to their end, or for this long: a process that it left
 * behind may hold them open. */
#define LOGMUX_GRACE_NS (500 * NS_PER_MS)
#define LOGMUX_TAIL_LINES 30
#define LOGMUX_TAIL_BYTES ((size_t)8 * 1024)
/* Pipes get 1 MiB each as long as all together stay below this (an unprivileged user's limit is
 * 64 MiB: pipe(7), pipe-user-pages-soft). */
#define LOGMUX_PIPES_MAX_BYTES ((size_t)32 * 1024 * 1024)

struct logmux;

struct logmux_worker {
    uint32_t local_rank, rank;
    const char *role, *hostname; /* borrowed for the call */
    const char *dir;             /* exists; for stdout.log, stderr.log; NULL: no files. Copied */
    int file_fds[2];             /* of the streams that only go to a file; -1: none. Borrowed */
    unsigned redirects, tee;     /* STD_* bits of job.h, of this local rank */
    bool on_console;             /* --local-ranks-filter lets it through */
};

/* What is known of a worker's end. Texts are "" where there are none. */
struct logmux_last_output {
    const char *error; /* its error file, for people */
    bool bad_error;    /* the file is not valid; error has the reason */
    /* The last lines of its standard error, also when that went to a file: whole lines where there
     * are any, each with its newline, at most LOGMUX_TAIL_LINES and LOGMUX_TAIL_BYTES. */
    const char *tail;
};

struct logmux_ops {
    /* All that worker `index` wrote has been taken (or the grace has passed). Once for each
     * logmux_exited(), from the loop. May free the logmux. */
    void (*on_drained)(void *arg, uint32_t index);
    /* A log file can't be had. why: a clause, without its end. */
    void (*on_no_file)(void *arg, const char *why);
    /* Where logmux_exited() asked for them; before on_drained, and perhaps from inside that call.
     * May not free the logmux. */
    void (*on_last_output)(void *arg, uint32_t index, const struct logmux_last_output *last);
};

/* prefix_template: of tee'd lines, with ${role_name} ${local_rank} ${rank} ${hostname}; NULL or
 * "": "[${role_name}${local_rank}]:". Copied. */
_must_use_ int logmux_new(struct loop *loop, struct writer *writer, uint32_t n_workers,
                          const char *prefix_template, const struct logmux_ops *ops, void *arg,
                          struct logmux **ret);
/* Nothing more is read. NULL is fine. */
void logmux_free(struct logmux *mux);

/* Makes the pipes of worker index < n_workers. The descriptors are the logmux's own, close-on-exec,
 * valid until logmux_started(). -errno with a sentence: no pipe. */
_must_use_ int logmux_open(struct logmux *mux, uint32_t index, const struct logmux_worker *worker,
                           int *ret_stdout_fd, int *ret_stderr_fd, struct err *err);
/* The child has its copies, or could not be started: close ours. */
void logmux_started(struct logmux *mux, uint32_t index);
/* The worker has ended (also one that never ran). error_path: with last output, of its error file;
 * "" where the writer need not read one; NULL: it is not wanted. */
void logmux_exited(struct logmux *mux, uint32_t index, const char *error_path);
/* Every worker that was opened. True when none was. */
bool logmux_all_drained(const struct logmux *mux);

/* The prefix of that worker's tee'd lines, malloc'ed. For tests. */
_must_use_ char *logmux_prefix(const char *prefix_template, const struct logmux_worker *worker);
