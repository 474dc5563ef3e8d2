/* What `muster topo` needs from the system: files to write, the terminal. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Writes the text atomically: to a temporary file, which is then renamed. "-" is standard output. A
 * file that is not a regular one (a device, a FIFO) is written to directly. Returns 0, or a
 * negative errno with a sentence. */
_must_use_ int topo_write(const char *path, const char *text, size_t len, struct err *err);

/* file_read_text() with a sentence. */
_must_use_ int topo_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                         struct err *err);

/* The columns of the terminal; 0: standard output is not a terminal. */
uint32_t topo_width(void);
/* Whether standard output can show lines and arrows: UTF-8, and not a dumb terminal. */
bool topo_utf8(void);
