/* The last lines of the kernel's log that are about hardware, as text. kernel_log.c is pure;
 * source_io.c reads the log. Lines of the levels info and debug (syslog(2)) count only if they
 * have a word about faults or links, which drivers log at info; without any other line, all
 * count. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define KERNEL_LOG_LINES 64 /* a power of two */
#define KERNEL_LOG_LINE_MAX 240
#define KERNEL_LOG_MAX 16384 /* bytes of all lines */

/* A ring of the last lines. */
struct kernel_log_ring {
    uint32_t n; /* all that were added */
    char lines[KERNEL_LOG_LINES][KERNEL_LOG_LINE_MAX];
};
struct kernel_log {
    uint64_t since_us; /* of the kernel's clock: earlier records are left out */
    uint64_t boot_us;  /* when the kernel's clock was 0, since 1970; 0: not known */
    struct kernel_log_ring hardware, rest;
};

/* A record of /dev/kmsg: "6,339,5140900,-;text\n KEY=value\n" (Linux,
 * Documentation/ABI/testing/dev-kmsg). */
struct kernel_log_record {
    uint64_t level; /* above KERNEL_LOG_OWN_MAX: written by a program, not by the kernel */
    uint64_t us;    /* of the kernel's clock */
    const char *text;
    size_t len; /* of the text, which has escapes for unusual bytes; not terminated */
};
#define KERNEL_LOG_OWN_MAX 7
/* False: not a record. The text is part of it. */
bool kernel_log_record(const char *record, size_t len, struct kernel_log_record *ret);
/* A kernel_log_fn: adds a record to a struct kernel_log. */
void kernel_log_add(void *log, const char *record, size_t len);
/* Adds the lines, the oldest first, "2026-11-24T18:11:02.864Z text", or, if boot_us is not known,
 * "[    5.140900] text" (the kernel's clock stands still while a machine sleeps), after a line with
 * the number of those that are left out. At most KERNEL_LOG_MAX bytes. */
void kernel_log_write(const struct kernel_log *log, struct strbuf *to);

/* Calls fn for each line of a device (NULL: /dev/kmsg), which can also be a file. Does not block;
 * ends at deadline_ns (CLOCK_MONOTONIC) at the latest. -EPERM, -EACCES: no permission
 * (kernel.dmesg_restrict); -ENOENT: no such device, as in many containers; others from the kernel.
 * err has the reason as a sentence. */
typedef void kernel_log_fn(void *arg, const char *record, size_t len);
_must_use_ int kernel_log_read(const char *device, uint64_t deadline_ns, kernel_log_fn *fn,
                               void *arg, struct err *err);
/* Adds what kernel_log_write() writes about the records of a device (NULL: /dev/kmsg) that are
 * newer than since_ns (CLOCK_MONOTONIC). As kernel_log_read(). */
_must_use_ int source_kernel_log(const char *device, uint64_t since_ns, uint64_t deadline_ns,
                                 struct strbuf *to, struct err *err);
