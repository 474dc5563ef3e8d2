#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "DIGITS1\n"
#define EPOCH_MAX 999999u

/* Numbers are in the machine's own byte order; another machine's file fails its checksum. */
struct file {
    char magic[8];
    uint32_t epoch, n_params;
    struct mlp mlp;
    uint64_t checksum;
};

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t checksum_of(const struct file *f) {
    const unsigned char *p = (const unsigned char *)f;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < offsetof(struct file, checksum); i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static int complain(const char *what, const char *path) {
    fprintf(stderr, "checkpoint: cannot %s %s: %s\n", what, path, strerror(errno));
    return -1;
}

static int path_of(char *ret, const char *dir, const char *prefix, unsigned epoch,
                   const char *suffix) {
    int n = snprintf(ret, PATH_MAX, "%s/%sepoch-%06u.ckpt%s", dir, prefix, epoch, suffix);
    if (n > 0 && n < PATH_MAX)
        return 0;
    errno = ENAMETOOLONG;
    return complain("write in", dir);
}

static int write_file(const char *path, const struct file *f) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return complain("write", path);
    const char *p = (const char *)f;
    size_t left = sizeof(*f);
    while (left > 0) {
        ssize_t n = write(fd, p, left);
        if (n < 0 && errno != EINTR)
            break;
        p += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    int bad = left > 0 || fsync(fd) < 0;
    if (bad)
        complain("write", path);
    close(fd);
    return bad ? -1 : 0;
}

/* The new name itself must be on the disk before an older checkpoint is removed. */
static int flush_folder(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return complain("open", dir);
    int bad = fsync(fd) < 0;
    if (bad)
        complain("flush", dir);
    close(fd);
    return bad ? -1 : 0;
}

int checkpoint_save(const char *dir, unsigned epoch, const struct mlp *m) {
    char path[PATH_MAX], temporary[PATH_MAX];
    struct file *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return complain("write in", dir);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
        free(f);
        return complain("make", dir);
    }
    memcpy(f->magic, MAGIC, sizeof(f->magic));
    f->epoch = epoch;
    f->n_params = MLP_PARAMS;
    f->mlp = *m;
    f->checksum = checksum_of(f);
    int r = path_of(path, dir, "", epoch, "") < 0 || path_of(temporary, dir, ".", epoch, ".tmp") < 0
                ? -1
                : write_file(temporary, f);
    free(f);
    if (r == 0 && rename(temporary, path) < 0)
        r = complain("rename", temporary);
    if (r == 0)
        r = flush_folder(dir);
    if (r == 0 && epoch > CHECKPOINT_KEEP &&
        path_of(path, dir, "", epoch - CHECKPOINT_KEEP, "") == 0)
        (void)unlink(path); /* it can be gone already */
    return r;
}

/* Returns NULL if the file is valid, else what is wrong with it. */
static const char *read_file(const char *path, unsigned epoch, struct file *f) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return strerror(errno);
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, (char *)f + len, sizeof(*f) - len)) > 0)
        len += (size_t)n;
    char more;
    int longer = len == sizeof(*f) && read(fd, &more, 1) > 0;
    close(fd);
    if (n < 0)
        return strerror(errno);
    if (len < sizeof(*f) || longer)
        return longer ? "it is too long" : "it is cut short";
    if (memcmp(f->magic, MAGIC, sizeof(f->magic)) != 0)
        return "it is not a checkpoint of this program";
    if (f->checksum != checksum_of(f))
        return "its checksum does not match its contents";
    if (f->n_params != MLP_PARAMS || f->epoch != epoch)
        return "its model or epoch differs from its header";
    return NULL;
}

/* The newest epoch below `below` that has a file; 0: none; -1: the folder cannot be read. */
static int newest_below(const char *dir, unsigned below) {
    DIR *d = opendir(dir);
    if (d == NULL)
        return errno == ENOENT ? 0 : complain("read", dir);
    unsigned best = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        unsigned epoch = 0;
        int end = 0;
        if (sscanf(e->d_name, "epoch-%6u.ckpt%n", &epoch, &end) == 1 && end > 0 &&
            e->d_name[end] == 0 && epoch < below && epoch > best)
            best = epoch;
    }
    closedir(d);
    return (int)best;
}

int checkpoint_load_newest(const char *dir, struct mlp *m) {
    struct file *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return complain("read from", dir);
    int epoch = (int)EPOCH_MAX + 1;
    while ((epoch = newest_below(dir, (unsigned)epoch)) > 0) {
        char path[PATH_MAX];
        if (path_of(path, dir, "", (unsigned)epoch, "") < 0) {
            epoch = -1;
            break;
        }
        const char *fault = read_file(path, (unsigned)epoch, f);
        if (fault == NULL) {
            *m = f->mlp;
            break;
        }
        fprintf(stderr, "checkpoint: %s is refused: %s; trying the one before\n", path, fault);
    }
    free(f);
    return epoch;
}
