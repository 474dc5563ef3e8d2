/* The part of the evidence that others tell: PyTorch's flight recorder of each worker, NCCL's
 * status service, the counters of NICs, and the log of the kernel. What to ask, and where, is in
 * the environment with which a worker was started: as /proc has it, else as `ask` has it. */
#pragma once

#include <stdbool.h>

#include "watchdog/evidence/gather_io.h"
#include "watchdog/look/nics.h"

/* A reading of the NICs, with which a later one is compared. */
void gather_sources_begin(struct nics *ret, uint64_t end_ns);
/* Fills in what can be had until end_ns (CLOCK_MONOTONIC); the rest becomes gaps. e has the workers
 * of this node. NCCL is asked only where global rank 0 runs: one answer describes the whole job. */
void gather_sources(struct evidence *e, const struct gather_ask *ask, const struct nics *before,
                    uint64_t end_ns);
/* The counters of the GPUs, read twice. A faulty GPU can block it for ever, whatever end_ns says.
 * False: there are none, or no time is left; nothing was added. */
bool gather_gpus(struct evidence *e, uint64_t end_ns);
