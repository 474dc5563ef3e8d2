/* Asks NCCL's RAS service on this node; ras.h reads the answer.
 *
 * Each process that uses NCCL listens at the same address (SO_REUSEPORT), and any of them answers
 * for the whole job. So one node of a job asks, not all: each question makes the service's threads
 * of all processes exchange messages. (NCCL user guide, "RAS"; src/ras/client_support.cc.) */
#pragma once

#include "watchdog/look/ras.h"

#define RAS_ADDRESS_DEFAULT "localhost:28028"

struct source_ras_ask {
    /* NCCL_RAS_ADDR of the workers; NULL: NCCL's default. A name other than "localhost" is not
     * resolved: a resolver can block for long. */
    const char *address;
};

/* Blocks, until deadline_ns (CLOCK_MONOTONIC) at most. 0: the caller calls ras_fini().
 * -ECONNREFUSED: no worker offers the service; -ETIMEDOUT; -ENOTSUP: NCCL before 2.28.7; -EINVAL:
 * the address, or no answer of RAS; others from the kernel. err has the reason as a sentence, and
 * *ret is empty then. */
_must_use_ int source_ras(const struct source_ras_ask *ask, uint64_t deadline_ns, struct ras *ret,
                          struct err *err);
