/* Xids: the numbers of the errors that NVIDIA's driver reports of a GPU, in the kernel's log and as
 * events of NVML. Pure.
 *
 * The class of each is what NVIDIA's Xid catalogue gives as the immediate action
 * (docs.nvidia.com/deploy/xid-errors). Sites disagree about some numbers, so NVML's own verdict,
 * the recovery action, is used where the driver has it (r570 and newer), else the class. */
#pragma once

#include <stdbool.h>

#include "topology/model/gpu_count.h"
#include "topology/model/topology.h"

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

/* The newest fatal Xid of each GPU in the kernel's log. */
struct xid_logged {
    struct pci_addr at; /* function 0: the log does not have it */
    uint32_t xid;
    uint64_t at_ns; /* of the kernel's clock */
};
struct xid_log {
    uint32_t n;
    struct xid_logged gpus[GPUS_MAX];
};
/* Adds a record of the kernel's log (kernel_log_record()), if the kernel itself has written it, and
 * it is "NVRM: Xid (PCI:0000:9b:00): 119, pid=…", with a fatal number. Any bytes are allowed. */
void xid_log_add(struct xid_log *log, const char *record, size_t len);
