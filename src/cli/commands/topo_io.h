/* What `muster topo` needs of the outside: files to write, the terminal. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Writes the text whole or not at all: beside the file, then renamed over it. "-" is standard
 * output; what is no regular file (a device, a FIFO) is written to as it is. 0, or a negative
 * errno with a sentence. */
_must_use_ int topo_write(const char *path, const char *text, size_t len, struct err *err);

/* Reads a regular file of at most max bytes; *ret_text is malloc'ed. As file_read_text, with a
 * sentence. */
_must_use_ int topo_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                         struct err *err);

/* Columns of the terminal that standard output is, 0: it is none. */
uint32_t topo_width(void);
/* May standard output show lines and arrows? The locale's characters are UTF-8, and the terminal,
 * if it is one, is no dumb one. */
bool topo_utf8(void);
