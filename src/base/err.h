/* An error for the user: a code and one sentence, on the caller's stack.
 *
 *     struct err err = {0};
 *     r = thing_open(path, &thing, &err);
 *     if (r < 0) { log_error("%s", err.text); return r; }
 *
 * It is filled once, where the error occurs: what was tried, on what, and what to do. */
#pragma once

#include "base/util.h"

#define ERR_TEXT_MAX 512

struct err {
    int code;                /* negative errno; 0 if nothing was set */
    char text[ERR_TEXT_MAX]; /* one sentence, no newline at its end */
};

/* Fills *err (which may be NULL) and returns code: `return err_set(err, -EINVAL, "…")`. */
int err_set(struct err *err, int code, const char *fmt, ...) _printf_(3, 4);

/* Puts "prefix: " before the existing text. Does nothing if err is NULL. */
void err_prefix(struct err *err, const char *fmt, ...) _printf_(2, 3);
