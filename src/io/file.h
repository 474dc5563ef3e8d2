/* Whole small files, and closing. */
#pragma once

#include <stddef.h>

#include "base/util.h"

/* Reads a regular file of at most max bytes; *ret_text is malloc'ed and NUL-terminated (the NUL is
 * not counted). -EFBIG: larger; -EINVAL: not a regular file; others from the kernel. */
_must_use_ int file_read_text(const char *path, size_t max, char **ret_text, size_t *ret_len);
/* Writes it whole or not at all: beside it, flushed, then renamed over it. Mode 0644. Of a symlink
 * the file that it names is replaced, not the link. A device or a FIFO is written into and stays
 * what it is; -ENXIO: a FIFO that nobody reads. -EISDIR; others from the kernel. */
_must_use_ int file_write_atomic(const char *path, const char *text, size_t len);
/* Closes it unless it is -1, and leaves -1. */
void file_close(int *fd);
/* Writes all of it to the open file, and flushes it to the disk where that is possible. */
_must_use_ int file_write_flushed(int fd, const char *text, size_t len);
