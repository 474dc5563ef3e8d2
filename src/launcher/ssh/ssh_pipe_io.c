#include "launcher/ssh/ssh_pipe_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/text/strbuf.h"

struct ssh_pipe {
    struct ssh_pipe_ops ops;
    void *arg;
    int in_fd, out_fd;
    struct loop_watch *in, *out; /* NULL: nothing more comes, or goes */
    struct strbuf queue;
    size_t sent; /* of the queue */
    bool closed; /* on_closed was called */
    bool full;   /* on_room is owed */
    bool no_reader;
    size_t in_len;
    uint8_t in_bytes[SSH_FRAME_MAX];
};

static void tell_closed(struct ssh_pipe *p, const char *error) {
    loop_watch_free(TAKE_PTR(p->in));
    if (p->closed)
        return;
    p->closed = true;
    p->ops.on_closed(p->arg, error);
}

/* ---- out ---- */

size_t ssh_pipe_unsent(const struct ssh_pipe *p) { return p->queue.len - p->sent; }

bool ssh_pipe_has_room(const struct ssh_pipe *p) {
    return p->out == NULL || p->no_reader || ssh_pipe_unsent(p) < SSH_PIPE_ROOM;
}

static void tell_room(struct ssh_pipe *p) {
    if (!p->full || !ssh_pipe_has_room(p))
        return;
    p->full = false;
    p->ops.on_room(p->arg);
}

static void forget_sent(struct ssh_pipe *p) {
    if (p->sent == p->queue.len) {
        strbuf_clear(&p->queue);
        p->sent = 0;
    } else if (p->sent >= SSH_PIPE_ROOM) {
        memmove(p->queue.data, p->queue.data + p->sent, ssh_pipe_unsent(p) + 1);
        p->queue.len -= p->sent;
        p->sent = 0;
    }
}

static void out_broken(struct ssh_pipe *p, int code) {
    loop_watch_free(TAKE_PTR(p->out));
    strbuf_clear(&p->queue);
    p->sent = 0;
    tell_closed(p, strerror(-code));
    tell_room(p);
    p->ops.on_sent(p->arg);
}

static void on_writable(void *arg, int fd, unsigned events) {
    struct ssh_pipe *p = arg;
    (void)events;
    ssize_t n = write(fd, p->queue.data + p->sent, ssh_pipe_unsent(p));
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            out_broken(p, -errno);
        return;
    }
    p->sent += (size_t)n;
    forget_sent(p);
    if (p->queue.len == 0) {
        loop_watch_set(p->out, 0);
        p->ops.on_sent(p->arg);
    }
    tell_room(p);
}

static void queued(struct ssh_pipe *p) {
    loop_watch_set(p->out, LOOP_WRITE);
    p->full = p->full || !ssh_pipe_has_room(p);
}

void ssh_pipe_begin(struct ssh_pipe *p) {
    if (p->out == NULL)
        return;
    strbuf_add(&p->queue, SSH_BEGIN);
    queued(p);
}

bool ssh_pipe_send(struct ssh_pipe *p, const struct ssh_message *m) {
    if (p->out == NULL || ssh_pipe_unsent(p) + SSH_FRAME_MAX > SSH_PIPE_UNSENT_MAX)
        return false;
    ssh_add(m, &p->queue);
    queued(p);
    return true;
}

void ssh_pipe_expect_no_reader(struct ssh_pipe *p) {
    p->no_reader = true;
    tell_room(p);
}

/* ---- in ---- */

/* Takes all whole messages; a negative errno: it is none. */
static int take_messages(struct ssh_pipe *p, struct err *err) {
    size_t at = 0, size = 0;
    int r = 0;
    while (p->in != NULL) {
        struct ssh_message m;
        r = ssh_take(p->in_bytes + at, p->in_len - at, &m, &size, err);
        if (r == 0 && ssh_is_from_node(m.kind))
            r = err_set(err, -EPROTO, "it is another node's message");
        if (r != 0)
            break;
        p->ops.on_message(p->arg, &m);
        at += size;
    }
    p->in_len -= at;
    memmove(p->in_bytes, p->in_bytes + at, p->in_len);
    explicit_bzero(p->in_bytes + p->in_len, at); /* BOOT has the job's secrets */
    return r < 0 ? r : 0;
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct ssh_pipe *p = arg;
    struct err err = {0};
    (void)events;
    ssize_t n = read(fd, p->in_bytes + p->in_len, sizeof p->in_bytes - p->in_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        tell_closed(p, n == 0 ? NULL : strerror(errno));
        return;
    }
    p->in_len += (size_t)n;
    if (take_messages(p, &err) < 0)
        tell_closed(p, err.text);
}

/* ---- the whole ---- */

static int make_non_blocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int ssh_pipe_new(struct loop *loop, int in_fd, int out_fd, const struct ssh_pipe_ops *ops,
                 void *arg, struct ssh_pipe **ret) {
    struct ssh_pipe *p = xcalloc(1, sizeof *p);
    p->ops = *ops;
    p->arg = arg;
    p->in_fd = in_fd;
    p->out_fd = out_fd;
    int r = make_non_blocking(in_fd);
    if (r == 0)
        r = make_non_blocking(out_fd);
    if (r == 0) /* what the head says comes before all that workers can keep busy */
        r = loop_watch_new(loop, in_fd, LOOP_READ, LOOP_PRIO_CHILD, on_readable, p, &p->in);
    if (r == 0)
        r = loop_watch_new(loop, out_fd, 0, LOOP_PRIO_BULK, on_writable, p, &p->out);
    if (r < 0) {
        ssh_pipe_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

void ssh_pipe_free(struct ssh_pipe *p) {
    if (p == NULL)
        return;
    loop_watch_free(p->in);
    loop_watch_free(p->out);
    strbuf_fini(&p->queue);
    free(p);
}
