/* An error that quotes a text and says where in it. Pure.
 *
 *     return unreadable(err, -EINVAL, "host list", "n[1,,2]", 4, "there should be a number");
 *
 * cannot read the host list "n[1,,2]": at character 5 there should be a number */
#pragma once

#include "base/err.h"

/* Returns code. `at` counts bytes from 0, and may be the text's length. A long text is cut around
 * `at`; what is unsafe on a terminal becomes "?". err may be NULL. */
int unreadable(struct err *err, int code, const char *what, const char *text, size_t at,
               const char *fmt, ...) _printf_(6, 7);
