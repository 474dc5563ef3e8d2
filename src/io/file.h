/* Reading and writing small files as a whole, and closing files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* Reads a regular file of at most max bytes; *ret_text is malloc'ed and NUL-terminated (the NUL is
 * not counted). -EFBIG: larger; -EINVAL: not a regular file; others from the kernel. */
_must_use_ int file_read_text(const char *path, size_t max, char **ret_text, size_t *ret_len);
/* The same; a pipe or FIFO is read to its end, too, with the path of a shell's <(...), for example.
 * -ETIMEDOUT: nothing came from it for silence_ns. A FIFO without a writer is empty. */
_must_use_ int file_read_text_or_pipe(const char *path, size_t max, uint64_t silence_ns,
                                      char **ret_text, size_t *ret_len);
/* Writes the file whole or not at all: writes a new file beside it, flushes that, and renames it
 * over the old one, whose mode it gets; without an old one, 0644 less the umask. If path is a
 * symlink, the file that it names is replaced, not the link. A device or a FIFO is not replaced,
 * but written into; -ENXIO: the FIFO has no reader. -EISDIR; others from the kernel. */
_must_use_ int file_write_atomic(const char *path, const char *text, size_t len);
/* The same; a new file gets exactly this mode. */
_must_use_ int file_write_atomic_as(const char *path, const char *text, size_t len, uint32_t mode);
/* Closes *fd unless it is -1, and sets it to -1. */
void file_close(int *fd);
/* Writes the whole text to the open file, and flushes it to the disk if the file supports that. */
_must_use_ int file_write_flushed(int fd, const char *text, size_t len);
/* Standard descriptors that a shell closed (<&-, >&-) become /dev/null. Otherwise the next socket
 * or file would get their number, and messages would go there. They can't be written, so that the
 * console knows that what workers write there is lost. */
void file_open_standard(void);
