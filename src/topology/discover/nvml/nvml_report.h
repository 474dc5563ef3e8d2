/* NVML's data about a node, as a child process (nvml_io.h) writes it into memory that it shares
 * with the reader: each answer when it arrives, so that a call that never returns, or a child that
 * dies, costs only what would follow. The reader trusts nothing: see nvml_report_clean(). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "topology/model/gpu_count.h"
#include "topology/model/topology.h"

#define NVML_TEXT_MAX 96
#define NVML_LINKS_MAX 36     /* NVML_NVLINK_MAX_LINKS of NVML 13; 18 before */
#define NVML_PROCESSES_MAX 32 /* of one GPU that are kept */
#define NVML_UNKNOWN UINT32_MAX

/* All members that a child writes are whole words or texts: any bytes are a valid value of them. */

struct nvml_link {
    uint32_t up;        /* active, and for peers: else it is left out */
    uint32_t type;      /* of its other end, nvmlIntNvLinkDeviceType_t; NVML_UNKNOWN */
    struct pci_addr at; /* all ones: not known, for example if a hypervisor hides the switches */
};

/* Counts up, and wraps around at so many bits; 0 bits: not known. */
struct nvml_counter {
    uint64_t value;
    uint32_t bits; /* 0, 32 or 64 */
};
enum nvml_way { NVML_NVLINK_SENT = 0, NVML_NVLINK_RECEIVED, NVML_PCIE_SENT, NVML_PCIE_RECEIVED };
#define NVML_WAYS 4

struct nvml_gpu {
    uint32_t named; /* an answer about it was read: uuid, name, address as far as known */
    uint32_t asked; /* the rest of this struct was asked for, too */
    uint32_t lost;  /* 0; 15: lost; 16: needs a reset. Then what is unknown stays so */
    uint32_t has_address;
    struct pci_addr at;
    uint32_t device_id;                              /* PCI: device << 16 | vendor; 0 unknown */
    uint32_t sm;                                     /* 90; 0 unknown */
    uint32_t cur_gen, cur_width, max_gen, max_width; /* 0 unknown */
    uint32_t mig;                                    /* MIG mode is on */
    uint32_t n_mig;
    char mig_uuids[TOPO_MIG_MAX][TOPO_MIG_UUID_MAX];
    int32_t numa;           /* the only memory node near it; -1: none, several or unknown */
    int32_t memory_node;    /* NUMA node of its own memory; -1 */
    uint64_t memory_bytes;  /* 0 unknown */
    uint32_t fabric_state;  /* 0 none, 1 not started, 2 in progress, 3 completed */
    uint32_t fabric_status; /* 0: completed well */
    uint32_t fabric_clique;
    uint8_t fabric_uuid[16];
    uint32_t fabric_health, fabric_summary; /* as in struct topo_gpu */
    char chassis[TOPO_CHASSIS_MAX];
    uint32_t slot, tray;
    uint32_t links_known; /* n_links is known; 0: no call for them */
    uint32_t n_links;
    struct nvml_link links[NVML_LINKS_MAX];
    uint32_t recovery;        /* nvmlDeviceGpuRecoveryAction_t; NVML_UNKNOWN */
    uint32_t remap_pending;   /* a reset will replace rows of its memory, or retire pages */
    uint32_t remap_failed;    /* no spare row was left for that */
    uint32_t ecc_uncorrected; /* errors since the driver was loaded */
    uint32_t slowed;          /* NVML's reasons for lower clocks, a bit for each */
    uint32_t n_c2c;           /* C2C links that are up */
    uint32_t c2c_mbps;        /* MB/s of all of them, one way */
    uint32_t n_pids;          /* compute processes that use it now */
    uint32_t pids[NVML_PROCESSES_MAX]; /* as the process that asked sees them; 0: it does not */
    /* the load, by nvml_read_load(); then n_links are those that it has */
    struct nvml_counter moved[NVML_WAYS]; /* NVLink in KiB, PCIe in bytes */
    uint32_t busy_percent;                /* NVML_UNKNOWN */
    uint32_t sm_mhz, sm_max_mhz;          /* sm_mhz 0: unknown, both */
};

