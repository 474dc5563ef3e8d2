#include "watchdog/look/socket_io.h"

#include <errno.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"

#define PIECE 16384

/* The next call waits no longer; option: SO_SNDTIMEO or SO_RCVTIMEO. socket(7). It is interrupted
 * when this process was stopped and continues, even without a handler: signal(7) */
static int set_end(int fd, int option, uint64_t deadline_ns) {
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timeval time = {.tv_sec = (time_t)(left / NS_PER_S),
                           .tv_usec = (suseconds_t)(left % NS_PER_S / NS_PER_US)};
    if (time.tv_sec == 0 && time.tv_usec == 0) /* that would be for ever */
        return -ETIMEDOUT;
    return setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) < 0 ? -errno : 0;
}

static int failure(void) { return errno == EAGAIN || errno == EINPROGRESS ? -ETIMEDOUT : -errno; }

int socket_dial(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns, int *ret) {
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r;
    do
        r = set_end(fd, SO_SNDTIMEO, deadline_ns);
    while (r == 0 && connect(fd, to, len) < 0 && (r = failure()) == -EINTR);
    if (r == 0)
        *ret = fd;
    else
        file_close(&fd);
    return r;
}

int socket_send_text(int fd, const char *text, uint64_t deadline_ns) {
    for (size_t left = strlen(text); left > 0;) {
        int r = set_end(fd, SO_SNDTIMEO, deadline_ns);
        ssize_t n = r < 0 ? 0 : send(fd, text, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (r < 0 || n < 0)
            return r < 0 ? r : failure();
        text += n;
        left -= (size_t)n;
    }
    return 0;
}

int socket_receive(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    char piece[PIECE];
    ssize_t n;
    int r;
    do {
        r = set_end(fd, SO_RCVTIMEO, deadline_ns);
        n = r < 0 ? 0 : recv(fd, piece, sizeof piece, 0);
    } while (n < 0 && errno == EINTR);
    if (r < 0 || n < 0)
        return r < 0 ? r : failure();
    if ((size_t)n > max - MIN2(to->len, max))
        return -EMSGSIZE;
    strbuf_add_bytes(to, piece, (size_t)n);
    return n > 0;
}

int socket_receive_all(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    int r = 1;
    while (r == 1)
        r = socket_receive(fd, to, max, deadline_ns);
    return r;
}
