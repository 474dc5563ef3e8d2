/* The private temporary folder of an agent, and the folders that killed agents left behind.
 *
 * A lock (flock(2)) on a file in the folder shows that its agent is alive. It also works between
 * pid namespaces and containers that share $TMPDIR, and the kernel drops it with the process. The
 * file has the boot of the machine that has the lock. Hosts that share a file system may not see
 * each other's locks, so a folder of another boot is never removed. */
#pragma once

#include "base/err.h"

/* What will be in it. Many containers have no writable folder but /dev/shm, which takes memory and
 * is needed by data loaders and NCCL: only small files go there, unless it is $TMPDIR. */
enum tempdir_use { TEMPDIR_SMALL, TEMPDIR_LARGE };

/* Makes a new folder, mode 0700, in the first of $TMPDIR, /tmp and /dev/shm where it can. When all
 * processes have closed *ret_claim (close-on-exec), the folder is a leftover. -1: it never is. */
_must_use_ int tempdir_make(enum tempdir_use use, char **ret_dir, int *ret_claim, struct err *err);
/* It never becomes a leftover: a report names a file in it. */
void tempdir_keep(const char *dir);
/* Removes a folder with everything in it, but not what links name. False: something is left. */
bool tempdir_remove(const char *dir);

/* Removes leftover folders of this user until until_ns (CLOCK_MONOTONIC), at least one entry, and
 * returns how many. The next call continues with what is left. */
uint32_t tempdir_sweep(uint64_t until_ns);
