/* CPUs, NUMA nodes, caches and the PCI tree from hwloc: of this machine, of a recorded tree, or of
 * an hwloc XML (1.x, 2.x). From an XML also GPUs (names, UUIDs, NVLinks), RDMA devices and network
 * interfaces; elsewhere files have better data (sysfs_io.h). Nothing is sorted. A child reads a
 * recording first, because a damaged one can crash hwloc. Only for a process with one thread. */
#pragma once

#include "base/err.h"
#include "topology/model/topology.h"

struct hwloc_source { /* both NULL: this machine */
    const char *sysroot;
    const char *xml; /* the file's text, with a NUL; less than 2 GiB */
};

/* what: bits of discovery.h. Adds to a zeroed *t: allowed, online, numa, cores, caches, packages,
 * arch and CPU model; with DISCOVER_PCI pci and gpus. 0; -EINVAL: hwloc refuses the recording,
 * -EIO: it can't examine the machine, -ELIBACC: it is not installed; each with a sentence. */
_must_use_ int hwloc_fill(const struct hwloc_source *source, unsigned what, struct topology *t,
                          struct err *err);

/* ---- for `muster version -v` ---- */

#define HWLOC_TEXT_MAX 32

/* "2.9.0", of the headers. */
const char *hwloc_built_version(void);
/* "API 2.9"; the library does not report its release. Returns 0; -ELIBACC: it is not installed. */
_must_use_ int hwloc_found_version(char out[HWLOC_TEXT_MAX], struct err *err);
