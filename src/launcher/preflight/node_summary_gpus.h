/* The GPUs' part of a node summary: facts and findings. Pure: node_summary_io.c reads
 * NVML and /proc.
 *
 *     node_summary_gpus(&(struct node_summary_gpus){.topology = &t, .report = &r}, &d);
 *     node_summary_busy(processes, n, &d); */
#pragma once

#include "launcher/preflight/node_summary.h"
#include "topology/discover/nvml/nvml_report.h"

struct node_summary_gpus {           /* borrowed */
    const struct topology *topology; /* with NVML's data merged in */
    /* NULL: NVML was not asked, because the driver does not exist */
    const struct nvml_report *report;
    uint32_t n_nvidia; /* how many NVIDIA GPUs the PCI bus has, without NVML */
};
void node_summary_gpus(const struct node_summary_gpus *in, struct node_summary *d);

/* A process that holds a GPU, or that NVML reports. */
struct node_summary_process {
    uint64_t pid;  /* 0: not reported */
    uint32_t gpu;  /* NVML's number; TOPO_NONE: not reported */
    bool seen;     /* this process can see it; else it is in another container, or hidden */
    char name[17]; /* "" if it is not seen */
};
/* A process that is listed twice counts once. */
void node_summary_busy(const struct node_summary_process *all, uint32_t n, struct node_summary *d);
