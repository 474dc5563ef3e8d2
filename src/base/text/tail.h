/* The last lines of a text that arrives in pieces, as a terminal shows them: of a line that is
 * overwritten with carriage returns (a progress bar), the last state. Of a long line, such as an
 * exception with data in its message, the beginning is kept. NULs become "?". Pure.
 *
 *     struct tail t = {0};
 *     tail_add(&t, data, len);
 *     puts(tail_lines(&t));
 *     tail_fini(&t); */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

#define TAIL_LINES 30
#define TAIL_BYTES ((size_t)8 * 1024)
#define TAIL_LINE_BYTES ((size_t)1000) /* of one line */

struct tail {
    struct strbuf text; /* more than the last lines */
    size_t line;        /* where its last line begins */
    bool at_cr;         /* the next byte of this line overwrites it */
    bool skips;         /* the rest of this line is not kept */
};

void tail_fini(struct tail *t);
void tail_add(struct tail *t, const char *data, size_t len);
/* Returns the last lines, at most TAIL_LINES and TAIL_BYTES; "": there are none. Borrowed. */
const char *tail_lines(const struct tail *t);
