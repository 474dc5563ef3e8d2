/* Asks PyTorch's flight recorder of one worker; recorder.h reads the answer.
 *
 * As JSON from the worker's own server, a unix socket with HTTP, which exists if the program runs
 * its main function under torch.distributed.elastic.control_plane.worker_main() and
 * TORCH_WORKER_SERVER_SOCKET is set. It answers without Python, so even if the GIL is held.
 *
 * NCCL's recorder can also be asked to write a file, by a byte into the FIFO that PyTorch makes
 * where TORCH_NCCL_DEBUG_INFO_PIPE_FILE says. The file is a pickle, for torchfrtrace; muster keeps
 * it, and does not read it. (PyTorch, "Flight Recorder for Debugging Stuck Jobs") */
#pragma once

#include "watchdog/look/recorder.h"

struct source_recorder_ask {
    const char *socket; /* path, or "@name" of the abstract namespace */
};
/* Blocks, until deadline_ns (CLOCK_MONOTONIC) at most. 0: the caller calls recorder_fini().
 * -ENOENT, -ECONNREFUSED: the worker has no such server; -ETIMEDOUT; -EMSGSIZE: more than
 * RECORDER_ANSWER_MAX; -EINVAL; others from the kernel. err has the reason as a sentence. */
_must_use_ int source_recorder(const struct source_recorder_ask *ask, uint64_t deadline_ns,
                               struct recorder *ret, struct err *err);

#define RECORDER_DUMP_MAX (64u << 20)

/* The file of one worker. */
struct source_recorder_dump {
    const char *fifo; /* TORCH_NCCL_DEBUG_INFO_PIPE_FILE, the rank, ".pipe" */
    /* The file that PyTorch writes: TORCH_FR_DUMP_TEMP_FILE and the rank. NULL: it is not known,
     * and is only asked for */
    const char *dump;
    const char *keep; /* where it is copied to, mode 0600; NULL: it is not */
    /* The answer. 0. -ENXIO: nobody reads the FIFO: NCCL is not in use, or its recorder is off;
     * -ENOENT: there is no FIFO; -EINVAL: it is none. -ETIMEDOUT: it was asked, but no file came.
     * Of the copy: -EPERM: the file is another user's; -EFBIG: more than RECORDER_DUMP_MAX; others
     * of the kernel. */
    int code;
    struct err err; /* the reason as a sentence */
    uint64_t bytes; /* of the file; 0: it was not seen */
};
/* Asks all at once for their files, waits until these are written (PyTorch looks at its FIFO about
 * once a second), until deadline_ns at most, and copies each as soon as it is, until copied_ns at
 * most. But blocks as long as the disk does. */
void source_recorder_dumps(struct source_recorder_dump *list, size_t n, uint64_t deadline_ns,
                           uint64_t copied_ns);
