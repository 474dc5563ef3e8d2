#include "launcher/node/gpu_health.h"

#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "watchdog/look/kernel_log.h"

void gpu_name(uint32_t gpu, struct pci_addr at, char ret[GPU_NAME_MAX]) {
    bool known = pci_addr_compare(at, PCI_ADDR_UNKNOWN) != 0;
    (void)snprintf(ret, GPU_NAME_MAX, known ? "GPU %u (%s)" : "GPU %u", gpu,
                   pci_addr_text(at).text);
}

/* ---- Xids ---- */

#define OFF_THE_BUS 79

/* What is not here is XID_NOTHING, as 63 (a row was replaced) and 45 (it follows another one). */
static const struct {
    uint16_t first, last;
    enum xid_class class;
} classes[] = {
    {8, 8, XID_PROGRAM},     {11, 11, XID_PROGRAM}, {13, 13, XID_PROGRAM},
    {25, 25, XID_PROGRAM},   {31, 32, XID_PROGRAM}, {39, 41, XID_PROGRAM},
    {46, 46, XID_FATAL},     {48, 48, XID_FATAL},   {60, 60, XID_PROGRAM},
    {62, 62, XID_FATAL},     {64, 64, XID_FATAL},   {68, 72, XID_PROGRAM},
    {74, 74, XID_SUSPECT},   {75, 77, XID_PROGRAM}, {OFF_THE_BUS, OFF_THE_BUS, XID_FATAL},
    {80, 80, XID_PROGRAM},   {82, 86, XID_PROGRAM}, {88, 89, XID_PROGRAM},
    {94, 94, XID_PROGRAM},   {95, 95, XID_FATAL},   {96, 105, XID_PROGRAM},
    {109, 109, XID_SUSPECT}, {110, 110, XID_FATAL}, {119, 120, XID_FATAL},
    {126, 135, XID_PROGRAM}, {136, 136, XID_FATAL}, {139, 139, XID_PROGRAM},
    {140, 140, XID_FATAL},   {143, 143, XID_FATAL}, {144, 150, XID_SUSPECT},
    {154, 156, XID_SUSPECT}, {158, 158, XID_FATAL},
};

enum xid_class xid_class(uint32_t xid) {
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        if (xid >= classes[i].first && xid <= classes[i].last)
            return classes[i].class;
    return XID_NOTHING;
}

bool xid_is_fatal(uint32_t xid, uint32_t recovery) {
    return xid == OFF_THE_BUS ||
           (recovery == NVML_UNKNOWN ? xid_class(xid) == XID_FATAL
                                     : xid_class(xid) >= XID_SUSPECT && recovery != 0);
}

/* "NVRM: Xid (PCI:0000:9b:00): 119, …": with a MIG device "(PCI:0000:9b:00 GPU-I:05)". */
bool xid_read(const char *record, size_t len, struct nvml_xid *ret) {
    static const char begin[] = "NVRM: Xid (PCI:";
    struct kernel_log_record r;
    unsigned domain, bus, dev, xid;
    int end = 0;
    char text[128], *line = text + strlen(begin); /* what follows the number is not read */
    if (!kernel_log_record(record, len, &r) || r.level > KERNEL_LOG_OWN_MAX)
        return false;
    (void)snprintf(text, sizeof text, "%.*s", (int)MIN2(r.len, sizeof text - 1), r.text);
    if (!text_begins(text, begin) ||
        sscanf(line, "%8x:%2x:%2x%n", &domain, &bus, &dev, &end) != 3 || dev > 31)
        return false;
    line += end + strcspn(line + end, ")");
    if (sscanf(line, "): %5u%n", &xid, &end) != 1 || line[end] != ',')
        return false;
    *ret =
        (struct nvml_xid){.at_ns = r.us <= UINT64_MAX / NS_PER_US ? r.us * NS_PER_US : UINT64_MAX,
                          .xid = xid,
                          .at = {.domain = domain, .bus = (uint8_t)bus, .dev = (uint8_t)dev}};
    return xid_class(xid) == XID_FATAL;
}

/* ---- the verdict ---- */

bool gpu_health_add(struct gpu_health *h, const struct nvml_xid *x) {
    if (x->gpu >= GPUS_MAX || xid_class(x->xid) < XID_SUSPECT)
        return false;
    struct nvml_xid *old = &h->xids[x->gpu];
    bool recent = old->xid != 0 && x->at_ns < old->at_ns + GPU_HEALTH_AGE_NS;
    bool worse = !recent || xid_class(x->xid) > xid_class(old->xid);
    if (worse || xid_class(x->xid) == xid_class(old->xid))
        *old = *x;
    return worse;
}

bool gpu_health_has_newer(const struct gpu_health *h, uint64_t than_ns) {
    uint64_t last_ns = 0;
    for (uint32_t i = 0; i < GPUS_MAX; i++)
        last_ns = MAX2(last_ns, h->xids[i].at_ns);
    return last_ns > than_ns && last_ns + GPU_HEALTH_AGE_NS >= h->failed_ns;
}

static bool is_hung(const struct nvml_report *r) {
    return r != NULL && r->fault == NVML_FAULT_LATE;
}

/* By NVML's answers only if it was asked after the Xid. */
static bool is_to_blame(const struct gpu_health *h, const struct nvml_report *r,
                        const struct nvml_xid *x) {
    bool answered = r != NULL && x->gpu < r->n && x->at_ns <= h->asked_ns;
    const struct nvml_gpu *g = answered && r->gpus[x->gpu].named ? &r->gpus[x->gpu] : NULL;
    bool lost = g != NULL && g->lost != 0;
    return x->xid != 0 && x->at_ns + GPU_HEALTH_AGE_NS >= h->failed_ns &&
           (lost || is_hung(r) || xid_is_fatal(x->xid, g != NULL ? g->recovery : NVML_UNKNOWN));
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

void gpu_health_judge(const struct gpu_health *h, const struct nvml_report *report,
                      const char *visible, struct health_verdict *ret) {
    uint32_t list[GPUS_MAX], n = report != NULL ? nvml_report_visible(report, visible, list) : 0;
    const struct nvml_xid *first = NULL; /* the cause of others */
    *ret = (struct health_verdict){.gpu = -1};
    for (const struct nvml_xid *x = h->xids; x < h->xids + GPUS_MAX; x++)
        if (is_to_blame(h, report, x) && (first == NULL || x->at_ns < first->at_ns))
            first = x;
    if (first != NULL) {
        blame_xid(h, first, ret);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct nvml_gpu *g = &report->gpus[list[i]];
        const char *what = nvml_gpu_unusable(g);
        char name[GPU_NAME_MAX];
        if (what == NULL)
            continue;
        gpu_name(list[i], g->has_address ? g->at : PCI_ADDR_UNKNOWN, name);
        ret->gpu = (int32_t)list[i];
        (void)snprintf(ret->sick, sizeof ret->sick, "%s %s", name, what);
        return;
    }
    if (is_hung(report))
        (void)snprintf(ret->sick, sizeof ret->sick, "%s", report->why_not);
}
