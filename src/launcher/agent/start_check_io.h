/* What can be seen to be wrong before a job starts, and which no waiting would mend: the program
 * that is missing or can't be run, the directory of the rendezvous that can't be used. */
#pragma once

#include "base/err.h"
#include "launcher/job/job.h"

/* python: the interpreter, if one is needed; else NULL. 0: nothing is known to be wrong, which
 * includes a file system that does not answer. A negative errno with a sentence. May take some
 * seconds if a file system hangs. */
_must_use_ int start_check(const struct job_spec *spec, const char *python, char *const *envp,
                           struct err *err);
