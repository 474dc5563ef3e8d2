/* Texts in columns of a terminal. Pure. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

/* Adds a peer's text: control characters, C1's too (U+0080 to U+009F), become "?". */
void columns_add_clean(struct strbuf *out, const char *text);
/* The number of characters; each counts as one column. */
size_t columns_of(const char *text);
/* The bytes of the first `columns` characters. */
size_t columns_bytes(const char *text, size_t columns);
/* Adds the text and blanks, or, if it is wider, its beginning and "+", the mark of ps(1). */
void columns_add(struct strbuf *out, const char *text, size_t width, bool right);
/* Ends a row, without blanks after its last text. */
void columns_end_row(struct strbuf *out);
