#include "watchdog/look/xid.h"

#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/discover/nvml/nvml_report.h"
#include "watchdog/look/kernel_log.h"

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
static bool read_line(const char *line, struct xid_logged *ret) {
    static const char begin[] = "NVRM: Xid (PCI:";
    unsigned domain, bus, dev, xid;
    int end = 0;
    if (!text_begins(line, begin))
        return false;
    line += strlen(begin);
    if (sscanf(line, "%8x:%2x:%2x%n", &domain, &bus, &dev, &end) != 3 || dev > 31)
        return false;
    line += end + strcspn(line + end, ")");
    if (sscanf(line, "): %5u%n", &xid, &end) != 1 || line[end] != ',')
        return false;
    ret->at = (struct pci_addr){.domain = domain, .bus = (uint8_t)bus, .dev = (uint8_t)dev};
    ret->xid = xid;
    return xid_class(xid) == XID_FATAL;
}

void xid_log_add(struct xid_log *log, const char *record, size_t len) {
    struct kernel_log_record r;
    struct xid_logged seen;
    char line[128]; /* what follows the number is not read */
    if (!kernel_log_record(record, len, &r) || r.level > KERNEL_LOG_OWN_MAX)
        return;
    (void)snprintf(line, sizeof line, "%.*s", (int)MIN2(r.len, sizeof line - 1), r.text);
    if (!read_line(line, &seen))
        return;
    seen.at_ns = r.us <= UINT64_MAX / NS_PER_US ? r.us * NS_PER_US : UINT64_MAX;
    uint32_t i = 0;
    while (i < log->n && pci_addr_compare(log->gpus[i].at, seen.at) != 0)
        i++;
    if (i == GPUS_MAX)
        return;
    log->n = MAX2(log->n, i + 1);
    log->gpus[i] = seen;
}
