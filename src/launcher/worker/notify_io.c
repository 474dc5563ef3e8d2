#include "launcher/worker/notify_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"

struct notify {
    struct loop_watch *watch;
    notify_fn *fn;
    void *arg;
    int fd;
    char name[48];
};

static void on_readable(void *arg, int fd, unsigned events);

static int open_socket(struct notify *n) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(n->name);
    memcpy(addr.sun_path, n->name, len);
    addr.sun_path[0] = '\0'; /* abstract: there is no file that could be left behind. unix(7) */
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    if (n->fd < 0 || setsockopt(n->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return bind(n->fd, (const struct sockaddr *)&addr, size) < 0 ? -errno : 0;
}

int notify_new(struct loop *loop, notify_fn *fn, void *arg, struct notify **ret, struct err *err) {
    struct notify *n = xcalloc(1, sizeof *n);
    *n = (struct notify){.fn = fn, .arg = arg, .fd = -1};
    (void)snprintf(n->name, sizeof n->name, "@muster-notify-%016" PRIx64, random_u64());
    int r = open_socket(n);
    if (r == 0)
        n->watch = loop_watch_new(loop, n->fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, n);
    if (r < 0) {
        err_set(err, r, "can't make the workers' notify socket: %s", strerror(-r));
        notify_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

void notify_free(struct notify *n) {
    if (n == NULL)
        return;
    loop_watch_free(n->watch);
    file_close(&n->fd);
    free(n);
}

const char *notify_name(const struct notify *n) { return n->name; }

/* One descriptor; the rest that were passed are closed: the padding has room for a second. */
static void take_passed(const struct cmsghdr *c, int *ret_fd) {
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
        file_close(ret_fd);
        memcpy(ret_fd, (const char *)c + at, sizeof *ret_fd);
    }
}

/* The sender's pid; 0: unknown. *ret_fd: a descriptor that it passed, or -1. */
static pid_t sender(struct msghdr *msg, int *ret_fd) {
    struct ucred who = {0};
    *ret_fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(c), sizeof who);
        else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            take_passed(c, ret_fd);
    }
    return who.pid;
}

/* One message: the callback may free the socket, and others have their turn. */
static void on_readable(void *arg, int fd, unsigned events) {
    struct notify *n = arg;
    char data[NOTIFY_BYTES_MAX];
    union { /* room for one descriptor: the kernel closes others that are passed */
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    ssize_t len = recvmsg(n->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (len < 0)
        return;
    /* its sender lives until this is closed, so that it is known whose it is */
    _cleanup_(file_close) int waits = -1;
    pid_t pid = sender(&msg, &waits);
    if (pid > 0 && (msg.msg_flags & MSG_TRUNC) == 0) {
        struct notify_message message = notify_parse(data, (size_t)len);
        n->fn(n->arg, pid, &message);
    }
}
