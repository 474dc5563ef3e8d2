/* What PyTorch's flight recorder of one worker reports: the last collective of each group, and
 * those that have not ended. recorder.c is pure; source_io.c asks for it.
 *
 * The form is that of the handler fr_trace_json of PyTorch's worker server, measured with 2.13:
 * gloo's collectives stay "scheduled", and `retired` marks one that has ended; NCCL's become
 * "started" and "completed". (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp) */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define RECORDER_ANSWER_MAX (4u << 20) /* bytes; 2000 entries have about 1 MiB */
#define RECORDER_SUMMARY_MAX 8192      /* bytes that recorder_read() adds at most */

/* The body of the answer to an HTTP request, borrowed. -EINVAL: no answer with status 200; err has
 * the status. */
_must_use_ int recorder_http_body(const char *answer, size_t len, const char **ret_body,
                                  size_t *ret_len, struct err *err);
/* Adds whole lines to *to: "open: gloo:all_reduce, number 6 of default_pg, Float [4,5], scheduled
 * 31 s ago"; "default_pg: 6 enqueued, 5 completed". wall_s: now, in seconds since 1970.
 * *ret_collectives: how many collectives the worker has enqueued in the default group, by which
 * ranks can be compared, because all of them are in it; 0: none, or not known. -EINVAL: no
 * recorder's JSON, -E2BIG: over a limit, -ENOMEM. */
_must_use_ int recorder_read(const char *text, size_t len, double wall_s, struct strbuf *to,
                             uint64_t *ret_collectives, struct err *err);

/* Asks the worker's own server for JSON: a unix socket with HTTP (a path, or "@name" of the
 * abstract namespace), which exists if the program runs its main function under
 * torch.distributed.elastic.control_plane.worker_main() and TORCH_WORKER_SERVER_SOCKET is set. It
 * answers without Python, so even if the GIL is held. Blocks until deadline_ns (CLOCK_MONOTONIC) at
 * most. -ENOENT, -ECONNREFUSED: there is no such server; -ETIMEDOUT; -EMSGSIZE; others of
 * recorder_read() and from the kernel; err has the reason as a sentence. */
_must_use_ int source_recorder(const char *socket, uint64_t deadline_ns, struct strbuf *to,
                               uint64_t *ret_collectives, struct err *err);

/* NCCL's recorder can also be asked to write a file, by a byte into the FIFO that PyTorch makes at
 * TORCH_NCCL_DEBUG_INFO_PIPE_FILE. The file is a pickle, for torchfrtrace; muster keeps it, and
 * does not read it. (PyTorch, "Flight Recorder for Debugging Stuck Jobs") */

#define RECORDER_DUMP_MAX (64u << 20)
/* The file of one worker. */
struct source_recorder_dump {
    const char *fifo; /* TORCH_NCCL_DEBUG_INFO_PIPE_FILE, the rank, ".pipe" */
    const char *dump; /* the file: TORCH_FR_DUMP_TEMP_FILE and the rank; NULL: not known */
    const char *keep; /* where it is copied to, mode 0600; NULL: it is not */
    /* The answer. 0. -ENXIO: no process reads the FIFO: NCCL is not in use, or its recorder is off;
     * -ENOENT: there is no FIFO; -EINVAL: not a FIFO. -ETIMEDOUT: it was asked, but no file came.
     * Of the copy: -EPERM: the file is another user's; -EFBIG: more than RECORDER_DUMP_MAX; others
     * of the kernel. */
    int code;
    struct err err; /* the reason as a sentence */
    uint64_t bytes; /* of the file; 0: it was not seen */
};
/* Asks all at once for their files, waits until these are written (PyTorch looks at its FIFO about
 * once a second), until deadline_ns, and copies each, until copied_ns. Blocks as the disk does. */
void source_recorder_dumps(struct source_recorder_dump *list, size_t n, uint64_t deadline_ns,
                           uint64_t copied_ns);
