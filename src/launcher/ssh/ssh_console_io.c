#include "launcher/ssh/ssh_console_io.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/strbuf.h"

struct ssh_console {
    int fd;
    struct ssh_console_ops ops;
    void *arg;
    struct loop *loop;
    struct loop_watch *watch; /* NULL: a file, which never has to be waited for */
    struct strbuf queue;
    size_t done;            /* bytes at its beginning that are written */
    uint64_t written, seen; /* bytes in all; at the last look whether it is stuck */
    bool gone;
};

static void drop(struct ssh_console *c) {
    c->done = 0;
    strbuf_clear(&c->queue);
}

/* One write of as much as a pipe takes without blocking when poll(2) says that it is writable
 * (pipe(7): PIPE_BUF). False: it would block. */
static bool write_some(struct ssh_console *c) {
    size_t left = c->queue.len - c->done;
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    if (c->watch != NULL && poll(&p, 1, 0) <= 0)
        return false;
    ssize_t n = write(c->fd, strbuf_text(&c->queue) + c->done,
                      c->watch != NULL ? MIN2(left, (size_t)PIPE_BUF) : left);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    if (n < 0) {
        c->gone = true;
        drop(c);
    } else {
        c->done += (size_t)n;
        c->written += (size_t)n;
    }
    return true;
}

void ssh_console_flush(struct ssh_console *c) {
    bool was_full = ssh_console_is_full(c), was_empty = ssh_console_is_empty(c);
    while (!ssh_console_is_empty(c) && write_some(c) && !loop_slice_is_over(c->loop)) {
    }
    if (ssh_console_is_empty(c))
        drop(c);
    if (c->watch != NULL)
        loop_watch_set(c->watch, ssh_console_is_empty(c) ? 0 : LOOP_WRITE);
    if (was_full && !ssh_console_is_full(c))
        c->ops.on_room(c->arg);
    if (!was_empty && ssh_console_is_empty(c))
        c->ops.on_empty(c->arg);
}

static void on_writable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    ssh_console_flush(arg);
}

void ssh_console_add(struct ssh_console *c, const void *bytes, size_t len) {
    if (c->gone || len == 0)
        return;
    if (c->done > SSH_CONSOLE_ROOM) { /* what is written makes room */
        c->queue.len -= c->done;
        memmove(c->queue.data, c->queue.data + c->done, c->queue.len);
        c->queue.data[c->queue.len] = '\0';
        c->done = 0;
    }
    strbuf_add_bytes(&c->queue, bytes, len);
    if (c->watch != NULL)
        loop_watch_set(c->watch, LOOP_WRITE); /* one turn's lines are written together */
    else
        ssh_console_flush(c);
}

void ssh_console_look(struct ssh_console *c) { c->seen = c->written; }

bool ssh_console_drop_if_stuck(struct ssh_console *c) {
    bool stuck = ssh_console_is_full(c) && c->written == c->seen;
    ssh_console_look(c);
    if (!stuck)
        return false;
    c->gone = true;
    drop(c);
    if (c->watch != NULL)
        loop_watch_set(c->watch, 0);
    c->ops.on_room(c->arg);
    return true;
}

bool ssh_console_is_full(const struct ssh_console *c) {
    return c->queue.len - c->done > SSH_CONSOLE_ROOM;
}

bool ssh_console_is_empty(const struct ssh_console *c) { return c->queue.len == c->done; }

int ssh_console_new(struct loop *loop, int fd, const struct ssh_console_ops *ops, void *arg,
                    struct ssh_console **ret) {
    struct ssh_console *c = xcalloc(1, sizeof *c);
    *c = (struct ssh_console){.fd = fd, .ops = *ops, .arg = arg, .loop = loop};
    struct stat st;
    bool waits =
        isatty(fd) || (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
    int r = waits ? loop_watch_new(loop, fd, 0, LOOP_PRIO_BULK, on_writable, c, &c->watch) : 0;
    if (r < 0) {
        ssh_console_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void ssh_console_free(struct ssh_console *c) {
    if (c == NULL)
        return;
    if (c->watch != NULL)
        loop_watch_free(c->watch);
    strbuf_fini(&c->queue);
    free(c);
}
