/* Counters of the GPUs of a node, as NVML reports them, and what changed between two readings: in a
 * job that seems to hang, all GPUs are busy whether they compute or wait for each other; bytes on
 * NVLink and PCIe show the difference. gpus.c is pure; gpus_io.c reads them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define GPUS_READ_MAX 64
#define GPU_ADDRESS_TEXT 32
#define GPU_PIDS_MAX 32

/* More than waiting GPUs move. Chosen, not measured: a job that moves less counts as waiting, and
 * one that waits but moves more is given more time. */
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

/* Whether NVML can have an answer: a driver of NVIDIA is loaded, or MUSTER_NVML_LIBRARY is set. */
bool source_gpus_may_answer(void);
/* Reads the counters from NVML (libnvidia-ml.so.1, or the library at MUSTER_NVML_LIBRARY), which is
 * loaded into this process. A faulty GPU can block a call for ever: call it in a process that may
 * block, and that ends soon. CUDA is never loaded. (NVML API Reference Guide.) What a GPU does not
 * report stays unknown. -ENOENT: there is no such library, or it has no driver; err has the reason
 * as a sentence. */
_must_use_ int source_gpus(struct gpus *ret, struct err *err);

/* Watches whether the links of this node's GPUs move bytes, while a worker's main thread spins at
 * an unchanged place: reads their counters every 5 s, in a helper with a deadline. Not before,
 * because loading NVML can take long.
 *
 *     w = gpu_watch_new(loop);
 *     gpu_watch_tick(w, now, a row has SIGN_SPINS);      each second
 *     row.flags |= gpu_watch_flags(w, pid, now);
 *     gpu_watch_free(w); */
#define GPU_WATCH_EVERY_NS (5 * NS_PER_S)
#define GPU_WATCH_DEADLINE_NS (4 * NS_PER_S)
#define GPU_WATCH_AGE_MAX_NS (15 * NS_PER_S) /* of a reading that still counts */
struct gpu_watch;
struct loop;
_must_use_ struct gpu_watch *gpu_watch_new(struct loop *loop); /* borrowed */
void gpu_watch_free(struct gpu_watch *w);                      /* takes NULL */
/* wanted: one of the workers spins. Without GPUs nothing is done. */
void gpu_watch_tick(struct gpu_watch *w, uint64_t now_ns, bool wanted);
/* SIGN_GPU and SIGN_GPU_SEEN of this worker; 0: its links were not read lately. */
uint32_t gpu_watch_flags(const struct gpu_watch *w, pid_t pid, uint64_t now_ns);
