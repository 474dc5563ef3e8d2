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
    struct loop *loop;
    struct loop_watch *watch;
    notify_fn *fn;
    void *arg;
    int fd;
    bool busy, doomed; /* freed inside its own callback */
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
    *n = (struct notify){.loop = loop, .fn = fn, .arg = arg, .fd = -1};
    (void)snprintf(n->name, sizeof n->name, "@muster-notify-%016" PRIx64, random_u64());
    int r = open_socket(n);
    if (r == 0)
        r = loop_watch_new(loop, n->fd, LOOP_READ, LOOP_PRIO_CHILD, on_readable, n, &n->watch);
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
    n->doomed = true;
    if (n->busy)
        return;
    loop_watch_free(n->watch);
    file_close(&n->fd);
    free(n);
}

const char *notify_name(const struct notify *n) { return n->name; }

/* The sender's pid; 0: unknown. */
static pid_t sender(struct msghdr *msg) {
    struct ucred who = {0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(c), sizeof who);
    return who.pid;
}

/* False if there are no more messages. */
static bool take_one(struct notify *n) {
    char data[NOTIFY_BYTES_MAX];
    union { /* room only for the credentials: the kernel closes descriptors that are passed */
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    ssize_t len = recvmsg(n->fd, &msg, MSG_DONTWAIT);
    if (len < 0)
        return errno == EINTR;
    pid_t pid = sender(&msg);
    if (pid <= 0 || (msg.msg_flags & MSG_TRUNC) != 0)
        return true;
    struct notify_message message = notify_parse(data, (size_t)len);
    n->fn(n->arg, pid, &message);
    return true;
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct notify *n = arg;
    (void)fd;
    (void)events;
    n->busy = true;
    for (unsigned i = 0; i < NOTIFY_TURN_MAX && !n->doomed && take_one(n); i++)
        ;
    n->busy = false;
    if (n->doomed)
        notify_free(n);
}
