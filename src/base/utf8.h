/* UTF-8 where it may be broken: what workers print and peers send. */
#pragma once

#include "base/util.h"

/* Bytes (1 to 4) of the well-formed character at the beginning of s, as RFC 3629 §4 has them (no
 * overlong forms, no surrogates, nothing above U+10FFFF); 0 at the end of the text and for a byte
 * that begins none. */
size_t utf8_char(const char *s);

/* Copies a text into size bytes, NUL included: bytes that are not UTF-8 become U+FFFD, one for
 * each, and what is too long is cut between two characters. size >= 1. */
void utf8_copy(char *out, size_t size, const char *in);
