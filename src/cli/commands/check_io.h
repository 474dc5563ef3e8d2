/* Examines this node for muster check. */
#pragma once

#include "launcher/preflight/node_summary_io.h"

/* Discovers the node, and judges it. python: that of the workers, or NULL. Blocks for at most
 * NODE_SUMMARY_GATHER_NS. *ret_whole: false if the time was too short for everything. Returns 0, or
 * a negative errno: no process could be created. */
_must_use_ int check_this_node(const struct node_summary_config *config, const char *python,
                               struct node_summary *ret, bool *ret_whole);
/* Does the same as resolve_own_name(). */
void check_host_name(char *out, size_t size);
