/* Looking through a directory, within a time, for what nobody needs any more. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SWEEP_SEEN_MAX 20000 /* entries of one directory that are examined in one call */

/* Looks at the entry `name` of the open directory, and removes it if it is to go. False: nothing
 * was to be done but read its name. */
typedef bool (*sweep_fn)(int dir, const char *name, void *arg);

/* Takes dir, a descriptor or a negative value. At least one entry is examined, however late it is,
 * so that many short calls finish the work, too. */
void sweep_dir(int dir, uint64_t until_ns, sweep_fn fn, void *arg);
