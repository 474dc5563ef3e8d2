/* A worker's report about its own failure: error.json, as torch's @record and others write it.
 * Pure.
 *
 *     {"message": {"message": "ValueError: …",
 *                  "extraInfo": {"py_callstack": "…", "timestamp": "17…"}}}
 *     {"message": "text", "timestamp": 17…}
 *
 * Source: torch 2.13, distributed/elastic/multiprocessing/errors: error_handler.py, __init__.py. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"

#define ERROR_FILE_MAX_BYTES ((size_t)1024 * 1024)

/* *ret: the text to show to the user, the traceback, else the message; malloc'ed. 0, or a negative
 * errno with a sentence: it is over a limit, has no message, or is not JSON, as if the worker was
 * killed while it wrote. */
_must_use_ int error_file_parse(const char *text, size_t len, char **ret, struct err *err);

/* Makes the text for the agent's own TORCHELASTIC_ERROR_FILE: the worker's text, with "errorCode"
 * in the message, if that is an object. exit_code: as in torchrun, negative for a signal; 0 adds
 * nothing. Same results as parse. Replaces *ret. */
_must_use_ int error_file_for_parent(const char *text, size_t len, int exit_code,
                                     struct strbuf *ret, struct err *err);
