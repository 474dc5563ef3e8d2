/* Reads a worker's report about its own failure (error_file.h). Blocks as long as the file system
 * does. */
#pragma once

#include "base/text/strbuf.h"

/* Reads the end of its text for the user. 0: *ret has it; it is empty if there is no such file, or
 * path is "". -EINVAL: *ret describes what is wrong with the file. */
_must_use_ int error_file_read(const char *path, struct strbuf *ret);
