/* The GPUs' part of a node summary: facts and findings. Pure: NVML and
 * /proc were asked by node_summary_discovery_io.c.
 *
 *     node_summary_gpus(&(struct node_summary_gpus){.topology = &t, .report = &r}, &d);
 *     node_summary_busy(processes, n, &d); */
#pragma once

#include "launcher/preflight/node_summary.h"
#include "topology/discover/nvml/nvml_report.h"

struct node_summary_gpus {            /* borrowed */
    const struct topology *topology;  /* with NVML's data merged in */
    const struct nvml_report *report; /* NULL: NVML was not asked, as there is no such driver */
    uint32_t n_nvidia;                /* NVIDIA's GPUs before that, by the PCI bus alone */
};
void node_summary_gpus(const struct node_summary_gpus *in, struct node_summary *d);

/* One that holds a GPU, or that NVML names. */
struct node_summary_process {
    uint64_t pid;  /* 0: not reported */
    uint32_t gpu;  /* NVML's number; TOPO_NONE: not reported */
    bool seen;     /* it is seen from here; else another container's, or hidden */
    char name[17]; /* "" where it is not seen */
};
/* A process that is named twice counts once. */
void node_summary_busy(const struct node_summary_process *all, uint32_t n, struct node_summary *d);
/* Holds GPUs open and leaves them to others: a service of the driver, or a display's. */
bool node_summary_is_gpu_service(const char *name);
