#include "io/own_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"

/* Whether this folder is one in which everybody may make names, but only its owner may remove those
 * of others. In one that is not sticky, everybody may replace everything: no check would help. */
static bool is_for_all(const struct stat *folder) {
    return (folder->st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
}

static bool is_strange(const struct stat *folder, const struct stat *st) {
    return is_for_all(folder) && st->st_uid != geteuid() && st->st_uid != folder->st_uid;
}

static int refuse(const char *part, const struct stat *st, struct err *err) {
    return err_set(err, -EPERM,
                   "%s belongs to another user (uid %u), in a folder where everybody may make "
                   "files",
                   part, (unsigned)st->st_uid);
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

/* Somebody can have made it between the check and open(). */
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
