#include "topology/discover/sysfs/sysfs_io.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "io/file.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define LINKS_MAX 40 /* symlinks in one path: the kernel's own limit */
#define DRM_MAX 256  /* the most entries of /sys/class/drm that the quick check reads */

struct sysfs sysfs_at(const char *root) {
    struct sysfs s = {"/dev/null"}; /* there is nothing below it */
    size_t len = root == NULL ? 0 : strlen(root);
    while (len > 0 && root[len - 1] == '/')
        len--;
    if (len < sizeof s.root)
        (void)snprintf(s.root, sizeof s.root, "%.*s", (int)len, len > 0 ? root : "");
    return s;
}

/* A path that was cut does not exist. */
#define PATH_OF(path, fmt)                                      \
    do {                                                        \
        va_list ap_;                                            \
        va_start(ap_, fmt);                                     \
        int n_ = vsnprintf((path), SYSFS_PATH_MAX, (fmt), ap_); \
        va_end(ap_);                                            \
        if (n_ < 0 || n_ >= SYSFS_PATH_MAX)                     \
            (path)[0] = '\0';                                   \
    } while (0)

void sysfs_path(char ret[SYSFS_PATH_MAX], const char *fmt, ...) { PATH_OF(ret, fmt); }

static _must_use_ int full_path(const struct sysfs *s, const char *path, char ret[SYSFS_PATH_MAX]) {
    if (path[0] != '/')
        return -ENOENT;
    int n = snprintf(ret, SYSFS_PATH_MAX, "%s%s", s->root, path);
    return n < 0 || n >= SYSFS_PATH_MAX ? -ENAMETOOLONG : 0;
}

static void cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
}

/* Adds one component to `done`. If it is a symlink, its target is put in front of `todo`
 * instead. */
static _must_use_ int step(const struct sysfs *s, const char *part, char done[SYSFS_PATH_MAX],
                           char todo[SYSFS_PATH_MAX], unsigned *links) {
    char full[SYSFS_PATH_MAX], target[SYSFS_PATH_MAX], rest[SYSFS_PATH_MAX];
    size_t len = strlen(done);
    int n = snprintf(done + len, SYSFS_PATH_MAX - len, "/%s", part);
    if (n < 0 || (size_t)n >= SYSFS_PATH_MAX - len)
        return -ENAMETOOLONG;
    int r = full_path(s, done, full);
    if (r < 0)
        return r;
    ssize_t got = readlink(full, target, sizeof target - 1);
    if (got < 0)
        return errno == EINVAL ? 0 : -errno; /* EINVAL: it is not a symlink */
    if ((size_t)got == sizeof target - 1)
        return -ENAMETOOLONG;
    target[got] = '\0';
    if (++*links > LINKS_MAX)
        return -ELOOP;
    if (target[0] == '/')
        done[0] = '\0';
    else
        cut_last(done);
    memcpy(rest, todo, strlen(todo) + 1);
    n = snprintf(todo, SYSFS_PATH_MAX, "%s/%s", target, rest);
    return n < 0 || n >= SYSFS_PATH_MAX ? -ENAMETOOLONG : 0;
}

int sysfs_resolve(const struct sysfs *s, const char *path, char ret[SYSFS_PATH_MAX]) {
    char todo[SYSFS_PATH_MAX], done[SYSFS_PATH_MAX] = "", part[SYSFS_PATH_MAX];
    unsigned links = 0;
    if (path[0] != '/' || strlen(path) >= sizeof todo)
        return -ENOENT;
    memcpy(todo, path, strlen(path) + 1);
    for (;;) {
        size_t skip = strspn(todo, "/"), len = strcspn(todo + skip, "/");
        if (len == 0)
            break;
        memcpy(part, todo + skip, len);
        part[len] = '\0';
        memmove(todo, todo + skip + len, strlen(todo + skip + len) + 1);
        if (strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            cut_last(done); /* "" stays "": the path can't leave the root */
            continue;
        }
        int r = step(s, part, done, todo, &links);
        if (r < 0)
            return r;
    }
    memcpy(ret, done[0] == '\0' ? "/" : done, MAX2(strlen(done), (size_t)1) + 1);
    return 0;
}

