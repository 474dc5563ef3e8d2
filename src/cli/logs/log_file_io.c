#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/logs/log_tree_io.h"
#include "io/clock.h"
#include "io/file.h"

/* How much all files together read ahead, and the bounds for one. */
#define AHEAD_BYTES ((size_t)64 * 1024 * 1024)
#define READ_MIN ((size_t)4 * 1024)
#define READ_MAX ((size_t)256 * 1024)
#define BACK_BYTES ((size_t)64 * 1024)

/* Anything can be in a folder. A device could be read for ever. */
static int open_file(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        file_close(&fd);
    return fd;
}

bool log_file_read(struct log_file *f, size_t n_files) {
    size_t size = AHEAD_BYTES / MAX2(n_files, (size_t)1);
    size = MIN2(MAX2(size, READ_MIN), READ_MAX);
    int fd = open_file(f->path);
    struct stat st;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size < f->offset) { /* it was emptied or replaced */
        log_source_fini(&f->source);
        f->offset = f->times_at = 0;
        f->n_stamps = f->used_stamps = 0;
    }
    struct strbuf *text = &f->source.text;
    ssize_t n = pread(fd, strbuf_room(text, size), size, (off_t)f->offset);
    file_close(&fd);
    if (n <= 0)
        return false;
    text->len += (size_t)n;
    text->data[text->len] = '\0';
    f->offset += (uint64_t)n;
    f->read_ns = clock_now_ns();
    return true;
}

bool log_file_read_stamp(struct log_file *f, struct log_stamp *ret) {
    if (f->used_stamps == f->n_stamps) {
        uint8_t bytes[ARRAY_SIZE(f->stamps) * LOG_STAMP_BYTES];
        int fd = open_file(f->times_path);
        ssize_t n = fd < 0 ? 0 : pread(fd, bytes, sizeof bytes, (off_t)f->times_at);
        file_close(&fd);
        f->n_stamps = n > 0 ? (size_t)n / LOG_STAMP_BYTES : 0;
        f->used_stamps = 0;
        f->times_at += f->n_stamps * LOG_STAMP_BYTES;
        for (size_t i = 0; i < f->n_stamps; i++)
            f->stamps[i] = log_stamp_decode(bytes + i * LOG_STAMP_BYTES);
    }
    if (f->used_stamps == f->n_stamps)
        return false;
    *ret = f->stamps[f->used_stamps++];
    return true;
}

/* Where the last `lines` lines begin. */
static uint64_t find_lines(int fd, uint64_t size, uint64_t lines, uint64_t *ret_n) {
    _cleanup_(freep) char *block = xmalloc(BACK_BYTES);
    uint64_t end = size, found = 0; /* newlines, without the one at the end */
    *ret_n = 0;
    while (end > 0) {
        uint64_t from = end > BACK_BYTES ? end - BACK_BYTES : 0;
        ssize_t got = pread(fd, block, (size_t)(end - from), (off_t)from);
        if (got <= 0)
            break;
        for (size_t left = (size_t)got; left > 0;) {
            const char *nl = memrchr(block, '\n', left);
            if (nl == NULL)
                break;
            left = (size_t)(nl - block);
            if (from + left + 1 == size)
                continue;
            if (++found == lines) {
                *ret_n = lines;
                return from + left + 1;
            }
        }
        end = from;
    }
    *ret_n = size > 0 ? found + 1 : 0;
    return 0;
}

static bool read_stamp_at(int fd, uint64_t at, struct log_stamp *ret) {
    uint8_t bytes[LOG_STAMP_BYTES];
    if (pread(fd, bytes, sizeof bytes, (off_t)at) != (ssize_t)sizeof bytes)
        return false;
    *ret = log_stamp_decode(bytes);
    return true;
}

/* The last stamp for a byte up to the offset: stamps are sorted by their offsets. */
static uint64_t find_stamp(const char *path, uint64_t offset) {
    int fd = open_file(path);
    struct stat st;
    uint64_t low = 0, high = 0;
    if (fd >= 0 && fstat(fd, &st) == 0)
        high = (uint64_t)st.st_size / LOG_STAMP_BYTES;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        struct log_stamp stamp;
        if (read_stamp_at(fd, middle * LOG_STAMP_BYTES, &stamp) && stamp.at <= offset)
            low = middle;
        else
            high = middle;
    }
    file_close(&fd);
    return low * LOG_STAMP_BYTES;
}

uint64_t log_file_seek_end(struct log_file *f, uint64_t lines) {
    uint64_t n = 0;
    int fd = open_file(f->path);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        f->offset =
            lines == 0 ? (uint64_t)st.st_size : find_lines(fd, (uint64_t)st.st_size, lines, &n);
        f->source.at = f->offset;
        f->times_at = find_stamp(f->times_path, f->offset);
    }
    file_close(&fd);
    return n;
}
