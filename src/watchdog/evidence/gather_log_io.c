#include "watchdog/evidence/gather_log_io.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void gather_log_tail(const char *path, struct strbuf *ret) {
    char buf[GATHER_LOG_BYTES];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    ssize_t n = -1;
    bool whole = true;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        whole = st.st_size <= (off_t)sizeof buf;
        n = pread(fd, buf, sizeof buf, whole ? 0 : st.st_size - (off_t)sizeof buf);
    }
    (void)close(fd);
    if (n <= 0)
        return;
    /* Not the end of a line whose beginning is not there. */
    const char *end = buf + n, *from = whole ? buf : memchr(buf, '\n', (size_t)n);
    if (!whole)
        from = from == NULL || from + 1 == end ? buf : from + 1;
    const char *at = end[-1] == '\n' ? end - 1 : end;
    for (unsigned lines = 0; at > from; at--)
        if (at[-1] == '\n' && ++lines == GATHER_LOG_LINES)
            break;
    strbuf_add_bytes(ret, at, (size_t)(end - at));
    if (end[-1] != '\n')
        strbuf_add_char(ret, '\n');
}
