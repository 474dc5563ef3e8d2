/* Any bytes as lines of the kernel's log: what is read is a fatal Xid, which the line has as a number. */
#include <stdlib.h>
#include <string.h>

#include "launcher/node/gpu_health.h"
#include "watchdog/look/kernel_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *line, size_t len) {
    struct kernel_log_record r;
    struct nvml_xid x;
    if (xid_read(line, len, &x) &&
        (!kernel_log_record(line, len, &r) || r.level > KERNEL_LOG_OWN_MAX || r.text < line ||
         r.text + r.len > line + len || memmem(r.text, r.len, "NVRM: Xid (PCI:", 15) != r.text ||
         !xid_is_fatal(x.xid, NVML_UNKNOWN) || x.at.dev > 31 || x.at.fn != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *line = (const char *)data;
    while (size > 0) {
        const char *end = memchr(line, '\n', size);
        size_t len = end != NULL ? (size_t)(end - line) : size;
        check(line, len);
        len += end != NULL;
        line += len;
        size -= len;
    }
    return 0;
}
