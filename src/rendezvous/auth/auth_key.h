/* A key as text: one line, "muster-key-1:" and 64 hexadecimal digits. In files, in MUSTER_KEY, and
 * on the way from the head to its agents. */
#pragma once

#include "base/err.h"

#define AUTH_SECRET_BYTES 32
#define AUTH_KEY_PREFIX "muster-key-1:"
#define AUTH_KEY_TEXT_MAX (sizeof(AUTH_KEY_PREFIX) + 2 * (size_t)AUTH_SECRET_BYTES)
/* The longest file that is read: a key, a newline, and some room, so that what is wrong can be
 * said. */
#define AUTH_KEY_FILE_MAX 4096

/* Without a newline. The caller wipes `out`. */
void auth_key_to_text(const uint8_t secret[AUTH_SECRET_BYTES], char out[AUTH_KEY_TEXT_MAX]);
/* Blanks and newlines around it are ignored. -EINVAL: the sentence says what is wrong with it, and
 * never what it holds; `what` names it: "the key file '/home/a/key'". */
_must_use_ int auth_key_from_text(const char *text, size_t len, const char *what,
                                  uint8_t ret[AUTH_SECRET_BYTES], struct err *err);
