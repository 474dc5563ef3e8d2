/* Parts that entries of host files and filters have in common. Pure. */
#pragma once

#include "base/err.h"
#include "launcher/hosts/hostlist.h"

/* The length of the text up to one of `stops` that is outside of brackets, or up to its end. */
size_t words_span(const char *text, const char *stops);

/* Reads names: one IPv6 address in brackets, which are removed, or a host list. Errors as
 * hostlist_expand() returns them. */
_must_use_ int words_names(const char *text, size_t len, struct hostlist *ret, struct err *err);

/* A number from `least` to `most`. `what` says what it is: "slots must be a number from 1 to 65536,
 * not \"x\"". */
_must_use_ int words_number(const char *text, size_t len, const char *what, uint32_t least,
                            uint32_t most, uint32_t *ret, struct err *err);
