/* UTF-8 where it may be broken: what workers print and peers send. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* Bytes (1 to 4) of the well-formed character at the beginning of s, as RFC 3629 §4 has them (no
 * overlong forms, no surrogates, nothing above U+10FFFF); 0 at the end of the text and for a byte
 * that begins none. */
size_t utf8_char(const char *s);

/* Copies a text into size bytes, NUL included: bytes that are not UTF-8 become U+FFFD, one for
 * each, and what is too long is cut between two characters. size >= 1. */
void utf8_copy(char *out, size_t size, const char *in);

/* Whether a control character begins at s, of which a terminal or an editor would make more than a
 * sign: below U+0020, U+007F to U+009F (C1: CSI and the like), and the overrides of the direction
 * of writing (U+202A to U+202E, U+2066 to U+2069). False at the end of the text. */
bool utf8_is_control(const char *s);

/* What is not for a terminal becomes "?", in place, for each of its bytes: control characters and
 * bytes that are not UTF-8. `lines`: tabulators and ends of lines stay. */
void utf8_clean(char *text, bool lines);