/* The path to open: for this machine unchanged, for a tree with all symlinks resolved here, so that
 * none leads out of the tree. */
static _must_use_ int path_to_open(const struct sysfs *s, const char *path,
                                   char ret[SYSFS_PATH_MAX]) {
    if (s->root[0] == '\0')
        return full_path(s, path, ret);
    char resolved[SYSFS_PATH_MAX];
    int r = sysfs_resolve(s, path, resolved);
    return r < 0 ? r : full_path(s, resolved, ret);
}

bool sysfs_exists(const struct sysfs *s, const char *path, ...) {
    char at[SYSFS_PATH_MAX], full[SYSFS_PATH_MAX];
    PATH_OF(at, path);
    return path_to_open(s, at, full) == 0 && access(full, F_OK) == 0;
}

/* In a tree, a pipe or a device could hang or do harm; the kernel's own files are plain files. */
static _must_use_ int read_plain(const char *full, char *text, size_t size, size_t *ret_len) {
    struct stat st;
    if (stat(full, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    _cleanup_(file_close) int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    ssize_t len = file_read_all(fd, text, size);
    if (len < 0)
        return (int)len;
    *ret_len = (size_t)len;
    return 0;
}

/* Whether it is well-formed UTF-8 without control characters, except blanks and line ends. */
static bool is_text(const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = utf8_char(text + i);
        if (n == 0 || (utf8_is_control(text + i) && strchr("\t\r\n", text[i]) == NULL))
            return false;
        i += n;
    }
    return true;
}

static _must_use_ int read_at(const struct sysfs *s, char *ret, size_t size, const char *path) {
    char full[SYSFS_PATH_MAX], text[SYSFS_TEXT_MAX + 1];
    size_t len = 0;
    int r = path_to_open(s, path, full);
    if (r == 0)
        r = read_plain(full, text, sizeof text, &len);
    if (r < 0)
        return r;
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL && text[len - 1] != '\0')
        len--;
    if (len == 0)
        return -ENODATA;
    if (len >= size || len > SYSFS_TEXT_MAX)
        return -EINVAL;
    text[len] = '\0';
    if (!is_text(text, len))
        return -EINVAL;
    memcpy(ret, text, len + 1);
    return 0;
}

int sysfs_read(const struct sysfs *s, char *ret, size_t size, const char *path, ...) {
    char at[SYSFS_PATH_MAX];
    PATH_OF(at, path);
    return read_at(s, ret, size, at);
}

int sysfs_head(const struct sysfs *s, char *ret, size_t size, const char *path) {
    char full[SYSFS_PATH_MAX];
    size_t len = 0;
    int r = path_to_open(s, path, full);
    if (r == 0)
        r = read_plain(full, ret, size - 1, &len);
    if (r == 0)
        ret[len] = '\0';
    return r;
}

static _must_use_ int read_number(const struct sysfs *s, const char *path, int64_t *ret) {
    char text[32], *end;
    int r = read_at(s, text, sizeof text, path);
    if (r < 0)
        return r;
    const char *digits = text + (text[0] == '-' ? 1 : 0);
    if (!isxdigit((unsigned char)digits[0]))
        return -EINVAL;
    errno = 0;
    int64_t v = strtoll(text, &end, strncmp(digits, "0x", 2) == 0 ? 16 : 10);
    if (errno != 0 || *end != '\0')
        return errno != 0 ? -errno : -EINVAL;
    *ret = v;
    return 0;
}

int sysfs_number(const struct sysfs *s, int64_t *ret, const char *path, ...) {
    char at[SYSFS_PATH_MAX];
    PATH_OF(at, path);
    return read_number(s, at, ret);
}

uint32_t sysfs_u32(const struct sysfs *s, const char *path, ...) {
    char at[SYSFS_PATH_MAX];
    int64_t v;
    PATH_OF(at, path);
    return read_number(s, at, &v) < 0 || v < 0 || v > UINT32_MAX ? 0 : (uint32_t)v;
}

