/* The private temporary folder of an agent, and those that killed agents left behind.
 *
 *     r = tempdir_make(&dir, &claim, &err);
 *     tempdir_keep(dir);            the report names a file in it: it stays
 *     logdir_remove_tree(dir);      else, at the end; then close(claim)
 *
 * A lock shows that its agent is alive (flock(2)) on a file in the folder, so that it holds between
 * pid namespaces and containers that share $TMPDIR; the kernel drops it with the process. The file
 * names the boot of the machine that has the lock: hosts that share a file system may not see each
 * other's locks, and leave each other's folders alone. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* A new folder, mode 0700, in $TMPDIR or /tmp. *ret_claim: close-on-exec; when it is closed by all
 * who have it, the folder is a leftover. -1: it could not be claimed, and will never be one. */
_must_use_ int tempdir_make(char **ret_dir, int *ret_claim, struct err *err);
void tempdir_keep(const char *dir);

/* Removes leftovers of this user, all in them included, until until_ns (CLOCK_MONOTONIC). Returns
 * how many are gone. What is not done in time is left to the next call; each does some. */
uint32_t tempdir_sweep(uint64_t until_ns);
