/* What a person reads when something failed. Pure: failures in, text out; the agent decides which
 * process prints it, and where the bytes of error.json come from.
 *
 *     failure_headline(&failure, &counts, &text);   at once: one line, no newline
 *       rank 3 (node b, local 1) died of SIGSEGV after 41 s; stopping 3 others; restart 1 of 3
 *     failure_report_text(&report, &text);          at the end: torchrun's block, field by field
 *
 * Source of the block: torch 2.13, distributed/elastic/multiprocessing/errors/__init__.py; tests
 * compare it with the genuine one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text/strbuf.h"
#include "rendezvous/protocol/failure.h"

/* What follows from the failure. */
struct failure_counts {
    uint32_t stopping; /* other workers that are stopped because of it, in the whole job */
    bool will_restart;
    uint32_t restarts_used; /* the coming one included */
    uint32_t max_restarts;
};

/* Adds one line, without a newline. */
void failure_headline(const struct failure *f, const struct failure_counts *counts,
                      struct strbuf *ret);
/* "died of SIGSEGV (core dumped)", "ended with exit code 3", "could not be started: exec /x: …". */
void failure_cause_text(const struct failure *f, struct strbuf *ret);
/* "41 s", "3.2 s", "17 ms", "2 h 05 min". */
void duration_text(uint64_t ns, struct strbuf *ret);
/* Puts a traceback (from error.json) or the last lines of stderr into the failure; of a text that
 * is too long the end is kept, from the beginning of a line on. */
void failure_set_text(struct failure *f, const char *text, bool is_traceback);
/* As torchrun counts: exit status, or minus the signal. */
int failure_exit_code(const struct failure *f);

struct failure_report {
    const char *entrypoint;         /* script as given, module, or program */
    const struct failure *failures; /* [0] is the root cause */
    uint32_t n_failures;            /* >= 1 */
    int64_t utc_offset_s;           /* of local time, when it failed: clock_utc_offset_s() */
    const char *stderr_tail;        /* of the root cause's worker; NULL: what its text has */
};
/* Adds the block with a newline at its end; then, when there is a tail, its lines under a heading.
 * A lost node (FAILURE_NODE) has no rank, code or pid; its entry has node and reason. */
void failure_report_text(const struct failure_report *report, struct strbuf *ret);