/* The target need not exist: a tree often has the link to a driver, but not the driver. */
void sysfs_link_name(const struct sysfs *s, char ret[TOPO_NAME_MAX], const char *path, ...) {
    char at[SYSFS_PATH_MAX], dir[SYSFS_PATH_MAX], link[SYSFS_PATH_MAX], target[SYSFS_PATH_MAX];
    PATH_OF(at, path);
    ret[0] = '\0';
    char *slash = strrchr(at, '/');
    if (slash == NULL)
        return;
    *slash = '\0';
    if (sysfs_resolve(s, at, dir) < 0)
        return;
    sysfs_path(link, "%s%s/%s", s->root, dir, slash + 1);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *name = path_name(target);
    if (strlen(name) < TOPO_NAME_MAX && is_text(name, strlen(name)))
        (void)snprintf(ret, TOPO_NAME_MAX, "%s", name);
}

static int compare_names(const void *a, const void *b) {
    int c = natural_compare(a, b);
    return c != 0 ? c : strcmp(a, b);
}

int sysfs_list(const struct sysfs *s, struct sysfs_names *ret, const char *path, ...) {
    char at[SYSFS_PATH_MAX], full[SYSFS_PATH_MAX];
    PATH_OF(at, path);
    int r = path_to_open(s, at, full);
    if (r < 0)
        return r;
    DIR *dir = opendir(full);
    if (dir == NULL)
        return -errno;
    struct sysfs_names n = {0};
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (strlen(e->d_name) >= TOPO_NAME_MAX || strpbrk(e->d_name, "\t\r\n") != NULL ||
            !is_text(e->d_name, strlen(e->d_name))) {
            n.n_odd++;
            continue;
        }
        if (n.n == SYSFS_NAMES_MAX) {
            n.cut = true;
            break;
        }
        n.names = xgrow(n.names, n.n, sizeof *n.names);
        (void)snprintf(n.names[n.n++], TOPO_NAME_MAX, "%s", e->d_name);
    }
    (void)closedir(dir); /* it was only read */
    if (n.n > 1)
        qsort(n.names, n.n, sizeof *n.names, compare_names);
    *ret = n;
    return 0;
}

void sysfs_names_warn(const struct sysfs_names *n, const char *path, struct topology *t) {
    if (n->cut)
        topology_warn(t, "%s has more than %d entries: the rest is left out", path,
                      SYSFS_NAMES_MAX);
    if (n->n_odd > 0)
        topology_warn(t, "%s: entries with names that are too long, or no text, are not read: %u",
                      path, n->n_odd);
}

void sysfs_names_fini(struct sysfs_names *n) {
    free(n->names);
    *n = (struct sysfs_names){0};
}

static bool folder_has_entries(const struct sysfs *s, const char *path) {
    char full[SYSFS_PATH_MAX];
    DIR *dir = path_to_open(s, path, full) < 0 ? NULL : opendir(full);
    if (dir == NULL)
        return false;
    bool any = false;
    for (struct dirent *e = readdir(dir); e != NULL && !any; e = readdir(dir))
        any = e->d_name[0] != '.';
    (void)closedir(dir);
    return any;
}

static bool drm_has_gpu(const struct sysfs *s) {
    static const char *const drivers[] = {"amdgpu", "i915", "xe", "nvidia"};
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    if (sysfs_list(s, &names, "/sys/class/drm") < 0)
        return false;
    for (uint32_t i = 0; i < MIN2(names.n, (uint32_t)DRM_MAX); i++) {
        if (strncmp(names.names[i], "card", 4) != 0 || strchr(names.names[i], '-') != NULL)
            continue; /* card0-DP-1 is a connector for a screen */
        char driver[TOPO_NAME_MAX];
        sysfs_link_name(s, driver, "/sys/class/drm/%s/device/driver", names.names[i]);
        if (text_is_any(driver, drivers, ARRAY_SIZE(drivers)))
            return true;
    }
    return false;
}

bool sysfs_has_gpus(const char *root) {
    struct sysfs s = sysfs_at(root);
    return folder_has_entries(&s, "/proc/driver/nvidia/gpus") || sysfs_exists(&s, "/dev/nvidia0") ||
           sysfs_exists(&s, "/dev/kfd") || drm_has_gpu(&s);
}
