/* What hang.txt and hang.json say of the native stacks of suspects, which are read before these are
 * ended (watchdog/evidence/disturb_io.h). Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "watchdog/evidence/evidence.h"

#define SUSPECTS_NATIVE_MAX 16 /* further ones are left out, and counted */

struct suspects_native {
    uint32_t rank;
    const char *node;                     /* borrowed */
    const struct evidence_worker *worker; /* only native_stack and gaps; borrowed; NULL: none */
    const char *missing;                  /* why there is none; borrowed */
};

/* A part of a text, with a blank line before it. */
void suspects_native_text(const struct suspects_native *list, uint32_t n, struct strbuf *ret);
/* A member of an object, after others: ,"native_stacks":[{"rank":2,"node":"b","pid":12,
 * "stack":"thread 12:\n  pause\n","gaps":[]}]; stack and pid can be null. */
void suspects_native_json(const struct suspects_native *list, uint32_t n, struct strbuf *ret);
