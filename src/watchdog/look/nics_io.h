/* Reads the counters of NICs from /sys. A port whose firmware is stuck can block a read: call it in
 * a process that may block. */
#pragma once

#include "base/err.h"
#include "watchdog/look/nics.h"

struct source_nics_ask {
    const char *root; /* what precedes /sys; NULL: nothing */
};
/* Reads until all are read, or until deadline_ns (CLOCK_MONOTONIC): then those before it are in
 * *ret, and -ETIMEDOUT is returned. Others from the kernel. err has the reason as a sentence. */
_must_use_ int source_nics(const struct source_nics_ask *ask, uint64_t deadline_ns,
                           struct nics *ret, struct err *err);