/* An error that the driver has reported of a GPU (launcher/node/gpu_health.h). */
struct nvml_xid {
    uint64_t at_ns; /* CLOCK_MONOTONIC, when it was received */
    uint32_t xid;
    uint32_t gpu;       /* NVML's index */
    struct pci_addr at; /* PCI_ADDR_UNKNOWN: not known */
};

/* Why NVML was not found, or its report is not whole. */
enum nvml_fault {
    NVML_FAULT_NONE = 0,
    NVML_FAULT_MISSING, /* there is no such library */
    NVML_FAULT_ERROR,   /* it returned an error */
    NVML_FAULT_LATE,    /* it did not answer in time */
    NVML_FAULT_ENDED,   /* the child that asked it died, or could not be started */
};

struct nvml_report {
    uint32_t found; /* the library is there and answered */
    uint32_t whole; /* everything that was asked for was answered */
    uint32_t fault; /* enum nvml_fault, when not found, or not whole; and as one phrase: */
    char why_not[NVML_TEXT_MAX];
    char driver[NVML_TEXT_MAX];  /* "535.183.01", "" unknown */
    char version[NVML_TEXT_MAX]; /* of NVML */
    char cuda[TOPO_NAME_MAX];    /* the newest that the driver supports: "12.4", "" unknown */
    char at[NVML_TEXT_MAX];      /* where not whole: "nvmlDeviceGetUUID of GPU 3", "" unknown */
    uint64_t when_ns;            /* of the load, CLOCK_MONOTONIC */
    uint32_t n;                  /* GPUs; from /proc when NVML was not found */
    char uuids[GPUS_MAX][GPU_UUID_MAX];
    char names[GPUS_MAX][NVML_TEXT_MAX];
    struct nvml_gpu gpus[GPUS_MAX];
};

/* The bytes of a report that has answers about n GPUs. */
static inline size_t nvml_report_size(uint32_t n) {
    return offsetof(struct nvml_report, gpus) + n * sizeof(struct nvml_gpu);
}

/* The GPUs that workers see with this CUDA_VISIBLE_DEVICES (NULL: not set); all, if one of them
 * can't be identified. ret has room for GPUS_MAX; returns how many. */
uint32_t nvml_report_visible(const struct nvml_report *r, const char *visible, uint32_t *ret);

/* What can be wrong with a GPU, with the codes of muster check. */
enum nvml_gpu_fault {
    NVML_GPU_LOST = 0, /* nothing else is known of it then; the same for RESET */
    NVML_GPU_RESET,
    NVML_GPU_RECOVERY, /* NVML's recovery action; up to here it can't be used */
    NVML_GPU_ROWS,
    NVML_GPU_REMAP,
    NVML_GPU_ECC,
    NVML_GPU_SLOW, /* only a warning */
    NVML_GPU_FAULTS,
};
extern const char *const nvml_gpu_codes[NVML_GPU_FAULTS];
/* "needs a reset (nvidia-smi --gpu-reset)"; NULL: it does not have this fault. */
const char *nvml_gpu_fault(const struct nvml_gpu *g, enum nvml_gpu_fault fault);
/* Why it can't be used, likewise. */
const char *nvml_gpu_unusable(const struct nvml_gpu *g);

/* Makes any bytes a valid report. */
void nvml_report_clean(struct nvml_report *r);

/* True: GPUs have not joined the NVLink fabric, as one sentence. */
bool nvml_report_fabric(const struct nvml_report *r, char text[TOPO_TEXT_MAX]);

/* Fills t, which files have filled before, and sorts it; problems are warnings in t. If NVML was
 * not found, it only warns, and only if t has GPUs from NVIDIA. GPUs are matched by PCI address;
 * one that only NVML knows is added. One from NVIDIA that NVML does not know (another container's,
 * or the driver could not start it) can't be used by CUDA and has no index: it is removed from
 * gpus[], with a warning. GPUs from AMD and Intel are not changed. NVLinks become one bundle for
 * each GPU and other end, as NCCL counts them (src/graph/xml.cc of 2.30.7): a link that is down, or
 * whose other end is not reported, does not count; an end with an address of all ones is an
 * NVSwitch. nvlinks_known is set only if every GPU that is not lost was asked completely. */
void nvml_merge(const struct nvml_report *r, struct topology *t);
