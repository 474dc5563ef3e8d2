/* Looks at this node for muster check. */
#pragma once

#include "launcher/preflight/node_summary_io.h"

/* Discovers the node, and judges it; python: of the workers, or NULL. Blocks, for
 * NODE_SUMMARY_GATHER_NS at most. *ret_whole: false when that was too short for all. 0,
 * or a negative errno: no process could be made. */
_must_use_ int check_this_node(const struct node_summary_config *config, const char *python,
                               struct node_summary *ret, bool *ret_whole);
/* As resolve_own_name(). */
void check_host_name(char *out, size_t size);
