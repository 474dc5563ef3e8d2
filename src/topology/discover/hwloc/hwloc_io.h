/* Which hwloc is used, and what it finds: for `muster version -v`. */
#pragma once

#include "base/err.h"

#define HWLOC_TEXT_MAX 32

struct hwloc_summary {
    char version[HWLOC_TEXT_MAX]; /* "API 2.9"; the library does not report its release */
    uint32_t packages, numa_nodes, cores, pus;
};

/* "2.9.0", of the headers. */
void hwloc_built_version(char out[HWLOC_TEXT_MAX]);
/* Examines the machine (tens of milliseconds). Returns 0; -EIO: that failed. */
_must_use_ int hwloc_discover(struct hwloc_summary *ret, struct err *err);
