/* What a node's GPUs say of themselves, as facts and findings of its digest. Pure: NVML and /proc
 * were asked by digest_look_io.c.
 *
 *     digest_gpus(&(struct digest_gpus){.topology = &t, .report = &r}, &d);
 *     digest_busy(processes, n, &d); */
#pragma once

#include "launcher/preflight/digest.h"
#include "topology/discover/nvml/nvml_report.h"

struct digest_gpus { /* borrowed */
    const struct topology *topology;   /* with what NVML said merged in */
    const struct nvml_report *report;  /* NULL: NVML was not asked, as there is no such driver */
    uint32_t n_nvidia;                 /* NVIDIA's GPUs before that, by the PCI bus alone */
};
void digest_gpus(const struct digest_gpus *in, struct digest *d);

/* One that holds a GPU, or that NVML names. */
struct digest_process {
    uint64_t pid;     /* 0: not told */
    uint32_t gpu;     /* NVML's number; TOPO_NONE: not told */
    bool seen;        /* it is seen from here; else another container's, or hidden */
    char name[17];    /* "" where it is not seen */
};
/* A process that is named twice counts once. */
void digest_busy(const struct digest_process *all, uint32_t n, struct digest *d);
/* Holds GPUs open and leaves them to others: a service of the driver, or a display's. */
bool digest_is_gpu_service(const char *name);
