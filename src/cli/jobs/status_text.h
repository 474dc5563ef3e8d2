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
    bool wide; /* all columns; else lines are at most STATUS_COLUMNS wide */
};

#define STATUS_COLUMNS 80

/* Several lines, then a table with a row for each node: members by rank, then the others. Not wide:
 * long lines are folded, notes follow the table, and only a number of workers or a time that is
 * longer than any real one makes a line longer. Text from
 * other hosts can't move a terminal's cursor. */
void status_text(const struct status_view *v, struct strbuf *out);
/* Writes one object in one line. */
void status_json(const struct status_view *v, struct strbuf *out);
