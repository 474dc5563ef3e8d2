/* Control groups: this process's own, muster's own below it, and kills for lack of memory.
 *
 * cgroup v2 mount: type "cgroup2" in /proc/self/mountinfo; own group: line "0::PATH" of
 * /proc/self/cgroup; cgroup.kill: Linux 5.14; "oom_kill N" in memory.events (v2, with descendants)
 * or memory.oom_control (v1, Linux 4.13). cgroup-v2.rst and cgroup-v1/memory.rst of Linux. */
#pragma once

#include <sys/types.h>

#include "base/util.h"

/* This process's cgroup v2 directory, malloc'ed. NULL: no cgroup2 mount, or not visible. */
char *cgroup_own_path(void);
/* True if that directory was delegated to us: we own it and are not root, or it has systemd's mark
 * of delegation (extended attribute user.delegate or trusted.delegate = 1). */
bool cgroup_is_delegated(const char *path);

/* Makes the group NAME below `parent_fd` (directory). *ret_fd: its directory, close-on-exec. */
_must_use_ int cgroup_make(int parent_fd, const char *name, int *ret_fd);
/* SIGKILL to all in it and below. -ENOENT, -EOPNOTSUPP: the kernel has no cgroup.kill. */
int cgroup_kill(int fd);
/* 1: there are processes in it or below; 0: none. */
_must_use_ int cgroup_populated(int fd);
/* -EBUSY: not empty. */
int cgroup_remove(int parent_fd, const char *name);
/* Moves this process into it. */
_must_use_ int cgroup_enter(int fd);

/* Marks the group as in use by all processes that inherit fd, its directory: until all have closed
 * it, cgroup_sweep() spares it. False: the group was just removed; make it again. */
_must_use_ bool cgroup_claim(int parent_fd, const char *name, int fd);
/* Removes this user's groups of this prefix that no process claims or is in, and those in them. */
void cgroup_sweep(int parent_fd, const char *prefix, uint64_t until_ns);

/* The kernel's count of memory kills in this process's group; malloc'ed path; NULL: none. */
char *cgroup_oom_file(void);
/* The count in the file; 0 if it can't be read. */
uint64_t cgroup_oom_kills(const char *file);
/* For tests: the two readers above, on texts of /proc/self/mountinfo and /proc/self/cgroup. */
char *cgroup_path_from(const char *mountinfo, const char *cgroup);
char *cgroup_oom_file_from(const char *mountinfo, const char *cgroup);
