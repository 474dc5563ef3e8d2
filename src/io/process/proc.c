#include "io/process/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct dirent64_head { /* getdents64(2) */
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

/* 0 when it is not a number. */
static int number_of(const char *name) {
    int n = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        n = n * 10 + (*name - '0');
    return *name == '\0' ? n : 0;
}

int proc_each_number(const char *path, proc_number_fn *fn, void *arg) {
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    _Alignas(struct dirent64_head) char buf[2048];
    long n;
    while ((n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64_head *d = (const void *)(buf + at);
            int number = number_of(d->name);
            if (number > 0)
                fn(arg, number);
            at += d->reclen;
        }
    int r = n < 0 ? -errno : 0;
    (void)close(dir);
    return r;
}
