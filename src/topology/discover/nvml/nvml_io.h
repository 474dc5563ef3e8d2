/* NVIDIA's driver and GPUs, asked through NVML (libnvidia-ml.so.1, NVML API Reference Guide) in a
 * child with a deadline, at which it is killed: NVML can block on a faulty GPU. Never loads CUDA.
 *
 *     nvml_begin(&config, &child); … look at other things …; nvml_end(&child, &report);
 *     nvml_merge(&report, &topology);                      (the report is about half a megabyte) */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/process/helper_call.h"
#include "topology/discover/nvml/nvml_report.h"
#include "topology/model/topology.h"

#define NVML_DISCOVERY_NS (2 * NS_PER_S) /* as long as NVML may take */
#define NVML_DEADLINE_NS (30 * NS_PER_S) /* of the two that only count */

/* The path of NVML, for systems whose linker does not find drivers, and for tests. */
#define NVML_LIBRARY_VARIABLE "MUSTER_NVML_LIBRARY"

struct nvml_config {
    const char *library;  /* NULL: the value of MUSTER_NVML_LIBRARY, else libnvidia-ml.so.1 */
    uint64_t deadline_ns; /* how long NVML may take; 0: NVML_DISCOVERY_NS */
    bool names_only;      /* driver, versions, how many GPUs, their names and addresses */
};

struct nvml_child {
    struct helper_call *call;   /* NULL: no child could be created */
    struct nvml_report *shared; /* with the child; NULL likewise */
    struct nvml_config config;  /* with its deadline */
};

/* True if NVML can have an answer: NVIDIA's kernel driver is loaded, or MUSTER_NVML_LIBRARY is set.
 * Without a driver it costs three failed look-ups of files. */
bool nvml_may_answer(void);

/* Starts the child. The deadline runs from here. Returns 0, or a negative errno if no child could
 * be created; *ret records that for nvml_end(). */
int nvml_begin(const struct nvml_config *config, struct nvml_child *ret);
/* Waits for the answer, no longer than the deadline, and ends the child. *ret holds the answers
 * that arrived, and why_not if they are not complete. Returns 0; -ETIMEDOUT; -EIO: the child died,
 * or there is none. */
int nvml_end(struct nvml_child *child, struct nvml_report *ret);

/* For a helper (io/process/helper.h): sends a struct nvml_xid for each Xid from now on, of the GPUs
 * that workers see with this CUDA_VISIBLE_DEVICES (a const char **; to NULL: not set). Returns when
 * NVML can't wait for them; it can also hang. */
int nvml_send_xids(int fd, void *visible);

/* Reads what shows whether GPUs work or wait (nvml_report.h: load), their health and processes, in
 * this process: call it in one that may block for ever, and that ends soon. 0; -ENOENT: there is no
 * library, or it has no driver; err has the reason. */
_must_use_ int nvml_read_load(struct nvml_report *ret, struct err *err);

/* Names only; waits up to NVML_DEADLINE_NS. 0, or -ETIMEDOUT. Always fills *ret; absence is not an
 * error. If NVML was not found, the entries of the kernel driver's folder in /proc are counted. */
int nvml_discover(struct nvml_report *ret);

/* GPUs that a worker would see with this CUDA_VISIBLE_DEVICES (NULL: not set). Returns 0, or
 * -ETIMEDOUT with a sentence if NVML hangs and the number is not known. Without any GPU the count
 * is 0. */
_must_use_ int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err);
