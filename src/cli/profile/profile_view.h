/* The forms in which "muster profile" shows what it has found. Pure.
 *
 *     profile_text(&view, &text);
 *     form = profile_form_of("job.strip.svg");      form->write(&view, &text); */
#pragma once

#include "base/text/strbuf.h"
#include "cli/logs/rank_set.h"
#include "watchdog/profile/infer.h"

/* A node whose samples are missing. */
struct profile_missing {
    const char *node;
    char why[160];
};
struct profile_view {
    const char *run_id;
    const struct profile *profile;
    const struct profile_findings *findings;
    uint32_t world_size, n_nodes; /* of the job */
    uint32_t n_missing;
    struct profile_missing *missing;
    const struct rank_set *ranks; /* whose rows and frames are shown; n 0: all */
};

/* All of these add to *ret. */
void profile_text(const struct profile_view *v, struct strbuf *ret);
void profile_json(const struct profile_view *v, struct strbuf *ret); /* an object and a newline */

/* A form of a file. */
struct profile_form {
    const char *suffix;
    void (*write)(const struct profile_view *v, struct strbuf *ret);
};
/* By the end of the file's name, the longest suffix that fits; NULL: there is none. */
const struct profile_form *profile_form_of(const char *path);

/* ---- parts of profile_text(), for the pictures, too ---- */

struct profile_percent {
    char text[16];
};
struct profile_percent profile_percent(double share); /* "26 %", "<1 %" */
#define PERCENT(share) (profile_percent(share).text)
double profile_seconds(const struct profile_findings *f); /* rounded */
/* "rank 2 is late: the others wait for it 26 % of the time" */
void profile_add_late(const struct profile_findings *f, const struct profile_late *l,
                      struct strbuf *ret);
/* "data loading (+26 %), __getitem__ (loader.py:41)"; not is_more: "data loading 26 %, …" */
void profile_add_reason(const struct profile_reason *r, bool is_more, struct strbuf *ret);
bool profile_is_late(const struct profile_findings *f, uint32_t rank);
/* "no rank is late", or why that is not known. */
const char *profile_none_late(const struct profile_findings *f);
/* At least at_least of the time, the largest first. Returns how many. */
uint32_t profile_largest(const double shares[PROFILE_CLASS_COUNT], double at_least,
                         enum profile_class ret[PROFILE_CLASS_COUNT]);
