/* Reads which nodes are on which switch from a file for --topology-file, and finds the place of one
 * node: "root.sw1.node3". Sorted in natural order, the places of one switch's nodes are adjacent. A
 * block of Slurm is a switch, and a domain. Pure.
 *
 * There are three forms; the first two may be mixed. '#' begins a comment. A line that ends with a
 * backslash continues:
 *     SwitchName=s1 Nodes=n[1-4,7]            Slurm's topology.conf; or Switches=s[1-2], BlockName=
 *     s1: n1 n2 n[3-4]                        a switch, and the nodes and switches below it
 *     - topology: default                     Slurm's topology.yaml, as its manual page writes it:
 *       block:                                one key on a line; other keys are ignored
 *         blocks:
 *         - block: b1
 *           nodes: n[1-4]
 *
 * Sources: topology.conf(5) and topology.yaml(5) of Slurm ("Switches" and "Nodes" are host list
 * expressions: hosts.h). */
#pragma once

#include "base/err.h"

#define SWITCH_MAP_MAX_BYTES ((size_t)4 << 20)
#define SWITCH_MAP_SWITCHES_MAX 65536
#define SWITCH_MAP_DEPTH_MAX 16      /* switches above one node */
#define SWITCH_MAP_NAMES_MAX 1048576 /* in all lists that are read for one node */

enum { SWITCH_MAP_E_ABSENT = 1 }; /* this node is on no switch */

/* Writes the place of `host`, found by its whole name or up to its first dot, into size bytes, and
 * the name of its block (cut; "": none) into as many. 0; SWITCH_MAP_E_ABSENT; -EINVAL: a line is
 * not valid, or switches form a cycle; -E2BIG, -ERANGE: too many names, or a place longer than
 * `size`. */
_must_use_ int switch_map_find(const char *text, size_t len, const char *host, char *ret,
                               char *ret_block, size_t size, struct err *err);
