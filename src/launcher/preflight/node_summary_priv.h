/* Between node_summary_io.c (the child and its deadline) and node_summary_discovery_io.c (what it
 * looks at). */
#pragma once

#include "launcher/preflight/node_summary_io.h"

/* Blocks. early: the facts that cost nothing, before anything that may take long. */
void node_summary_discovery_early(const struct node_summary_config *c, struct node_summary *d);
/* Added to them: GPUs, adapters, versions; then calls that may hang: the disk of
 * the log directory, and the node's own name. */
void node_summary_discovery_devices(const struct node_summary_config *c, struct node_summary *d);
void node_summary_discovery_disk(const struct node_summary_config *c, struct node_summary *d);
void node_summary_discovery_name(const struct node_summary_config *c, struct node_summary *d);
void node_summary_name_unresolved(const char *host, const char *why, struct node_summary *d);
