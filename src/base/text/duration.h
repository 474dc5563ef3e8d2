/* Times as text. A duration for people: "17 ms", "3.2 s", "41 s", "5 min 07 s", "2 h 05 min". */
#pragma once

#include <stdint.h>

#include "base/text/strbuf.h"

void duration_text(uint64_t ns, struct strbuf *ret); /* adds to *ret */

#define UTC_TEXT_MAX 48
/* "2026-11-24T03:10:38.123Z". wall_ns: since 1970. */
void utc_text(uint64_t wall_ns, char ret[UTC_TEXT_MAX]);
