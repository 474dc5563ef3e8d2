/* Directories of /proc whose entries are numbers: processes, threads, descriptors.
 * Async-signal-safe: for children before their exec, and for who ends everything in a handler. */
#pragma once

#include "base/util.h"

typedef void proc_number_fn(void *arg, int number);

/* fn(arg, number) for each entry that is a number above 0. 0, or a negative errno; what was seen
 * until then has been told. */
_must_use_ int proc_each_number(const char *path, proc_number_fn *fn, void *arg);
