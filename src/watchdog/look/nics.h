/* Counters of the network interfaces and RDMA ports of a node, and what changed between two
 * readings: whether a job that seems to hang moves bytes, and whether a port has errors.
 *
 *     source_nics(NULL, deadline_ns, &before, &err);
 *     …
 *     source_nics(NULL, deadline_ns, &after, &err);
 *     nics_summary(&before, &after, &text);
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define NICS_MAX 64
#define NIC_NAME_MAX 64
#define NIC_ERRORS_MAX 12

struct nic {
    char name[NIC_NAME_MAX];  /* "eth0"; "mlx5_0 port 1" */
    char state[NIC_NAME_MAX]; /* "up"; of a port: "4: ACTIVE"; "" not known */
    bool rdma;
    uint64_t received_bytes, sent_bytes;
    uint64_t errors[NIC_ERRORS_MAX]; /* in the order of the names in nics_io.c */
};
struct nics {
    uint64_t when_ns; /* of the reading, CLOCK_MONOTONIC */
    uint32_t n;
    struct nic at[NICS_MAX];
    bool cut; /* there are more */
};

/* A line for each NIC that is up, has moved bytes, or has changed: "eth0 (up): received 1.2 MB,
 * sent 0 B in 3.0 s; rx_errors 4 (+1)". Counters of errors that are 0 are left out; one that has
 * decreased was reset, and proves nothing. One line for all others: "not up: eth1, eth2". */
void nics_summary(const struct nics *before, const struct nics *after, struct strbuf *to);

/* Reads the counters from /sys below `root` (NULL: the system's), until deadline_ns
 * (CLOCK_MONOTONIC): then those before it are in *ret, and -ETIMEDOUT is returned. Others from the
 * kernel. err has the reason as a sentence. A port whose firmware is stuck can block a read: call
 * it in a process that may block. */
_must_use_ int source_nics(const char *root, uint64_t deadline_ns, struct nics *ret,
                           struct err *err);
