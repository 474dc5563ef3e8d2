/* Watches whether the links of this node's GPUs move bytes, while a worker's main thread spins at
 * an unchanged place: reads their counters every 5 s, in a helper with a deadline. Not before,
 * because to load NVML can take long.
 *
 *     w = gpu_watch_new(loop);
 *     gpu_watch_tick(w, now, a row has SIGN_SPINS);      each second
 *     row.flags |= gpu_watch_flags(w, pid, now);
 *     gpu_watch_free(w); */
#pragma once

#include <sys/types.h>

#include "io/loop.h"
#include "watchdog/look/signs.h"

#define GPU_WATCH_EVERY_NS (5 * NS_PER_S)
#define GPU_WATCH_DEADLINE_NS (4 * NS_PER_S)
#define GPU_WATCH_AGE_MAX_NS (15 * NS_PER_S) /* of what is said of the links */

struct gpu_watch;
_must_use_ struct gpu_watch *gpu_watch_new(struct loop *loop); /* borrowed */
void gpu_watch_free(struct gpu_watch *w);                      /* takes NULL */
/* wanted: one of the workers spins. Without GPUs nothing is done. */
void gpu_watch_tick(struct gpu_watch *w, uint64_t now_ns, bool wanted);
/* SIGN_GPU and SIGN_GPU_SEEN of this worker; 0: its links were not read lately. */
uint32_t gpu_watch_flags(const struct gpu_watch *w, pid_t pid, uint64_t now_ns);
