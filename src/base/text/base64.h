/* Base64 as RFC 4648 §4 has it: the plain alphabet, padded, one way to write each value. */
#pragma once

#include "base/text/strbuf.h"

/* The most bytes that a text of this length can hold. */
#define BASE64_BYTES_MAX(text_len) (((text_len) + 3) / 4 * 3)

/* At the end of `out`. */
void base64_encode(const void *data, size_t len, struct strbuf *out);
/* Writes at most BASE64_BYTES_MAX(len) bytes. -EINVAL: not base64 (blanks and line ends are none,
 * and neither are missing padding or stray bits under it). */
_must_use_ int base64_decode(const char *text, size_t len, uint8_t *ret, size_t *ret_len);
