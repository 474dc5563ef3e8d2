#include "topology/discover/nvml/nvml_report.h"

#include <stdio.h>
#include <string.h>

#define PCIE_GEN_MAX 15 /* the largest value of a PCI Express link's register */
#define PCIE_WIDTH_MAX 32
#define SM_MAX 999

static void end_text(char *text, size_t size) {
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static void bound(uint32_t *number, uint32_t max) {
    if (*number > max)
        *number = 0;
}

static void clean_gpu(struct nvml_gpu *g) {
    bound(&g->cur_gen, PCIE_GEN_MAX);
    bound(&g->max_gen, PCIE_GEN_MAX);
    bound(&g->cur_width, PCIE_WIDTH_MAX);
    bound(&g->max_width, PCIE_WIDTH_MAX);
    bound(&g->sm, SM_MAX);
    g->n_mig = MIN2(g->n_mig, (uint32_t)TOPO_MIG_MAX);
    for (uint32_t i = 0; i < TOPO_MIG_MAX; i++)
        end_text(g->mig_uuids[i], TOPO_MIG_UUID_MAX);
    g->n_links = MIN2(g->n_links, (uint32_t)NVML_LINKS_MAX);
    g->n_processes = MIN2(g->n_processes, (uint32_t)NVML_PROCESSES_MAX);
    g->has_address = g->has_address && g->at.dev <= 31 && g->at.fn <= 7;
}

void nvml_report_clean(struct nvml_report *r) {
    r->n = MIN2(r->n, (uint32_t)GPUS_MAX);
    bound(&r->fault, NVML_FAULT_ENDED);
    end_text(r->why_not, sizeof r->why_not);
    end_text(r->driver, sizeof r->driver);
    end_text(r->version, sizeof r->version);
    end_text(r->cuda, sizeof r->cuda);
    end_text(r->at, sizeof r->at);
    for (uint32_t i = 0; i < r->n; i++) {
        end_text(r->uuids[i], sizeof r->uuids[i]);
        end_text(r->names[i], sizeof r->names[i]);
        clean_gpu(&r->gpus[i]);
    }
}

bool nvml_report_fabric(const struct nvml_report *r, char text[TOPO_TEXT_MAX]) {
    static const char *const states[] = {"none", "not started", "in progress", "failed"};
    uint32_t waiting = 0, first = 0;
    for (uint32_t i = r->n; i > 0; i--) {
        const struct nvml_gpu *g = &r->gpus[i - 1];
        if (g->fabric_state == 0 || g->fabric_state >= ARRAY_SIZE(states) ||
            (g->fabric_state == 3 && g->fabric_status == 0))
            continue;
        waiting++;
        first = i - 1;
    }
    if (waiting > 0)
        (void)snprintf(text, TOPO_TEXT_MAX,
                       "%u of %u GPUs have not joined the NVLink fabric (GPU %u: %s): is "
                       "nvidia-fabricmanager running?",
                       waiting, r->n, first, states[r->gpus[first].fabric_state]);
    return waiting > 0;
}

uint32_t nvml_report_processes(const struct nvml_report *r, uint32_t gpu,
                               const struct nvml_process **ret) {
    if (gpu >= MIN2(r->n, (uint32_t)GPUS_MAX))
        return 0;
    *ret = r->gpus[gpu].processes;
    return MIN2(r->gpus[gpu].n_processes, (uint32_t)NVML_PROCESSES_MAX);
}
