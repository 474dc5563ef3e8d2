#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "rendezvous/arbiter/dir/arbiter_folder_priv.h"

#define RUN_NAME_MAX 160 /* bytes of an escaped run id that are used unchanged in the name */

uint64_t arbiter_hash(const void *data, size_t len) {
    const uint8_t *p = data;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    return h;
}

int arbiter_folder_failed(const struct arbiter_folder *f, const char *verb, const char *file,
                          struct err *err) {
    int code = errno;
    const char *then = "";
    if (code == ENOSPC || code == EDQUOT)
        then = "; make room there";
    return err_set(err, -code, "cannot %s %s/%s/%s: %s%s", verb, f->path, f->name, file,
                   strerror(code), then);
}

/* A run id can contain anything. A long one is cut, and its hash distinguishes it from others. */
static char *folder_name(const char *run_id) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (const char *p = run_id; *p != '\0'; p++) {
        char c = *p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (plain)
            strbuf_add_char(&s, c);
        else
            strbuf_printf(&s, "%%%02x", (unsigned)(uint8_t)c);
    }
    if (s.len <= RUN_NAME_MAX)
        return xasprintf("muster-%s", strbuf_text(&s));
    return xasprintf("muster-%.*s~%016" PRIx64, RUN_NAME_MAX, strbuf_text(&s),
                     arbiter_hash(run_id, strlen(run_id)));
}

void arbiter_folder_init(struct arbiter_folder *f, const char *path, const char *run_id,
                         bool read_only) {
    *f = (struct arbiter_folder){
        .path = path, .name = folder_name(run_id), .fd = -1, .read_only = read_only};
}

void arbiter_folder_close(struct arbiter_folder *f) {
    file_close(&f->fd);
    f->fd = -1;
}

void arbiter_folder_fini(struct arbiter_folder *f) {
    arbiter_folder_close(f);
    free(f->name);
}

/* --- opening it --- */

/* Finds out who owns the files that we create there: a server can give root's files to the user
 * nobody. */
static int find_squashed(struct arbiter_folder *f, int fd, struct err *err) {
    char file[NAME_LEN];
    (void)snprintf(file, sizeof file, "owner-%016" PRIx64, random_u64());
    _cleanup_(file_close) int probe = -1;
    probe = openat(fd, file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;
    if (probe < 0)
        return arbiter_folder_failed(f, "write", file, err);
    int r = fstat(probe, &st) < 0 ? arbiter_folder_failed(f, "look at", file, err) : 0;
    (void)unlinkat(fd, file, 0);
    if (r == 0) {
        f->squashed = st.st_uid != geteuid();
        f->squashed_uid = st.st_uid;
    }
    return r;
}

bool arbiter_folder_is_ours(const struct arbiter_folder *f, uid_t owner) {
    return owner == geteuid() || (f->squashed && owner == f->squashed_uid);
}

static int check_folder(struct arbiter_folder *f, int fd, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return arbiter_folder_failed(f, "look at", ".", err);
    int r = arbiter_folder_is_ours(f, st.st_uid) ? 0 : find_squashed(f, fd, err);
    if (r < 0)
        return r;
    if (!arbiter_folder_is_ours(f, st.st_uid))
        return err_set(err, -EPERM,
                       "%s/%s belongs to another user (uid %u); use another run id or directory",
                       f->path, f->name, (unsigned)st.st_uid);
    if ((st.st_mode & 0077) != 0)
        return err_set(err, -EPERM,
                       "%s/%s is open to other users (mode %04o); chmod 700 it, or use another "
                       "run id",
                       f->path, f->name, (unsigned)(st.st_mode & 07777));
    return 0;
}

/* The folder's own mode does not protect it if others can rename it. */
static int check_top(const struct arbiter_folder *f, int top, struct err *err) {
    struct stat st;
    if (fstat(top, &st) < 0)
        return err_set(err, -errno, "cannot examine %s: %s", f->path, strerror(errno));
    if (st.st_uid != 0 && !arbiter_folder_is_ours(f, st.st_uid))
        return err_set(err, -EPERM,
                       "%s belongs to another user (uid %u), who could take this job's folder "
                       "away; make a directory of your own and name that",
                       f->path, (unsigned)st.st_uid);
    if ((st.st_mode & 0022) != 0 && (st.st_mode & S_ISVTX) == 0)
        return err_set(err, -EPERM,
                       "other users may write in %s (mode %04o), and could take this job's folder "
                       "away; chmod go-w it, or name a directory of your own in it",
                       f->path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int open_top(const struct arbiter_folder *f, int *ret, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = open(f->path, flags);
    if (fd < 0 && errno == ENOENT && !f->read_only) {
        if (mkdir(f->path, 0700) < 0 && errno != EEXIST)
            return err_set(err, -errno, "cannot make %s: %s%s", f->path, strerror(errno),
                           errno == ENOENT ? "; the directory above it must be there" : "");
        fd = open(f->path, flags);
    }
    if (fd < 0)
        return err_set(err, -errno, "cannot open %s: %s", f->path, strerror(errno));
    *ret = fd;
    return 0;
}

uint64_t arbiter_folder_device(const struct arbiter_folder *f) {
    struct stat st;
    if (f->fd >= 0)
        return fstat(f->fd, &st) == 0 ? (uint64_t)st.st_dev : 0;
    _cleanup_(freep) char *path = xstrdup(f->path);
    while (stat(path, &st) < 0) {
        if (errno != ENOENT)
            return 0;
        size_t len = strlen(path);
        while (len > 0 && path[len - 1] == '/')
            len--;
        while (len > 0 && path[len - 1] != '/')
            len--;
        if (len == 0 && (path[0] == '/' || strcmp(path, ".") == 0))
            return 0;
        if (len == 0) /* "a" to "."; else "a/b" to "a/" */
            path[len++] = '.';
        path[len] = '\0';
    }
    return (uint64_t)st.st_dev;
}

int arbiter_folder_open(struct arbiter_folder *f, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_(file_close) int top = -1, fd = -1;
    int r = open_top(f, &top, err);
    if (r < 0)
        return r;
    fd = openat(top, f->name, flags);
    if (fd < 0 && errno == ENOENT && f->read_only)
        return ARBITER_FOLDER_E_NONE;
    if (fd < 0 && errno == ENOENT) {
        /* The client may have cached that the name is missing, although the folder exists; creating
         * it asks the server. */
        if (mkdirat(top, f->name, 0700) == 0)
            (void)fsync(top); /* the first claim shows whether the disk works */
        else if (errno != EEXIST)
            return err_set(err, -errno, "cannot make %s/%s: %s", f->path, f->name, strerror(errno));
        fd = openat(top, f->name, flags);
    }
    if (fd < 0)
        return err_set(err, -errno, "cannot open %s/%s: %s", f->path, f->name, strerror(errno));
    r = check_folder(f, fd, err);
    if (r == 0)
        r = check_top(f, top, err);
    if (r < 0)
        return r;
    f->fd = fd;
    fd = -1;
    return 0;
}
