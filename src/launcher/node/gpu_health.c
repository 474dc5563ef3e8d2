#include "launcher/node/gpu_health.h"

#include <stdio.h>

#include "watchdog/look/xid.h"

#define LOST 15 /* NVML_ERROR_GPU_IS_LOST; 16: it needs a reset */

void gpu_name(uint32_t gpu, struct pci_addr at, char ret[GPU_NAME_MAX]) {
    char address[TOPO_BUSID_MAX];
    pci_addr_text(at, address);
    bool known = pci_addr_compare(at, PCI_ADDR_UNKNOWN) != 0;
    (void)snprintf(ret, GPU_NAME_MAX, known ? "GPU %u (%s)" : "GPU %u", gpu, address);
}

/* ---- Xids ---- */

static uint32_t oldest(const struct gpu_health *h) {
    return h->n > GPU_HEALTH_XIDS ? h->n - GPU_HEALTH_XIDS : 0;
}

bool gpu_health_add(struct gpu_health *h, const struct nvml_xid *x) {
    if (xid_class(x->xid) < XID_SUSPECT)
        return false;
    for (uint32_t i = oldest(h); i < h->n; i++) {
        struct nvml_xid *old = &h->xids[i % GPU_HEALTH_XIDS];
        if (old->gpu != x->gpu || old->xid != x->xid || x->at_ns >= old->at_ns + GPU_HEALTH_AGE_NS)
            continue;
        old->at_ns = x->at_ns; /* thousands of them must not displace another one */
        return false;
    }
    h->xids[h->n++ % GPU_HEALTH_XIDS] = *x;
    return true;
}

bool gpu_health_has_newer(const struct gpu_health *h, uint64_t than_ns) {
    uint64_t last_ns = 0;
    for (uint32_t i = oldest(h); i < h->n; i++)
        last_ns = MAX2(last_ns, h->xids[i % GPU_HEALTH_XIDS].at_ns);
    return last_ns > than_ns && last_ns + GPU_HEALTH_AGE_NS >= h->failed_ns;
}

/* ---- the verdict ---- */

/* NVML's recovery action, if it was asked after the Xid. */
static uint32_t recovery_of(const struct nvml_gpu *g) {
    return g != NULL && g->named && g->lost == 0 ? g->recovery : NVML_UNKNOWN;
}

static bool is_hung(const struct nvml_report *r) {
    return r != NULL && r->fault == NVML_FAULT_LATE;
}

static bool is_to_blame(const struct gpu_health *h, const struct nvml_report *r,
                        const struct nvml_xid *x) {
    bool answered = r != NULL && x->gpu < r->n && x->at_ns <= h->asked_ns;
    const struct nvml_gpu *g = answered ? &r->gpus[x->gpu] : NULL;
    return x->at_ns + GPU_HEALTH_AGE_NS >= h->failed_ns &&
           (xid_is_fatal(x->xid, recovery_of(g)) || is_hung(r) || (g != NULL && g->lost != 0));
}

/* "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)" */
static void blame_xid(const struct gpu_health *h, const struct nvml_xid *x,
                      struct health_verdict *ret) {
    bool before = x->at_ns > h->failed_ns;
    uint64_t ms = (before ? x->at_ns - h->failed_ns : h->failed_ns - x->at_ns) / NS_PER_MS;
    char name[GPU_NAME_MAX];
    gpu_name(x->gpu, x->at, name);
    *ret = (struct health_verdict){.xid = x->xid, .gpu = (int32_t)x->gpu};
    (void)snprintf(ret->sick, sizeof ret->sick, "%u ms %s Xid %u on %s", (unsigned)ms,
                   before ? "before" : "after", x->xid, name);
}

static bool blame_gpu(const struct nvml_report *r, uint32_t i, struct health_verdict *ret) {
    const struct nvml_gpu *g = &r->gpus[i];
    const char *what = g->lost == LOST ? "is lost: the driver can't reach it"
                       : g->lost != 0  ? nvml_recovery_text(1)
                       : g->named      ? nvml_recovery_text(g->recovery)
                                       : NULL;
    char name[GPU_NAME_MAX];
    if (what == NULL)
        return false;
    gpu_name(i, g->has_address ? g->at : PCI_ADDR_UNKNOWN, name);
    ret->gpu = (int32_t)i;
    (void)snprintf(ret->sick, sizeof ret->sick, "%s %s", name, what);
    return true;
}

void gpu_health_judge(const struct gpu_health *h, const struct nvml_report *report,
                      const char *visible, struct health_verdict *ret) {
    uint32_t list[GPUS_MAX], n = report != NULL ? nvml_report_visible(report, visible, list) : 0;
    *ret = (struct health_verdict){.gpu = -1};
    for (uint32_t i = oldest(h); i < h->n; i++) /* the first one is the cause of others */
        if (is_to_blame(h, report, &h->xids[i % GPU_HEALTH_XIDS])) {
            blame_xid(h, &h->xids[i % GPU_HEALTH_XIDS], ret);
            return;
        }
    for (uint32_t i = 0; i < n; i++)
        if (blame_gpu(report, list[i], ret))
            return;
    if (is_hung(report))
        (void)snprintf(ret->sick, sizeof ret->sick, "%s", report->why_not);
}
