/* A text that grows, for text whose size muster bounds.
 *
 *     _cleanup_(strbuf_fini) struct strbuf s = {0};
 *     strbuf_printf(&s, "rank %u", rank);
 *     puts(strbuf_text(&s)); */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct strbuf {
    char *data; /* NUL-terminated; NULL until something is added */
    size_t len; /* without the NUL */
    size_t cap;
    bool is_secret; /* what it leaves behind when it grows is overwritten; use strbuf_forget() */
};

void strbuf_fini(struct strbuf *s);
/* The same, and overwrites the text in memory first: it has a secret. */
void strbuf_forget(struct strbuf *s);
void strbuf_clear(struct strbuf *s);
void strbuf_add(struct strbuf *s, const char *text);
void strbuf_add_bytes(struct strbuf *s, const void *data, size_t len);
/* Makes room for `more` bytes after the text and returns its address. The caller writes bytes and a
 * NUL there, and adds the bytes to len. Valid until the next change. */
char *strbuf_room(struct strbuf *s, size_t more);
void strbuf_add_char(struct strbuf *s, char c);
void strbuf_printf(struct strbuf *s, const char *fmt, ...) _printf_(2, 3);
/* Adds the words of a text, in lines of at most `width` columns if no word is longer. The first
 * line continues at `column`, after a blank if that is above indent. Returns the last column. */
size_t strbuf_add_wrapped(struct strbuf *s, const char *text, size_t column, size_t indent,
                          size_t width);
/* Adds text of XML, cut to so many characters. Control characters except newlines become "?". */
void strbuf_add_xml(struct strbuf *s, const char *text, size_t max);
/* Cuts what follows `from` to whole lines and at most `max` bytes, with "(more was left out)". */
void strbuf_cut_lines(struct strbuf *s, size_t from, size_t max);
/* Ends the line, without blanks at its end. */
void strbuf_end_line(struct strbuf *s);
/* Never NULL. Borrowed: valid until the next change. */
const char *strbuf_text(const struct strbuf *s);
/* Hands the text over (malloc'ed, never NULL) and empties the buffer. */
_must_use_ char *strbuf_take(struct strbuf *s);
