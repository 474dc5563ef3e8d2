/* Reading what a worker wrote about its own end (error_file.h). Blocks as long as the file system
 * does. */
#pragma once

#include "base/text/strbuf.h"

/* Its text for people. 0: *ret has it, or nothing where there is no such file (path "" too);
 * -EINVAL: *ret says what is wrong with it. */
_must_use_ int error_file_read(const char *path, struct strbuf *ret);
