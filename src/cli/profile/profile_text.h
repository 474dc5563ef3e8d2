/* Parts of profile_text(), for the pictures, too. */
#pragma once

#include "cli/profile/profile_view.h"

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
