/* What changed between two readings of the load of a node's GPUs (nvml_read_load()): in a job that
 * seems to hang, all GPUs are busy whether they compute or wait for each other; bytes on NVLink and
 * PCIe show the difference. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/text/strbuf.h"
#include "topology/discover/nvml/nvml_report.h"

/* More than waiting GPUs move. Chosen, not measured: a job that moves less counts as waiting, and
 * one that waits but moves more is given more time. */
#define GPU_NVLINK_BYTES_PER_S (1 << 20)
#define GPU_PCIE_BYTES_PER_S (10 << 20)

/* A line for each GPU: "0000:1b:00.0: busy 100 %, 1980 of 1980 MHz, NVLink sent 0 received 0 KiB,
 * PCIe sent 4 received 12 KiB in 0.3 s; has lower clocks because of its temperature …". */
void gpus_summary(const struct nvml_report *before, const struct nvml_report *after,
                  struct strbuf *to);

/* Whether links move bytes, of the GPUs that this process computes on; if it is on none, because it
 * can't be seen, of all GPUs of the node. ret_seen: false if a link of them was not read, or the
 * two readings are of different GPUs; then the answer is false, too. */
bool gpus_move(const struct nvml_report *before, const struct nvml_report *after, int32_t pid,
               bool *ret_seen);

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
