/* A topology as JSON and back (muster topo --json, --from FILE). Pure.
 *
 * Each GPU has "index", "bus_id", "numa", "cpus" (list form) and, where a NET serves it, "nic":
 * {"name", "path", "bandwidth"} and "nics" (names in channel order) by NCCL's rules; each NIC
 * "name", "bus_id", "numa", "state", "rate" (Gb/s), "netdev"; "links" holds the path between every
 * two devices: [{"a", "b", "path"}]. "nic", "nics" and "links" are derived: the reader checks their
 * form and computes them again. The other fields hold the whole snapshot, so a file that is read
 * gives the topology that was written. muster(1) documents the format; "format": 1. */
#pragma once

#include "base/text/strbuf.h"
#include "topology/model/topology.h"

#define TOPOLOGY_JSON_MAX ((size_t)16 << 20)

void topology_json_write(const struct topology *t, struct strbuf *to);
/* Returns 0, or -EINVAL or -E2BIG with a sentence. */
_must_use_ int topology_json_read(const char *text, size_t len, struct topology *ret,
                                  struct err *err);
