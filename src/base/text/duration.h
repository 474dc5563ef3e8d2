/* A duration for people: "17 ms", "3.2 s", "41 s", "5 min 07 s", "2 h 05 min". */
#pragma once

#include <stdint.h>

#include "base/text/strbuf.h"

void duration_text(uint64_t ns, struct strbuf *ret); /* adds to *ret */
