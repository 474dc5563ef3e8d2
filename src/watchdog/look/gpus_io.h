/* Reads the counters of GPUs from NVML (libnvidia-ml.so.1, or the library that MUSTER_NVML_LIBRARY
 * names), which is loaded into this process. A faulty GPU can block a call for ever: call it in a
 * process that may block, and that ends soon. CUDA is never loaded. (NVML API Reference Guide.) */
#pragma once

#include "base/err.h"
#include "watchdog/look/gpus.h"

/* Whether NVML can have an answer: a driver of NVIDIA is loaded, or the variable is set. */
bool source_gpus_may_answer(void);
/* What a GPU does not tell stays unknown. -ENOENT: there is no such library, or it has no driver;
 * err has the reason as a sentence. */
_must_use_ int source_gpus(struct gpus *ret, struct err *err);
