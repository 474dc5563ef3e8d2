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

#include "watchdog/sources/recorder.h"

struct source_recorder_ask {
    const char *socket; /* path, or "@name" of the abstract namespace */
};
/* Blocks, until deadline_ns (CLOCK_MONOTONIC) at most. 0: the caller calls recorder_fini().
 * -ENOENT, -ECONNREFUSED: the worker has no such server; -ETIMEDOUT; -EMSGSIZE: more than
 * RECORDER_ANSWER_MAX; -EINVAL; others from the kernel. err has the reason as a sentence. */
_must_use_ int source_recorder(const struct source_recorder_ask *ask, uint64_t deadline_ns,
                               struct recorder *ret, struct err *err);

/* Only asks for the file, at once. -ENXIO: nobody reads the FIFO: NCCL is not in use, or its
 * recorder is off; -ENOENT: there is no FIFO; -EINVAL: it is none. err has the reason. */
_must_use_ int source_recorder_trigger(const char *fifo, struct err *err);

#define RECORDER_DUMP_MAX (64u << 20)

struct source_recorder_dump_ask {
    const char *fifo; /* TORCH_NCCL_DEBUG_INFO_PIPE_FILE, the rank, ".pipe" */
    const char *dump; /* the file that PyTorch writes: TORCH_FR_DUMP_TEMP_FILE and the rank */
    const char *keep; /* where it is copied to, mode 0600; NULL: it is not */
};
/* Asks for the file, waits until it is written (PyTorch looks about once a second), and copies it.
 * The errors of source_recorder_trigger(); -ETIMEDOUT: it was asked, but no file came; -EFBIG: more
 * than RECORDER_DUMP_MAX. err has the reason as a sentence. */
_must_use_ int source_recorder_dump(const struct source_recorder_dump_ask *ask,
                                    uint64_t deadline_ns, struct err *err);
