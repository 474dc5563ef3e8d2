/* Shared by node_summary_io.c (the child and its deadline) and node_summary_discovery_io.c (what
 * the child examines). */
#pragma once

#include "launcher/preflight/node_summary_io.h"

/* They block. early: facts that are known at once, before anything that can take long. */
void node_summary_discovery_early(const struct node_summary_config *c, struct node_summary *d);
/* These add GPUs, adapters and versions; then what needs calls that can hang: the disk of the log
 * directory, and the node's own name. */
void node_summary_discovery_devices(const struct node_summary_config *c, struct node_summary *d);
void node_summary_discovery_disk(const struct node_summary_config *c, struct node_summary *d);
void node_summary_discovery_name(const struct node_summary_config *c, struct node_summary *d);
/* What the name of this node says, as soon as it is known. */
void node_summary_name(const char *host, const struct addr *addrs, size_t n,
                       struct node_summary *d);
void node_summary_name_unresolved(const char *host, const char *why, struct node_summary *d);
