/* Texts in columns of a terminal. Pure. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

/* Adds a peer's text: control characters, C1's too (U+0080 to U+009F), become "?". */
void columns_add_clean(struct strbuf *out, const char *text);
/* The bytes of the first `columns` characters. */
size_t columns_bytes(const char *text, size_t columns);

/* A table for a terminal, at most COLUMNS_MAX columns. Sets are one bit for each column. */
#define COLUMNS_MAX 16
#define COLUMNS_GAP 2 /* blanks after each column */
struct columns {
    const char *const *titles;
    size_t n;
    unsigned shown, right; /* right: aligned to the right */
    void (*add_cell)(const void *row, size_t column, struct strbuf *out);
};
/* How wide each column that is shown must be. Returns the columns of a whole line. */
size_t columns_measure(const struct columns *t, const void *const *rows, size_t n,
                       size_t widths[COLUMNS_MAX]);
/* Adds the titles and the rows. A wider text is cut and ends in "+", the mark of ps(1). */
void columns_write(const struct columns *t, const void *const *rows, size_t n,
                   const size_t widths[COLUMNS_MAX], struct strbuf *out);
