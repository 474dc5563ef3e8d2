/* Goes through a directory, within a time limit, to list or to remove what is there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SWEEP_SEEN_MAX 20000 /* the most entries that one call examines */

/* Examines an entry of the open directory, and may remove it. False: only its name was read. */
typedef bool (*sweep_fn)(int dir, const char *name, void *arg);

/* Takes ownership of dir, a descriptor or a negative value. At least one entry is examined, even
 * after the deadline, so many short calls finish the work, too. */
void sweep_dir(int dir, uint64_t until_ns, sweep_fn fn, void *arg);
