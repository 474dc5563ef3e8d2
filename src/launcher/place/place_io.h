/* Facts for place_read(), and folders that nodes share; no file system is asked: it can hang. */
#pragma once

#include <stdio.h>

#include "launcher/place/place.h"

/* place_probes.facts: what can't be read is not known. The texts live until the next call. */
void place_facts_read(void *arg, struct place_facts *ret);

/* Whether the settings of this cluster bind no task to CPUs, by slurm.conf where the environment
 * has it (SLURM_CONF), else in /etc/slurm. False: they do, or that is not known. */
bool slurm_binds_nothing(char *const *envp);
/* Where munged listens by the same settings, for the caller to free; NULL: they do not say it. */
char *slurm_munge_socket(char *const *envp);

/* The name of the file system that nodes share and that has the folder, or would have it, if this
 * user can meet others there: folder_is_usable(). NULL: there is none. A static text. */
const char *shared_folder(const char *path);
/* Whether a folder is this user's alone, or can be made. */
bool folder_is_usable(const char *path);

/* ==== what is in these files: parts of the above, for tests ==== */

/* Whether TaskPlugin is task/none. False: it is another, or not there, or the file includes others.
 * Names and values have no case; of several lines the last counts. slurm.conf(5) */
bool slurm_conf_binds_nothing(const char *text);
/* The path of "socket=" in AuthInfo, which the caller frees; NULL: it is the library's default. */
char *slurm_conf_munge_socket(const char *text);

/* The name of the shared file system that has `path`, which is absolute and without links; static.
 * mounts: /proc/self/mounts, so that no file system is asked. NULL: it is on another one, or that
 * is not known. Lustre, GPFS, NFS, BeeGFS, Ceph and WEKA are known, by the types under which they
 * are mounted (mount(8) of each). getmntent(3) */
const char *mounts_shared(FILE *mounts, const char *path);
