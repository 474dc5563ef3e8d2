/* What two files of the system say: slurm.conf, and the mounts of this process. Pure: their texts
 * come in; place_io.h reads them.
 *
 *     slurm_conf_binds_nothing(text)             its tasks are never bound to CPUs
 *     slurm_conf_munge_socket(text)              where munged listens
 *     mounts_shared(file, "/lustre/home/me")     "Lustre" */
#pragma once

#include <stdbool.h>
#include <stdio.h>

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
