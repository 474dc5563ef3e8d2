/* Whether a GPU of this node is the reason why one of its workers failed: by the Xids around that
 * time, and by what NVML reports then. Pure.
 *
 * Xids are the numbers of the errors that NVIDIA's driver reports of a GPU, in the kernel's log and
 * as events of NVML. The class of each is the immediate action of NVIDIA's Xid catalogue
 * (docs.nvidia.com/deploy/xid-errors). Sites disagree about some, so NVML's own verdict, the
 * recovery action, is used where the driver has it (r570 and newer), else the class. */
#pragma once

#include "rendezvous/protocol/messages.h"
#include "topology/discover/nvml/nvml_report.h"

enum xid_class {
    XID_NOTHING = 0, /* also of a number that is not in the table */
    XID_PROGRAM,     /* an error of the program that ran on the GPU */
    XID_SUSPECT,     /* by itself it does not show whether the GPU can be used */
    XID_FATAL,       /* the GPU needs a reset, or the node a reboot */
};
enum xid_class xid_class(uint32_t xid);

/* Whether a GPU of which this was reported can't be used. recovery: NVML's recovery action now (0:
 * it needs none); NVML_UNKNOWN. A GPU that fell off the bus (Xid 79) can't, whatever that is. */
bool xid_is_fatal(uint32_t xid, uint32_t recovery);

/* Reads a record of the kernel's log (kernel_log_record()), any bytes. False: not the kernel's own
 * line of a fatal Xid. ret: the kernel's clock; no function in the address; no GPU's number. */
bool xid_read(const char *record, size_t len, struct nvml_xid *ret);

#define GPU_HEALTH_AGE_NS (10 * NS_PER_S) /* an Xid that is older has not caused the failure */

struct health_verdict { /* as in struct report */
    char sick[RDZV_SICK_MAX];
    uint32_t xid;
    int32_t gpu;
};

struct gpu_health {                 /* zeroed: nothing is known */
    uint64_t failed_ns;             /* the last failure; 0: none */
    uint64_t asked_ns;              /* when NVML was asked last */
    struct nvml_xid xids[GPUS_MAX]; /* of each GPU the last one of the worst class; xid 0: none */
};

/* False: no fault of the GPU, or it had one as bad within GPU_HEALTH_AGE_NS. */
bool gpu_health_add(struct gpu_health *h, const struct nvml_xid *x);
/* Whether such an Xid belongs to the last failure and is newer than this. */
bool gpu_health_has_newer(const struct gpu_health *h, uint64_t than_ns);
/* sick "": no GPU is to blame for the last failure. report: NVML's answer to the last question,
 * NULL: none; only GPUs count that workers see with this CUDA_VISIBLE_DEVICES (NULL: not set). */
void gpu_health_judge(const struct gpu_health *h, const struct nvml_report *report,
                      const char *visible, struct health_verdict *ret);
/* "GPU 4 (0000:9d:00.0)" */
#define GPU_NAME_MAX 48
void gpu_name(uint32_t gpu, struct pci_addr at, char ret[GPU_NAME_MAX]);
