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

/* Several lines, then a table with a row for each node: members by rank, then the others. Not wide:
 * long lines are folded, notes follow the table, and only a number of workers or a time that is
 * longer than any real one makes a line longer. Text from
 * other hosts can't move a terminal's cursor. */
void status_text(const struct status_view *v, struct strbuf *out);
/* Writes one object in one line. */
void status_json(const struct status_view *v, struct strbuf *out);
/* Writes the same in Prometheus's text format (muster-status(1), PROMETHEUS): a number of series
 * that does not depend on the number of nodes. What is not known is left out. */
void status_prometheus(const struct status_view *v, struct strbuf *out);

/* ---- parts of a screen ---- */

/* The lines above the table, folded; on a screen only those that change, without the last event. */
void status_head(const struct status_view *v, struct strbuf *out);
/* All nodes (struct overview_node) in the order of the table. malloc'ed. */
const void **status_order(const struct status_view *v);
/* The titles, and a line for each of these nodes; on a screen with its note as the last column. The
 * widths of the columns fit all nodes. */
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
