/* What gather_io.c and gather_sources_io.c share: both run in the helper. */
#pragma once

#include "watchdog/evidence/gather_io.h"
#include "watchdog/look/nics.h"

/* ---- gather_io.c ---- */

/* The environment with which a worker was started: it has the addresses of services to ask. */
struct gather_env {
    char *text; /* NAME=VALUE, each with its NUL; owned; NULL: it cannot be read */
    size_t len;
    struct envlist given; /* by muster: for what /proc does not have */
};
/* The caller calls gather_env_fini(). Does not block. */
void gather_env_read(const struct gather_ask *ask, const struct evidence_worker *w,
                     struct gather_env *ret);
void gather_env_fini(struct gather_env *e);
/* Borrowed; NULL: it is not set, or empty. */
const char *gather_env_get(const struct gather_env *e, const char *name);

/* helper_call_new() without a loop, for a helper that touches the disk of the logs, which may hold
 * it for ever. -EBUSY: an earlier one of this name is still held. */
_must_use_ int gather_disk_call(const struct gather_ask *ask,
                                const struct helper_call_config *config, struct helper_call **ret);
/* Why there is no answer: the errno of gather_disk_call(), or of its answer. */
const char *gather_disk_why(int r);

/* ---- gather_sources_io.c: what others report ---- */

/* Has NCCL's flight recorder of each worker whose environment has its FIFO write its file
 * (look/recorder.h), while the rest is gathered: in a helper of its own, because the files are on a
 * disk of the user's. A file that is not below ask->keep_dir is copied there. NULL: there is none,
 * or a gap has the reason. gather_recorder_end() waits for it, adds the result, and frees it; takes
 * NULL. *e has the same workers. */
struct gather_recorder;
_must_use_ struct gather_recorder *
gather_recorder_begin(struct evidence *e, const struct gather_ask *ask, uint64_t deadline_ns);
void gather_recorder_end(struct gather_recorder *r, struct evidence *e);

/* A reading of the NICs, with which a later one is compared. */
void gather_sources_begin(struct nics *ret, uint64_t end_ns);
/* PyTorch's flight recorder of each worker, NCCL's RAS (only where global rank 0 runs: one answer
 * describes the whole job), the log of the kernel and the NICs: fills in what can be read until
 * end_ns (CLOCK_MONOTONIC); the rest becomes gaps. */
void gather_sources(struct evidence *e, const struct gather_ask *ask, const struct nics *before,
                    uint64_t end_ns);
/* The counters of the GPUs, read twice. A faulty GPU can block it for ever, whatever end_ns is.
 * False: there are none, or no time is left; nothing was added. */
bool gather_gpus(struct evidence *e, uint64_t end_ns);
