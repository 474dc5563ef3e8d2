/* torchrun's templates: in arguments, and in the prefix of tee'd lines. */
#pragma once

#include "base/util.h"

/* Replaces "$NAME" and "${NAME}" in `text` if lookup() knows the name. "$$" becomes "$", and
 * everything else stays unchanged (Python's string.Template.safe_substitute; names: ASCII letters,
 * digits, "_"). The result is malloc'ed, never NULL. lookup returns a borrowed text or NULL. */
_must_use_ char *template_substitute(const char *text,
                                     const char *(*lookup)(void *arg, const char *name), void *arg);
