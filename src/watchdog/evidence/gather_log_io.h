/* The last lines of a worker's log. Reading can block on a dead file system. */
#pragma once

#include "base/text/strbuf.h"

#define GATHER_LOG_LINES 20
#define GATHER_LOG_BYTES ((size_t)4096)

/* Adds at most so many lines and bytes; nothing if the file can't be read or is no regular file. */
void gather_log_tail(const char *path, struct strbuf *ret);
