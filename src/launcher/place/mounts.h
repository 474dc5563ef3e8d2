/* Which file system a folder is on, and whether nodes of a cluster share it. Pure: the text of
 * /proc/self/mountinfo comes in, so that a file system that does not answer stops nobody.
 *
 *     const char *name = mounts_shared(text, "/lustre/home/me");       "Lustre" */
#pragma once

/* The name of the shared file system that has `path`, which is absolute and without links; NULL: it
 * is on another one, or that is not known. Lustre, GPFS, NFS, BeeGFS, Ceph and WEKA are known, by
 * the types under which they are mounted (mount(8) of each). A static text. proc_pid_mountinfo(5)
 */
const char *mounts_shared(const char *mountinfo, const char *path);
