#include "launcher/report/termination_io.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/utf8.h"
#include "io/file.h"

#define TERMINATION_FILE "/dev/termination-log"

char *termination_line(const char *text) {
    char *line = xmalloc(TERMINATION_BYTES_MAX + 1); /* with a NUL behind it */
    utf8_copy(line, TERMINATION_BYTES_MAX, text);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    utf8_clean(line, false);
    size_t len = strlen(line);
    memcpy(line + len, "\n", 2);
    return line;
}

void termination_write(char *const *envp, const char *text) {
    const char *service = env_get(envp, "KUBERNETES_SERVICE_HOST");
    struct stat st;
    if (service == NULL || service[0] == '\0')
        return;
    int fd = open(TERMINATION_FILE,
                  O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0) {
        _cleanup_(freep) char *line = termination_line(text);
        (void)!write(fd, line, strlen(line)); /* the same is in the container's log */
    }
    file_close(&fd);
}
