/* Base64 as in RFC 4648 §4: the plain alphabet, padded, and only one text for each value. */
#pragma once

#include "base/text/strbuf.h"

/* The most bytes that a text of this length can encode. */
#define BASE64_BYTES_MAX(text_len) (((text_len) + 3) / 4 * 3)

/* Appends to `out`. */
void base64_encode(const void *data, size_t len, struct strbuf *out);
/* At most BASE64_BYTES_MAX(len) bytes. -EINVAL: also blanks, no padding, unused bits not 0. */
_must_use_ int base64_decode(const char *text, size_t len, uint8_t *ret, size_t *ret_len);
