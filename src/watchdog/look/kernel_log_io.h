/* Reads the end of the kernel's log, without blocking. */
#pragma once

#include "base/err.h"
#include "watchdog/look/kernel_log.h"

struct source_kernel_log_ask {
    const char *device; /* NULL: /dev/kmsg */
    uint64_t since_ns;  /* CLOCK_MONOTONIC: only what is newer */
};
/* Adds to *to what kernel_log_write() writes. Reads until the end of the log, or until deadline_ns
 * (CLOCK_MONOTONIC). -EPERM, -EACCES: no right (kernel.dmesg_restrict); -ENOENT: no such device, as
 * in many containers; others from the kernel. err has the reason as a sentence. */
_must_use_ int source_kernel_log(const struct source_kernel_log_ask *ask, uint64_t deadline_ns,
                                 struct strbuf *to, struct err *err);
