#include "watchdog/look/socket_io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"

#define PIECE 16384

static int ready(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        uint64_t now = clock_now_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        struct timespec left = {.tv_sec = (time_t)((deadline_ns - now) / NS_PER_S),
                                .tv_nsec = (long)((deadline_ns - now) % NS_PER_S)};
        struct pollfd p = {.fd = fd, .events = events};
        int r = ppoll(&p, 1, &left, NULL);
        if (r > 0)
            return 0;
        if (r < 0 && errno != EINTR)
            return -errno;
    }
}

int socket_dial(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns, int *ret) {
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, to, len) == 0 ? 0 : -errno;
    if (r == -EINPROGRESS) {
        int error = 0;
        socklen_t size = sizeof error;
        r = ready(fd, POLLOUT, deadline_ns);
        if (r == 0)
            r = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? -errno : -error;
    }
    if (r == 0)
        *ret = fd;
    else
        file_close(&fd);
    return r;
}

int socket_send_text(int fd, const char *text, uint64_t deadline_ns) {
    for (size_t left = strlen(text); left > 0;) {
        ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
        if (n > 0) {
            text += n;
            left -= (size_t)n;
        } else if (errno == EAGAIN) {
            int r = ready(fd, POLLOUT, deadline_ns);
            if (r < 0)
                return r;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int socket_receive(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    char piece[PIECE];
    for (;;) {
        int r = ready(fd, POLLIN, deadline_ns);
        if (r < 0)
            return r;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n == 0)
            return 0;
        if (n > 0 && (size_t)n > max - MIN2(to->len, max))
            return -EMSGSIZE;
        if (n > 0) {
            strbuf_add_bytes(to, piece, (size_t)n);
            return 1;
        }
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
}

int socket_receive_all(int fd, struct strbuf *to, size_t max, uint64_t deadline_ns) {
    int r = 1;
    while (r == 1)
        r = socket_receive(fd, to, max, deadline_ns);
    return r;
}
