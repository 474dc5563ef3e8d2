/* The texts that users read about failures: a headline at once; at the end torchrun's block (torch
 * 2.13, distributed/elastic/multiprocessing/errors/__init__.py), and below it a last line. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/protocol/failure.h"

/* The consequences of the failure. */
struct failure_counts {
    uint32_t stopping; /* other workers that are stopped because of it, in the whole job */
    bool will_restart;
    uint32_t restarts_used; /* including the next one */
    uint32_t max_restarts;
};

/* Adds one line, without a newline: "failed: rank 3 (node b): ValueError: bad (exit code 1 after 41
 * s); stopping 3 others; restart 1 of 3". */
void failure_headline(const struct failure *f, const struct failure_counts *counts,
                      struct strbuf *ret);
/* Adds the last line of the report, without a newline: "failed: rank 3 (node b): ValueError: bad",
 * "failed: rank 3 (node b): died of SIGSEGV after 41 s". */
void failure_last_line(const struct failure *f, struct strbuf *ret);
/* Puts a traceback (from error.json) or the last lines of stderr into the failure. If the text is
 * too long, its end is kept, from the beginning of a line on. */
void failure_set_text(struct failure *f, const char *text, bool is_traceback);
/* If Python did not find a module, says which interpreter was asked, in a line that every node's
 * report shows: most often it is not the one that was meant. Call it after failure_set_text(). */
void failure_name_interpreter(struct failure *f, const char *python);
/* As in torchrun: the exit status, or minus the signal. */
int failure_exit_code(const struct failure *f);
/* As in a shell: the exit status, or 128 plus the signal; 1 for a lost node. From 1 to 255. */
int failure_shell_status(const struct failure *f);

struct failure_report {
    const char *entrypoint;        /* script as given, module, or program */
    const struct failure *failure; /* the root cause */
    int64_t utc_offset_s;          /* of local time at the failure */
    /* of the root cause's worker; NULL: the one in its text; "": none, it was shown before */
    const char *stderr_tail;
};
/* Adds torchrun's exception and the block; then, if there is a tail, its lines under a heading.
 * Without an error file, a traceback of standard error takes its place in the block. A lost node
 * has no rank, code or pid. Control characters become "?". */
void failure_report_text(const struct failure_report *report, struct strbuf *ret);

/* The root cause, for MUSTER_FAILURE_FILE of the program that called muster (man/muster-files.5):
 * the Python package makes torch's ChildFailedError from it. */
void failure_json(const char *entrypoint, const struct failure *f, struct strbuf *ret);
