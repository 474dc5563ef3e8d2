/* Any bytes as lines of the kernel's log: what is kept are fatal Xids, one of each GPU, that the line has as a number. */
#include <stdio.h>
#include <string.h>

#include "topology/discover/nvml/nvml_report.h"
#include "watchdog/look/kernel_log.h"
#include "watchdog/look/xid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct xid_log *log, uint32_t before, const char *line, size_t len) {
    struct kernel_log_record r;
    if (log->n > before && (!kernel_log_record(line, len, &r) || r.level > KERNEL_LOG_OWN_MAX || r.text < line ||
                            r.text + r.len > line + len || memmem(r.text, r.len, "NVRM: Xid (PCI:", 15) != r.text))
        abort();
    for (uint32_t i = 0; i < log->n; i++) {
        if (!xid_is_fatal(log->gpus[i].xid, NVML_UNKNOWN) || log->gpus[i].at.dev > 31 || log->gpus[i].at.fn != 0)
            abort();
        for (uint32_t k = 0; k < i; k++)
            if (pci_addr_compare(log->gpus[i].at, log->gpus[k].at) == 0)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct xid_log *log = xcalloc(1, sizeof *log);
    const char *line = (const char *)data;
    while (size > 0 && log->n < GPUS_MAX) {
        const char *end = memchr(line, '\n', size);
        size_t len = end != NULL ? (size_t)(end - line) : size;
        uint32_t before = log->n;
        xid_log_add(log, line, len);
        check(log, before, line, len);
        len += end != NULL;
        line += len;
        size -= len;
    }
    free(log);
    return 0;
}
