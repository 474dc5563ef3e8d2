/* What muster check prints: one node's checks; many nodes' differences and failures. Pure. */
#pragma once

#include "launcher/preflight/node_summary.h"

/* A line for each finding, worst last: "warn  SHM-SMALL  /dev/shm has 64 MiB …". host: in a line
 * before, if there are several nodes; NULL: none. */
void check_write_node(const struct node_summary *d, const char *host, struct strbuf *to);
/* The same as one JSON object in one line: host, level, checks (level, code, text), facts. */
void check_write_node_json(const struct node_summary *d, const char *host, struct strbuf *to);

/* ---- many nodes, on the leader ---- */

/* The table, or one line that reports that nothing differs; then a line for each failure:
 * "fail  host2  DISK-LOW  …". */
void check_write_nodes(const struct node_summary_comparison *c, struct strbuf *to);
/* {"nodes", "differences": [{"code", "what", "nodes", "n_nodes", "value", "others", "n_others",
 * "matters"}], "failures": [{"node", "code", "text"}]} in one line. */
void check_write_nodes_json(const struct node_summary_comparison *c, struct strbuf *to);
/* Writes why the check failed, for each node's message: "MTU-DIFFERS: host3 has …; DISK-LOW: host2,
 * host4". Writes nothing if it did not fail. */
void check_write_verdict(const struct node_summary_comparison *c, struct strbuf *to);
