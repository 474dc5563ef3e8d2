#include "launcher/pmi/pmi1_io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "launcher/pmi/pmi1.h"

/* A number that is not the server's socket has leaked. */
static int find_fd(char *const *envp) {
    const char *text = env_get(envp, "PMI_FD");
    uint32_t fd;
    int type;
    socklen_t len = sizeof type;
    const bool is_socket = text != NULL && parse_u32(text, &fd) == 0 && fd <= INT32_MAX &&
                           getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
                           type == SOCK_STREAM;
    return is_socket ? (int)fd : -ENOENT;
}

/* The descriptor stays as it is for other processes that have it: it may block. */
static int wait_for(int fd, short events, uint64_t until_ns) {
    const uint64_t now = clock_now_ns();
    struct pollfd p = {.fd = fd, .events = events};
    if (now >= until_ns)
        return -ETIMEDOUT;
    const int r = poll(&p, 1, (int)((until_ns - now) / NS_PER_MS) + 1);
    return r < 0 && errno != EINTR ? -errno : 0;
}

/* Sends all of `out` and empties it. */
static int send_lines(int fd, struct strbuf *out, uint64_t until_ns) {
    int r = 0;
    for (size_t sent = 0; sent < out->len && r == 0;) {
        const ssize_t n =
            send(fd, strbuf_text(out) + sent, out->len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN || errno == EINTR)
            r = wait_for(fd, POLLOUT, until_ns);
        else
            r = -errno;
    }
    strbuf_clear(out);
    return r;
}

/* -ECONNRESET: the server has closed the connection. */
static int receive(int fd, struct pmi1 *pmi, struct strbuf *out, uint64_t until_ns,
                   struct err *err) {
    char bytes[4096];
    int r = wait_for(fd, POLLIN, until_ns);
    if (r < 0)
        return r;
    const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    r = n == 0 ? -ECONNRESET : pmi1_receive(pmi, bytes, (size_t)n, out, err);
    explicit_bzero(bytes, sizeof bytes);
    return r;
}

static int converse(int fd, struct pmi1 *pmi, struct pmi_tasks *tasks, uint64_t until_ns,
                    struct err *err) {
    _cleanup_(strbuf_forget) struct strbuf out = {.is_secret = true};
    pmi1_begin(pmi, tasks, &out);
    int r = send_lines(fd, &out, until_ns);
    while (r == 0 && pmi->state != PMI1_DONE) {
        r = receive(fd, pmi, &out, until_ns, err);
        if (r == 0)
            r = send_lines(fd, &out, until_ns);
    }
    return r;
}

static int explain(const struct pmi1 *pmi, int r, const char *title, uint64_t timeout_ns,
                   struct err *err) {
    const double seconds = (double)timeout_ns / (double)NS_PER_S;
    if (r == -ETIMEDOUT && pmi->state == PMI1_BARRIER)
        return err_set(err, r,
                       "not all of the %u tasks of %s started muster run within %.0f s; start it "
                       "in each task, or give --standalone",
                       pmi->tasks->n, title, seconds);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the PMI server of %s (PMI_FD) did not answer within %.0f s", title,
                       seconds);
    if (r == -EPROTO)
        err_prefix(err, "the PMI server of %s (PMI_FD)", title);
    else
        (void)err_set(err, r,
                      "the PMI server of %s (PMI_FD) closed the connection: another program of "
                      "this task has used it, or %s has ended; one task can run one muster run",
                      title, title);
    return r;
}

int pmi1_read(char *const *envp, const char *title, uint64_t timeout_ns, struct pmi_tasks *tasks,
              struct err *err) {
    struct pmi1 pmi;
    const int fd = find_fd(envp);
    if (fd < 0)
        return fd;
    const int r = converse(fd, &pmi, tasks, clock_now_ns() + timeout_ns, err);
    (void)close(fd);
    explicit_bzero(pmi.line, sizeof pmi.line);
    return r < 0 ? explain(&pmi, r, title, timeout_ns, err) : 0;
}
