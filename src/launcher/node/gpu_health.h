/* Whether a GPU of this node is the reason why one of its workers failed: by the Xids that came
 * shortly before, or while the workers were stopped, and by what NVML reports then. Pure.
 *
 *     gpu_health_add(&h, &xid);                        each Xid
 *     h.failed_ns = h.asked_ns = now;                  a worker failed: NVML is asked
 *     gpu_health_judge(&h, &report, NULL, &verdict);   it has answered */
#pragma once

#include "rendezvous/protocol/messages.h"
#include "topology/discover/nvml/nvml_report.h"

#define GPU_HEALTH_AGE_NS (10 * NS_PER_S) /* an Xid that is older has not caused the failure */
#define GPU_HEALTH_XIDS 256

struct health_verdict { /* as in struct report */
    char sick[RDZV_SICK_MAX];
    uint32_t xid;
    int32_t gpu;
};

struct gpu_health {     /* zeroed: nothing is known */
    uint64_t failed_ns; /* the last failure; 0: none */
    uint64_t asked_ns;  /* when NVML was asked last */
    uint32_t n; /* Xids that were added: the last GPU_HEALTH_XIDS are kept; not counted: again */
    struct nvml_xid xids[GPU_HEALTH_XIDS];
};

/* Only those that can show a fault of the GPU. False: it is not one of these, or the GPU had the
 * same one less than GPU_HEALTH_AGE_NS ago. */
bool gpu_health_add(struct gpu_health *h, const struct nvml_xid *x);
/* Whether such an Xid belongs to the last failure and is newer than this. */
bool gpu_health_has_newer(const struct gpu_health *h, uint64_t than_ns);
/* Fills in ret: sick "" if no GPU is to blame for the last failure. report: the answer of NVML to
 * the last question, of which the GPUs count that workers see with this CUDA_VISIBLE_DEVICES
 * (NULL: not set); NULL: it has not answered. */
void gpu_health_judge(const struct gpu_health *h, const struct nvml_report *report,
                      const char *visible, struct health_verdict *ret);
/* "GPU 4 (0000:9d:00.0)" */
#define GPU_NAME_MAX 48
void gpu_name(uint32_t gpu, struct pci_addr at, char ret[GPU_NAME_MAX]);
