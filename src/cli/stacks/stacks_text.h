/* What "muster stacks" prints: the ranks of a job, grouped by what they do. Pure. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "cli/logs/rank_set.h"
#include "rendezvous/operate/operator_stacks.h"

struct stacks_view { /* all borrowed */
    const char *run_id;
    const struct operator_stacks *answer; /* complete */
    const struct rank_set *ranks;         /* only these */
    const char *node;                     /* only the ranks of this one; NULL: of all */
    uint64_t wall_ns;                     /* since 1970; when the answer came */
    bool json;                            /* one object in one line; else text */
};

/* Adds it to *ret. 1: also that of all nodes that were asked for; 0: some had no answer, which
 * is shown, or some of the ranks do not exist, for which there is a sentence. -ENOENT: no such rank
 * or node; or another negative errno; with a sentence. */
_must_use_ int stacks_show(const struct stacks_view *v, struct strbuf *ret, struct err *err);
