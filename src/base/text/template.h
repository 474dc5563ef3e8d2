/* Templates as torchrun has them: of arguments, and of the prefix of tee'd lines. */
#pragma once

#include "base/util.h"

/* Replaces "$NAME" and "${NAME}" in `text` where lookup() knows the name, "$$" becomes "$", and all
 * else stays (Python's string.Template.safe_substitute; names: ASCII letters, digits, "_").
 * malloc'ed, never NULL. lookup returns a borrowed text or NULL. */
_must_use_ char *template_substitute(const char *text,
                                     const char *(*lookup)(void *arg, const char *name), void *arg);
