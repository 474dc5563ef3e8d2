/* What a worker that failed wrote about it. Pure. The pieces point into the failure's text. */
#pragma once

#include <stddef.h>

#include "rendezvous/protocol/failure.h"

/* The beginning of a last line that names the Python that ran the worker. */
#define FAILURE_INTERPRETER "The interpreter was "

struct piece {
    const char *at;
    size_t len; /* 0: there is none */
};

/* What Python wrote about the exception that ended the worker. */
struct exception {
    struct piece line;   /* "ValueError: bad" */
    struct piece more;   /* the next line with text, if the message begins with a newline */
    struct piece thread; /* "Exception in thread Thread-1 (f):", if it was not the main thread's */
};

bool failure_by_signal(const struct failure *f);
/* Returns the exception that ended the worker. */
struct exception failure_exception(const struct failure *f);
/* Returns the last line that is not blank, and not that about the interpreter. */
struct piece failure_last_output(const struct failure *f);
/* Returns the line about the interpreter; NULL: there is none. */
const char *failure_interpreter(const struct failure *f);
/* Returns the traceback in what the worker wrote to its standard error; NULL: there is none. */
const char *failure_traceback(const struct failure *f);
