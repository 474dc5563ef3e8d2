/* Files and folders that other users of this machine must not have put where we write, and that
 * they may not read.
 *
 * Everybody may make names in a folder such as /tmp: a file or folder there may be another user's,
 * who waits for what is written into it, and a link may lead to any file of ours. The kernel
 * refuses some of that, if the administrator has switched it on (proc_sys_fs(5): protected_regular,
 * protected_symlinks); here it is refused always, by the same rule. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Looks at each part of a path that exists, and of what its links lead to: if everybody may write
 * into the folder that it is in (which is sticky), it must belong to this user or to the owner of
 * that folder. -EPERM with a sentence; a path that can't be looked at is not an error. */
_must_use_ int own_path_check(const char *path, struct err *err);
/* Opens or makes a file for writing whose path the user has given, which may be a link of the
 * user's: open(2) with these flags, O_CREAT and O_CLOEXEC, after own_path_check(). A new file has
 * exactly this mode; of an old one it is not changed. A descriptor; a negative errno, with a
 * sentence if it is -EPERM of the above. */
_must_use_ int own_path_open(const char *path, int flags, uint32_t mode, struct err *err);

/* Opens or makes a file at a path of our own making, so a link there is not followed: -ELOOP. The
 * same mode and flags. */
_must_use_ int own_file_make(const char *path, int flags, uint32_t mode);
/* Makes a folder of exactly this mode. 0 or a negative errno. */
_must_use_ int own_folder_make(const char *path, uint32_t mode);
/* The mode of a folder for files of this mode: who may read may enter. */
static inline uint32_t own_folder_mode(uint32_t of_files) {
    return of_files | (of_files & 0444) >> 2;
}
