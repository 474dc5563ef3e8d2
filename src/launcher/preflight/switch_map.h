/* Which nodes are on which switch, from a file for --topology-file, and where one node is in it:
 * "root.sw1.node3", whose natural order puts the nodes of one switch side by side. Pure.
 *
 * Two forms, which may be mixed; '#' begins a comment, a backslash at its end continues a line:
 *     SwitchName=s1 Nodes=n[1-4,7]            Slurm's topology.conf; or Switches=s[1-2]
 *     s1: n1 n2 n[3-4]                        a switch, and the nodes and switches below it
 *
 * Lists are matched, not expanded: n[1-100000] costs nothing. Sources: topology.conf(5) of Slurm
 * ("Switches" and "Nodes" are host list expressions). */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define SWITCH_MAP_MAX_BYTES ((size_t)4 << 20)
#define SWITCH_MAP_SWITCHES_MAX 65536
#define SWITCH_MAP_DEPTH_MAX 16 /* switches above one node */

enum { SWITCH_MAP_E_ABSENT = 1 }; /* no switch has this node */

/* Does a list of names, separated by commas or blanks, have this one? Numbers in brackets are
 * ranges, as wide as they are written: n[08-12] has n08 and n12, and not n8. */
bool host_list_has(const char *list, const char *name);

/* The place of `host`, found by its whole name or up to its first dot, into size bytes.
 * 0; SWITCH_MAP_E_ABSENT; -EINVAL with the line that makes no sense, -EINVAL for switches above
 * each other in a circle; -E2BIG: too many switches, or the place is longer than `size`. */
_must_use_ int switch_map_find(const char *text, size_t len, const char *host, char *ret,
                               size_t size, struct err *err);
