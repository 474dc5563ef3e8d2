#include "launcher/output/spool_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/file.h"

void spool_init(struct spool *s, uint64_t size) { *s = (struct spool){.fd = -1, .size = size}; }

void spool_fini(struct spool *s) { file_close(&s->fd); }

bool spool_has_room(const struct spool *s, size_t len) {
    return s->error == 0 && spool_pending(s) + len <= s->size;
}

static int make_file(void) {
    const char *tmp = getenv("TMPDIR");
    const char *dir = tmp != NULL && tmp[0] == '/' ? tmp : "/tmp";
    int fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    /* some file systems have no O_TMPFILE: open(2) */
    _cleanup_(freep) char *path = xasprintf("%s/muster-output-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)unlink(path);
    return fd;
}

/* Writes at a position of the stream; the file is a ring. */
static int write_at(const struct spool *s, const char *data, size_t len, uint64_t at) {
    while (len > 0) {
        uint64_t from = at % s->size;
        ssize_t n = pwrite(s->fd, data, MIN2((uint64_t)len, s->size - from), (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENOSPC;
        data += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

int spool_add(struct spool *s, const void *data, size_t len) {
    if (!spool_has_room(s, len))
        return s->error != 0 ? -s->error : -ENOBUFS;
    if (s->fd < 0)
        s->fd = make_file();
    int r = s->fd < 0 ? s->fd : write_at(s, data, len, s->end);
    if (r < 0)
        s->error = -r;
    else
        s->end += len;
    return r;
}

/* Gives the space back. If that fails, it is used again later. */
static void empty(struct spool *s) {
    s->begin = s->end = 0;
    if (s->fd >= 0)
        (void)!ftruncate(s->fd, 0);
}

ssize_t spool_take(struct spool *s, void *data, size_t len) {
    uint64_t pending = spool_pending(s), from = s->size > 0 ? s->begin % s->size : 0;
    if (pending == 0)
        return 0;
    size_t most = (size_t)MIN2(MIN2((uint64_t)len, pending), s->size - from);
    ssize_t n;
    do
        n = pread(s->fd, data, most, (off_t)from);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        int r = n < 0 ? -errno : -EIO;
        empty(s);
        s->error = -r;
        return r;
    }
    s->begin += (uint64_t)n;
    if (s->begin == s->end)
        empty(s);
    return n;
}
