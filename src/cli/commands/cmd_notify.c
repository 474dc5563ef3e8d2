/* "muster notify": reports something about the worker that runs it to its agent. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "cli/help/help.h"
#include "cli/options/commands.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/worker/notify.h"

#define TIMEOUT_NS (5 * NS_PER_S)

static const struct option_def defs[] = {HELP_ROW(), HELP_ALL_ROW};

const struct option_set notify_options = {
    .command = "notify",
    .operands = "VARIABLE=VALUE...",
    .about = "Sends a report of the worker that runs it to muster: its step (MUSTER_STEP=1234), "
             "that it is alive (WATCHDOG=1), how long it may be silent (WATCHDOG_USEC=600000000, "
             "in microseconds), or a safe point for a restart (MUSTER_SAFE_POINT=1). For shell "
             "scripts; other programs can write to the socket in MUSTER_NOTIFY_SOCKET.",
    .example = "MUSTER_STEP=1234 MUSTER_SAFE_POINT=1",
    OPTION_DEFS(defs),
};

/* One line for each argument. */
static int text_of(int argc, char **argv, int first, struct strbuf *ret, struct err *err) {
    if (first >= argc)
        return err_set(err, -EINVAL, "missing argument, for example MUSTER_STEP=1234");
    for (int i = first; i < argc; i++) {
        if (strchr(argv[i], '=') == NULL || strchr(argv[i], '\n') != NULL)
            return err_set(err, -EINVAL, "\"%s\": must be VARIABLE=VALUE, in one line", argv[i]);
        strbuf_printf(ret, "%s\n", argv[i]);
    }
    if (ret->len > NOTIFY_BYTES_MAX)
        return err_set(err, -EINVAL, "%zu bytes are too many for one message; at most %d", ret->len,
                       NOTIFY_BYTES_MAX);
    return 0;
}

/* The address of a name as in NOTIFY_SOCKET; 0: there is none. */
static socklen_t address_of(const char *name, struct sockaddr_un *ret) {
    size_t len = strlen(name);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if ((name[0] != '@' && name[0] != '/') || len < 2 || len >= sizeof ret->sun_path)
        return 0;
    memcpy(ret->sun_path, name, len);
    if (name[0] == '@')
        ret->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
}

/* Sends the text with a descriptor, which the agent closes when it has read the text. */
static int send_with(int socket_fd, const char *text, size_t len, int fd,
                     const struct sockaddr_un *addr, socklen_t size, uint64_t deadline_ns) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (char *)(uintptr_t)text, .iov_len = len};
    struct sockaddr_un to = *addr;
    struct msghdr msg = {.msg_name = &to,
                         .msg_namelen = size,
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    while (sendmsg(socket_fd, &msg, MSG_NOSIGNAL) < 0) { /* for at most SO_SNDTIMEO */
        if (errno == EINTR && clock_now_ns() < deadline_ns)
            continue;
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    }
    return 0;
}

/* No signal is handled here: nothing interrupts it. */
static int await_end(int fd, uint64_t deadline_ns) {
    uint64_t now = clock_now_ns();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int r = poll(&p, 1, now < deadline_ns ? (int)((deadline_ns - now) / NS_PER_MS) + 1 : 0);
    return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

/* `name` is the value of MUSTER_NOTIFY_SOCKET: "@..." or a path. Returns when the agent has read
 * the message, so the sender may end then. */
static int notify_send(const char *name, const char *text, size_t len, struct err *err) {
    const uint64_t deadline_ns = clock_now_ns() + TIMEOUT_NS;
    struct sockaddr_un addr;
    socklen_t size = address_of(name, &addr);
    if (size == 0)
        return err_set(err, -EINVAL, "\"%s\" is not the name of a notify socket", name);
    const struct timeval timeout = {.tv_sec = (time_t)(TIMEOUT_NS / NS_PER_S),
                                    .tv_usec = (suseconds_t)(TIMEOUT_NS % NS_PER_S / NS_PER_US)};
    int ends[2] = {-1, -1};
    _cleanup_(file_close) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || pipe2(ends, O_CLOEXEC) < 0 ||
                    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0
                ? -errno
                : send_with(fd, text, len, ends[1], &addr, size, deadline_ns);
    file_close(&ends[1]);
    r = r == 0 ? await_end(ends[0], deadline_ns) : r;
    file_close(&ends[0]);
    if (r == -ECONNREFUSED || r == -ENOENT)
        return err_set(err, r, "no process listens on %s: has the job ended?", name);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the agent has not read the message within %g s",
                       (double)TIMEOUT_NS / (double)NS_PER_S);
    return r < 0 ? err_set(err, r, "can't send to %s: %s", name, strerror(-r)) : 0;
}

int cmd_notify(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (options_parse(&notify_options, argc, argv, &p, &err) < 0)
        return usage_error("notify", "%s", err.text);
    int status = help_answer(&notify_options, &p);
    if (status >= 0)
        return status;
    if (text_of(argc, argv, p.operand, &text, &err) < 0)
        return usage_error("notify", "%s", err.text);
    const char *name = getenv("MUSTER_NOTIFY_SOCKET");
    if (name == NULL)
        name = getenv("NOTIFY_SOCKET");
    if (name == NULL || name[0] == '\0') {
        log_error("MUSTER_NOTIFY_SOCKET is not set: no muster run has started this");
        return EXIT_JOB_FAILED;
    }
    if (notify_send(name, strbuf_text(&text), text.len, &err) < 0)
        return print_failure(&err);
    return 0;
}
