/* Which hwloc there is, and what it sees: for `muster version -v`. */
#pragma once

#include "base/err.h"

#define HWLOC_TEXT_MAX 32

struct hwloc_summary {
    char version[HWLOC_TEXT_MAX]; /* "API 2.9"; the library does not report its release */
    uint32_t packages, numa_nodes, cores, pus;
};

/* "2.9.0", of the headers. */
void hwloc_built_version(char out[HWLOC_TEXT_MAX]);
/* Looks at the machine (tens of milliseconds). 0; -EIO: the look failed. */
_must_use_ int hwloc_discover(struct hwloc_summary *ret, struct err *err);
