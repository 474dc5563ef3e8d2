/* Reading and writing small files as a whole, and closing files. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

/* Reads a regular file of at most max bytes; *ret_text is malloc'ed and NUL-terminated (the NUL is
 * not counted). -EFBIG: larger; -EINVAL: not a regular file; others from the kernel. */
_must_use_ int file_read_text(const char *path, size_t max, char **ret_text, size_t *ret_len);
/* Reads `size` bytes, less only at the end of the file. The length, or a negative errno. */
_must_use_ ssize_t file_read_all(int fd, void *ret, size_t size);
struct strbuf;
/* Adds the text of a file of the kernel, such as cgroup.events, which has no size. The name is one
 * in this folder, or a path if dir is AT_FDCWD. 0 or a negative errno. */
int file_add_text(int dir, const char *name, struct strbuf *to);
struct tail;
/* The last lines in a regular file's last max bytes, into a zeroed *ret; empty: unreadable. */
void file_read_end(const char *path, off_t max, struct tail *ret);
/* file_read_text(), also of a pipe, such as <(...). -ETIMEDOUT: nothing came for silence_ns. */
_must_use_ int file_read_text_or_pipe(const char *path, size_t max, uint64_t silence_ns,
                                      char **ret_text, size_t *ret_len);
/* Reads the beginning of a small file, at most size - 1 bytes, and adds a NUL. The name is one in
 * this folder, or a path if dir is AT_FDCWD. A link is not followed, and nothing waits for a FIFO.
 * Returns the length; a negative errno, and "". */
_must_use_ ssize_t file_read_head(int dir, const char *name, char *out, size_t size);
/* Writes a text into a file of the kernel, such as cgroup.procs, in one write(). */
_must_use_ int file_put(int dir, const char *name, const char *text);
/* Writes the file whole or not at all: writes a new file beside it, flushes that, and renames it
 * over the old one, whose mode it gets; without an old one, 0644 less the umask. If path is a
 * symlink, the file that it names is replaced, not the link. A device or a FIFO is not replaced,
 * but written into; -ENXIO: the FIFO has no reader. -EISDIR; others from the kernel. */
_must_use_ int file_write_atomic(const char *path, const char *text, size_t len);
/* The same; a new file gets exactly this mode. */
_must_use_ int file_write_atomic_as(const char *path, const char *text, size_t len, uint32_t mode);
/* Makes a file of mode 0600 whole or not at all, without a flush, in place of one of the same name,
 * which is one in this folder, or a path if dir is AT_FDCWD. It is locked (flock(2)) before it has
 * that name, if the file system supports it. Returns a descriptor for reading and writing, or a
 * negative errno. */
#define FILE_UNFINISHED ".new-" /* the beginning of its name until then */
_must_use_ int file_put_locked(int dir, const char *name, const char *text, size_t len);
/* How many descriptors this process may have (RLIMIT_NOFILE); SIZE_MAX: any, or not known. */
size_t file_limit(void);
/* Closes *fd unless it is -1, and sets it to -1. */
void file_close(int *fd);
/* Writes all bytes, to a descriptor that blocks. 0 or a negative errno. */
_must_use_ int file_write_all(int fd, const void *bytes, size_t n);
/* The same, and flushes it to the disk if the file supports that. */
_must_use_ int file_write_flushed(int fd, const char *text, size_t len);
/* A file in memory with this text: a descriptor at its beginning, or a negative errno. */
_must_use_ int file_in_memory(const char *name, const char *text, size_t len);
/* Standard descriptors that a shell closed (<&-, >&-) become /dev/null: else the next socket would
 * get their number, and messages. They can't be written, so the console notices what is lost. */
void file_open_standard(void);

/* In a world-writable folder such as /tmp a file or folder may be another user's, who waits for
 * what is written into it, and a link may lead to any file of ours. The kernel refuses some of
 * that, if the administrator wants it (proc_sys_fs(5): protected_regular, protected_symlinks); here
 * it is refused always, by the same rule.
 *
 * Checks each part of a path that exists, and of what its links lead to: if all users may write
 * into the folder that it is in (which is sticky), it must belong to this user or to the owner of
 * that folder. -EPERM with a sentence; a path that can't be checked is not an error. */
_must_use_ int own_path_check(const char *path, struct err *err);
/* Opens or makes a file for writing whose path the user has given, which may be a link of the
 * user's: open(2) with these flags, O_CREAT and O_CLOEXEC, after own_path_check(). A new file has
 * exactly this mode; of an old one it is not changed. A descriptor; a negative errno, with a
 * sentence if it is -EPERM of the above. */
_must_use_ int own_path_open(const char *path, int flags, uint32_t mode, struct err *err);

/* Opens or makes a file at a path of our own making: a link there is not followed (-ELOOP). */
_must_use_ int own_file_make(const char *path, int flags, uint32_t mode);
/* Makes a folder of exactly this mode. 0 or a negative errno. */
_must_use_ int own_folder_make(const char *path, uint32_t mode);
/* The mode of a folder for files of this mode: who may read may enter. */
static inline uint32_t own_folder_mode(uint32_t of_files) {
    return of_files | (of_files & 0444) >> 2;
}

/* Goes through a directory, within a time limit, to list or to remove what is there. */
#define SWEEP_SEEN_MAX 20000 /* the most entries that one call examines */

/* Examines an entry of the open directory, and may remove it. False: only its name was read. */
typedef bool (*sweep_fn)(int dir, const char *name, void *arg);

/* Takes dir, a descriptor or a negative value. Also after the deadline it examines one entry. */
void sweep_dir(int dir, uint64_t until_ns, sweep_fn fn, void *arg);
