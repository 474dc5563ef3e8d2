/* What "muster status" shows: the leader's overview for people, and as JSON for programs (the keys
 * are in muster-status(1), and do not change). Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/protocol/messages.h"

struct status_view {
    const char *run_id;
    const struct overview *overview; /* leader 0: only the arbiter was asked */
    const struct overview_node *nodes;
    uint32_t n_nodes;
    bool wide;        /* all columns; else lines are at most STATUS_COLUMNS wide */
    uint32_t columns; /* of a screen (status_screen.h); 0: there is none */
};

#define STATUS_COLUMNS 80

/* Several lines, then a row for each node: members by rank, then the others. Not wide: long lines
 * are folded, and notes follow the table. Text from other hosts can't move a terminal's cursor. */
void status_text(const struct status_view *v, struct strbuf *out);
void status_json(const struct status_view *v, struct strbuf *out);
/* In Prometheus's text format (muster-status(1)): as many series whatever the number of nodes. What
 * is not known is left out. */
void status_prometheus(const struct status_view *v, struct strbuf *out);

/* ---- parts of a screen ---- */

/* The lines above the table, folded; on a screen only those that change, without the last event. */
void status_head(const struct status_view *v, struct strbuf *out);
/* All nodes (struct overview_node) in the order of the table. malloc'ed. */
const void **status_order(const struct status_view *v);
/* The titles, and a line for each of these nodes; on a screen its note is the last column. */
void status_rows(const struct status_view *v, const void *const *nodes, size_t n,
                 struct strbuf *out);
/* The state in a word; of a job that is over, "succeeded" or "failed". */
const char *status_state(const struct overview *o);
/* The number of the group's attempt, from 1. */
static inline uint32_t overview_attempt(const struct overview *o) {
    return 1 + o->restarts_used + o->losses;
}
/* "attempt 2: 3 nodes, 12 workers": of a group that has formed. */
void status_attempt(const struct overview *o, struct strbuf *out);
static inline const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }
