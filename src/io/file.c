#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "base/text/tail.h"
#include "io/clock.h"

ssize_t file_read_all(int fd, void *ret, size_t size) {
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, (char *)ret + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

int file_add_text(int dir, const char *name, struct strbuf *to) {
    _cleanup_(file_close) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    char bytes[4096];
    ssize_t n = fd < 0 ? -errno : 1;
    while (n > 0 && (n = file_read_all(fd, bytes, sizeof bytes)) > 0)
        strbuf_add_bytes(to, bytes, (size_t)n);
    return (int)n;
}

size_t file_limit(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? SIZE_MAX : (size_t)limit.rlim_cur;
}

int file_read_text(const char *path, size_t max, char **ret_text, size_t *ret_len) {
    /* Non-blocking: if a FIFO is there instead of a file, this must not hang. */
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return -EFBIG;
    _cleanup_(freep) char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return -ENOMEM;
    ssize_t len = file_read_all(fd, text, (size_t)st.st_size); /* it can become shorter meanwhile */
    if (len < 0)
        return (int)len;
    text[len] = '\0';
    *ret_text = TAKE_PTR(text);
    *ret_len = (size_t)len;
    return 0;
}

ssize_t file_read_head(int dir, const char *name, char *out, size_t size) {
    _cleanup_(file_close) int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (n < 0)
        n = -errno;
    out[MAX2(n, (ssize_t)0)] = '\0';
    return n;
}

int file_put(int dir, const char *name, const char *text) {
    _cleanup_(file_close) int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int read_pipe(int fd, size_t max, uint64_t silence_ns, char **ret_text, size_t *ret_len) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    ssize_t n;
    do {
        char bytes[4096];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)(silence_ns / NS_PER_MS));
        if (ready == 0)
            return -ETIMEDOUT;
        n = ready < 0 ? -1 : read(fd, bytes, sizeof bytes);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n > 0 && (size_t)n > max - text.len)
            return -EFBIG;
        strbuf_add_bytes(&text, bytes, n > 0 ? (size_t)n : 0);
    } while (n != 0);
    *ret_len = text.len;
    *ret_text = strbuf_take(&text);
    return 0;
}

void file_read_end(const char *path, off_t max, struct tail *ret) {
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char data[TAIL_BYTES];
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    off_t from = MAX2(st.st_size - max, (off_t)0);
    ret->skips = from > 0; /* the rest of a line */
    for (ssize_t n; from < st.st_size && (n = pread(fd, data, sizeof data, from)) > 0; from += n)
        tail_add(ret, data, (size_t)n);
}

int file_read_text_or_pipe(const char *path, size_t max, uint64_t silence_ns, char **ret_text,
                           size_t *ret_len) {
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISFIFO(st.st_mode) ? read_pipe(fd, max, silence_ns, ret_text, ret_len)
                                : file_read_text(path, max, ret_text, ret_len);
}

int file_write_all(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n > 0;) {
        ssize_t some = write(fd, p, n);
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return -errno;
        p += some;
        n -= (size_t)some;
    }
    return 0;
}

int file_write_flushed(int fd, const char *text, size_t len) {
    int r = file_write_all(fd, text, len);
    return r == 0 && fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP ? -errno : r;
}

int file_put_locked(int dir, const char *name, const char *text, size_t len) {
    const char *last = path_name(name);
    _cleanup_(freep) char *beside =
        xasprintf("%.*s" FILE_UNFINISHED "%s.%d", (int)(last - name), name, last, (int)getpid());
    (void)unlinkat(dir, beside, 0);
    int fd = openat(dir, beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    (void)!flock(fd, LOCK_EX | LOCK_NB);
    ssize_t n = write(fd, text, len);
    int r = n < 0 ? -errno : (size_t)n < len ? -ENOSPC : 0;
    if (r == 0 && renameat(dir, beside, dir, name) < 0)
        r = -errno;
    if (r == 0)
        return fd;
    (void)unlinkat(dir, beside, 0);
    (void)close(fd);
    return r;
}

int file_in_memory(const char *name, const char *text, size_t len) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    int r = fd < 0 ? -errno : file_write_flushed(fd, text, len);
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    if (r < 0)
        file_close(&fd);
    return r < 0 ? r : fd;
}

/* The name can't be guessed: where others may make files, no link of theirs is there. */
static int replace(const char *path, const char *text, size_t len, uint32_t mode) {
    _cleanup_(freep) char *temp = xasprintf("%s.%016" PRIx64 ".tmp", path, random_u64());
    _cleanup_(file_close) int fd = own_file_make(temp, O_WRONLY | O_EXCL, mode);
    if (fd < 0)
        return fd;
    int r = file_write_flushed(fd, text, len);
    if (r == 0 && rename(temp, path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(temp); /* no partial file may stay */
    return r;
}

/* Renaming over a device would replace it. Does not wait for the reader of a FIFO. */
static int write_into(const char *path, const char *text, size_t len) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int r = fcntl(fd, F_SETFL, 0) < 0 ? -errno : file_write_flushed(fd, text, len);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    return r;
}

int file_write_atomic_as(const char *path, const char *text, size_t len, uint32_t mode) {
    /* A file without a path (a pipe below /dev/fd) gives none here. */
    _cleanup_(freep) char *real = realpath(path, NULL);
    const char *target = real != NULL ? real : path;
    struct stat st;
    if (stat(target, &st) < 0)
        return errno == ENOENT ? replace(target, text, len, mode) : -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return S_ISREG(st.st_mode) ? replace(target, text, len, st.st_mode & 0777)
                               : write_into(target, text, len);
}

int file_write_atomic(const char *path, const char *text, size_t len) {
    mode_t mask = umask(0);
    (void)umask(mask);
    return file_write_atomic_as(path, text, len, 0644 & ~mask);
}

void file_close(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void file_open_standard(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", O_RDONLY); /* the lowest number that is free: fd */
}

/* Whether this folder is world-writable, but only owners may remove their files. In a folder that
 * is not sticky, any user may replace everything: no check would help. */
static bool is_for_all(const struct stat *folder) {
    return (folder->st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
}

static bool is_strange(const struct stat *folder, const struct stat *st) {
    return is_for_all(folder) && st->st_uid != geteuid() && st->st_uid != folder->st_uid;
}

static int refuse(const char *part, const struct stat *st, struct err *err) {
    return err_set(err, -EPERM,
                   "%s belongs to another user (uid %u), in a world-writable directory", part,
                   (unsigned)st->st_uid);
}

/* *ret_len: the bytes of the path up to the last part that exists. */
static int check_parts(const char *path, size_t *ret_len, struct err *err) {
    _cleanup_(freep) char *part = xstrdup(path), *above = xstrdup(path);
    size_t from = strspn(path, "/");
    *ret_len = from;
    while (path[from] != '\0') {
        size_t to = from + strcspn(path + from, "/");
        struct stat folder, st;
        part[to] = above[from] = '\0';
        if (stat(from == 0 ? "." : above, &folder) < 0 || lstat(part, &st) < 0)
            return 0;
        if (is_strange(&folder, &st))
            return refuse(part, &st, err);
        *ret_len = to;
        above[from] = path[from];
        part[to] = path[to];
        from = to + strspn(path + to, "/");
    }
    return 0;
}

int own_path_check(const char *path, struct err *err) {
    size_t len;
    int r = check_parts(path, &len, err);
    _cleanup_(freep) char *there = xstrndup(path, len);
    /* NULL, too, for what has no path, such as a pipe below /dev/fd */
    _cleanup_(freep) char *real = r == 0 && len > 0 ? realpath(there, NULL) : NULL;
    return real == NULL ? r : check_parts(real, &len, err);
}

/* No thread but this one could make a file meanwhile. */
static int open_exactly(const char *path, int flags, uint32_t mode) {
    mode_t was = umask(0);
    int fd = open(path, flags | O_CREAT | O_CLOEXEC, (mode_t)mode);
    int r = fd < 0 ? -errno : fd;
    (void)umask(was);
    return r;
}

int own_file_make(const char *path, int flags, uint32_t mode) {
    return open_exactly(path, flags | O_NOFOLLOW, mode);
}

int own_folder_make(const char *path, uint32_t mode) {
    mode_t was = umask(0);
    int r = mkdir(path, (mode_t)mode) < 0 ? -errno : 0;
    (void)umask(was);
    return r;
}

/* It can have been created between the check and open(). */
static int check_opened(const char *path, int fd, struct err *err) {
    const char *slash = strrchr(path, '/');
    _cleanup_(freep) char *above =
        slash == NULL ? xstrdup(".") : xstrndup(path, (size_t)(slash - path) + 1);
    struct stat folder, st;
    if (stat(above, &folder) < 0 || fstat(fd, &st) < 0)
        return -errno;
    return is_strange(&folder, &st) ? refuse(path, &st, err) : 0;
}

int own_path_open(const char *path, int flags, uint32_t mode, struct err *err) {
    struct stat st;
    int r = own_path_check(path, err);
    if (r < 0)
        return r;
    /* Where it matters, only this user could put another link in place of this one. */
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    int fd = link ? open_exactly(path, flags, mode) : own_file_make(path, flags, mode);
    r = fd < 0 || link ? 0 : check_opened(path, fd, err);
    if (r < 0)
        file_close(&fd);
    return r < 0 ? r : fd;
}

/* ---- folders ---- */

#define NAMES_AT_ONCE 64 /* reading a name takes less time than reading the clock */

void sweep_dir(int fd, uint64_t until_ns, sweep_fn fn, void *arg) {
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        file_close(&fd);
        return;
    }
    const struct dirent *e;
    bool in_time = true;
    for (uint32_t seen = 0; in_time && seen < SWEEP_SEEN_MAX && (e = readdir(dir)) != NULL; seen++)
        if (fn(fd, e->d_name, arg) || seen % NAMES_AT_ONCE == NAMES_AT_ONCE - 1)
            in_time = clock_now_ns() < until_ns;
    (void)closedir(dir);
}
