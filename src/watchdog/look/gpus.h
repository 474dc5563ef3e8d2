/* Counters of the GPUs of a node, as NVML tells them, and what changed between two readings: in a
 * job that seems to hang, all GPUs are busy whether they compute or wait for each other; bytes on
 * NVLink and PCIe tell. Pure; gpus_io.h reads them. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

#define GPUS_READ_MAX 64
#define GPU_ADDRESS_TEXT 32
#define GPU_PIDS_MAX 32

/* More than GPUs move that only wait. Chosen, not measured: a job that moves less is taken for one
 * that waits, and one that waits for one that moves is given more time. */
#define GPU_NVLINK_BYTES_PER_S (1 << 20)
#define GPU_PCIE_BYTES_PER_S (10 << 20)

/* Counts up, and wraps around at so many bits; 0 bits: not known. */
struct gpu_counter {
    uint64_t value;
    uint32_t bits; /* 0, 32 or 64 */
};
enum gpu_way { GPU_NVLINK_SENT = 0, GPU_NVLINK_RECEIVED, GPU_PCIE_SENT, GPU_PCIE_RECEIVED };
#define GPU_WAYS 4

struct gpu {
    char address[GPU_ADDRESS_TEXT]; /* on the PCI bus; "": not known */
    bool lost;                      /* it fell off the bus, or needs a reset: the rest is unknown */
    bool nvlink;                    /* it has NVLink */
    struct gpu_counter moved[GPU_WAYS]; /* NVLink in KiB, PCIe in bytes */
    int32_t busy_percent;               /* -1: not known, as below */
    int32_t sm_mhz, sm_max_mhz;
    int64_t uncorrected; /* ECC errors since the driver was loaded */
    uint64_t slowed;     /* NVML's mask of reasons for lower clocks; 0: none, or not known */
    uint32_t n_pids;     /* of processes that compute on it, as this process can see them */
    int32_t pids[GPU_PIDS_MAX];
};
struct gpus {
    uint64_t when_ns; /* of the reading, CLOCK_MONOTONIC */
    uint32_t n;
    struct gpu at[GPUS_READ_MAX];
};

/* A line for each GPU: "0000:1B:00.0: busy 100 %, 1980 of 1980 MHz, NVLink sent 0 received 0 KiB,
 * PCIe sent 4 received 12 KiB in 0.3 s; slowed by heat". */
void gpus_summary(const struct gpus *before, const struct gpus *after, struct strbuf *to);

/* Whether links move bytes, of the GPUs that this process computes on; if it is on none, because it
 * can't be seen, of all GPUs of the node. ret_seen: false if a link of them was not read, or the
 * two readings are of different GPUs; then the answer is false, too. */
bool gpus_move(const struct gpus *before, const struct gpus *after, int32_t pid, bool *ret_seen);
