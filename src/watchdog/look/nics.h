/* Counters of the network interfaces and RDMA ports of a node, and what changed between two
 * readings: whether a job that seems to hang moves bytes, and whether a port has errors. Pure;
 * nics_io.h reads them.
 *
 *     source_nics(&ask, deadline_ns, &before, &err);
 *     …
 *     source_nics(&ask, deadline_ns, &after, &err);
 *     nics_summary(&before, &after, &text);
 */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

#define NICS_MAX 64
#define NIC_NAME_MAX 64
#define NIC_ERRORS_MAX 12

struct nic {
    char name[NIC_NAME_MAX];  /* "eth0"; "mlx5_0 port 1" */
    char state[NIC_NAME_MAX]; /* "up"; of a port: "4: ACTIVE"; "" not known */
    bool rdma;
    uint64_t received_bytes, sent_bytes;
    uint64_t errors[NIC_ERRORS_MAX]; /* by nic_error_names() */
};
struct nics {
    uint64_t when_ns; /* of the reading, CLOCK_MONOTONIC */
    uint32_t n;
    struct nic at[NICS_MAX];
    bool cut; /* there are more */
};

/* The names of the counters of errors, which are those of the files; NULL at the end. */
const char *const *nic_error_names(bool rdma);

/* A line for each NIC that is up, has moved bytes, or has changed: "eth0 (up): received 1.2 MB,
 * sent 0 B in 3.0 s; rx_errors 4 (+1)". Errors that were never counted are not named; a counter
 * that went back was reset, and tells nothing. One line for all others: "not up: eth1, eth2". */
void nics_summary(const struct nics *before, const struct nics *after, struct strbuf *to);
