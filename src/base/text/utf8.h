/* UTF-8 that can be invalid: what workers print and peers send. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The bytes (1 to 4) of the character at s, well-formed by RFC 3629 §4. 0: there is none. */
size_t utf8_char(const char *s);
/* The number of characters; each counts as one column. */
size_t utf8_columns(const char *text);

/* Copies into size >= 1 bytes, cut between characters. A byte that is not UTF-8 becomes U+FFFD. */
void utf8_copy(char *out, size_t size, const char *in);

/* Whether a control character begins at s, to which a terminal or an editor would react: below
 * U+0020, U+007F to U+009F (C1: CSI and the like), and the characters that change the direction of
 * writing (U+202A to U+202E, U+2066 to U+2069). False at the end of the text. */
bool utf8_is_control(const char *s);

/* The rule for every text that is sent to other nodes, printed, or part of a path: valid UTF-8 of
 * at most max bytes, without control characters. Returns 0, or -EINVAL and a sentence about `what`,
 * the option or variable that has the text. */
_must_use_ int utf8_check_line(const char *what, const char *text, size_t max, struct err *err);

/* Replaces control characters and what is not UTF-8 with "?". `lines`: tabs, line ends are kept. */
void utf8_clean(char *text, bool lines);
/* utf8_copy(), then utf8_clean() of one line: for a text that must be shown, even if invalid. */
void utf8_copy_line(char *out, size_t size, const char *in);
