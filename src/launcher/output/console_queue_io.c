#include "launcher/output/console_queue_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/output/console_io.h"

#define WRITE_PIECE_MAX ((size_t)64 * 1024)
#define WRITES_PER_TURN 8
#define BUFFER_KEPT ((size_t)2 * 1024 * 1024)
#define POLLED_TTY_MAX ((size_t)256)

bool console_queue_is_pipe(const struct console_queue *q) {
    return q->kind != CONSOLE_QUEUE_NONE && q->kind != CONSOLE_QUEUE_DIRECT && !q->tty;
}

bool console_queue_has_reader(const struct console_queue *q) {
    return q->kind != CONSOLE_QUEUE_NONE && q->kind != CONSOLE_QUEUE_DIRECT;
}

void console_queue_discard(struct console_queue *q) {
    uint64_t size = q->spool.size;
    strbuf_clear(&q->bytes);
    strbuf_clear(&q->behind);
    q->done = 0;
    q->spilling = false;
    spool_fini(&q->spool);
    spool_init(&q->spool, size);
}

/* ---- the file ---- */

#define SPILL_PIECE ((size_t)256 * 1024)

bool console_queue_spill(struct console_queue *q) {
    bool room = spool_has_room(&q->spool, SPILL_PIECE);
    q->spilling = q->spilling || room;
    return room;
}

/* Moves bytes from memory to the file, once there are enough of them. What has no room stays. */
static void spill(struct console_queue *q) {
    uint64_t room = q->spool.size - spool_pending(&q->spool);
    size_t n = (size_t)MIN2((uint64_t)q->behind.len, room);
    if (n < SPILL_PIECE || spool_add(&q->spool, q->behind.data, n) < 0)
        return;
    q->behind.len -= n;
    memmove(q->behind.data, q->behind.data + n, q->behind.len);
}

/* The queue's next bytes, if those before are written. */
static void unspill(struct console_queue *q) {
    if (q->done < q->bytes.len || !q->spilling)
        return;
    strbuf_clear(&q->bytes);
    q->done = 0;
    ssize_t n = spool_take(&q->spool, strbuf_room(&q->bytes, SPILL_PIECE), SPILL_PIECE);
    if (n > 0) {
        q->bytes.len = (size_t)n;
        return;
    }
    if (n < 0)
        q->ops->on_error(q->arg, (int)-n);
    struct strbuf empty = q->bytes;
    q->bytes = q->behind;
    q->behind = empty;
    q->spilling = false;
}

/* ---- writing ---- */

static void give_up(struct console_queue *q) {
    q->kind = CONSOLE_QUEUE_NONE;
    console_queue_discard(q);
    loop_watch_free(q->watch);
    q->watch = NULL;
}

static ssize_t write_piece(struct console_queue *q) {
    const char *data = q->bytes.data + q->done;
    size_t len = MIN2(q->bytes.len - q->done, WRITE_PIECE_MAX);
    switch (q->kind) {
    case CONSOLE_QUEUE_DIRECT:
    case CONSOLE_QUEUE_NONBLOCK: return write(q->fd, data, len);
    case CONSOLE_QUEUE_SOCKET: return send(q->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case CONSOLE_QUEUE_POLLED: {
        struct pollfd p = {.fd = q->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        return write(q->fd, data, MIN2(len, q->tty ? POLLED_TTY_MAX : (size_t)PIPE_BUF));
    }
    case CONSOLE_QUEUE_NONE: break;
    }
    assert_not_reached();
}

void console_queue_update(struct console_queue *q) {
    if (q->behind.len >= SPILL_PIECE)
        spill(q);
    bool any = console_queue_pending(q) > 0;
    if (q->watch != NULL)
        loop_watch_set(q->watch, any ? LOOP_WRITE : 0);
    else if (q->kind == CONSOLE_QUEUE_DIRECT && q->soon != NULL)
        loop_timer_set(q->soon, any ? clock_now_ns() : TIME_NEVER);
}

/* Everything is written. A large buffer is given back. */
static void start_again(struct console_queue *q) {
    q->done = 0;
    q->spilling = false;
    if (q->bytes.cap > BUFFER_KEPT)
        strbuf_fini(&q->bytes);
    if (q->behind.cap > BUFFER_KEPT)
        strbuf_fini(&q->behind);
    strbuf_clear(&q->bytes);
}

void console_queue_write(struct console_queue *q) {
    for (int i = 0; i < WRITES_PER_TURN && !console_queue_is_closed(q); i++) {
        unspill(q);
        if (q->done == q->bytes.len)
            break;
        ssize_t n = write_piece(q);
        if (n >= 0) {
            q->done += (size_t)n;
            q->taken += (uint64_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            break;
        int error = errno;
        if (q->kind == CONSOLE_QUEUE_DIRECT && (error == ENOSPC || error == EDQUOT))
            console_queue_discard(q);
        else
            give_up(q);
        q->ops->on_error(q->arg, error);
    }
    if (console_queue_pending(q) == 0)
        start_again(q);
    q->ops->on_written(q->arg);
    console_queue_update(q);
}

static void on_writable(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    console_queue_write(arg);
}

static void on_soon(void *arg) { console_queue_write(arg); }

/* ---- adding ---- */

struct strbuf *console_queue_buffer(struct console_queue *q) {
    size_t left = q->bytes.len - q->done;
    if (q->spilling)
        return &q->behind;
    /* Written bytes must not accumulate at the front, but moving the rest each time would be
     * slow. */
    if (q->done >= WRITE_PIECE_MAX && q->done >= left) {
        memmove(q->bytes.data, q->bytes.data + q->done, left);
        q->bytes.len = left;
        q->done = 0;
    }
    return &q->bytes;
}

void console_queue_add(struct console_queue *q, const void *data, size_t len) {
    if (!console_queue_is_closed(q))
        strbuf_add_bytes(console_queue_buffer(q), data, len);
}

void console_queue_make_room(struct console_queue *q, size_t more) {
    if (q->kind == CONSOLE_QUEUE_DIRECT && console_queue_pending(q) + more > WRITE_PIECE_MAX)
        console_queue_write(q);
}

/* ---- life ---- */

void console_queue_open(struct console_queue *q, int fd) {
    *q = (struct console_queue){.kind = CONSOLE_QUEUE_NONE, .fd = fd};
    spool_init(&q->spool, 0);
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    q->unusable = flags < 0 || (flags & O_ACCMODE) == O_RDONLY;
    if (q->unusable || fstat(fd, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
        return; /* the null device */
    q->tty = S_ISCHR(st.st_mode) && isatty(fd);
    if (S_ISSOCK(st.st_mode)) {
        q->kind = CONSOLE_QUEUE_SOCKET;
    } else if (q->tty || S_ISFIFO(st.st_mode)) {
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        q->kind = again < 0 ? CONSOLE_QUEUE_POLLED : CONSOLE_QUEUE_NONBLOCK;
        q->owned = again >= 0;
        q->fd = again < 0 ? fd : again;
    } else {
        q->kind = CONSOLE_QUEUE_DIRECT;
        q->hangs = S_ISREG(st.st_mode);
    }
}

int console_queue_start(struct console_queue *q, struct loop *loop,
                        const struct console_queue_ops *ops, void *arg) {
    q->ops = ops;
    q->arg = arg;
    switch (q->kind) {
    case CONSOLE_QUEUE_NONE: return 0;
    case CONSOLE_QUEUE_DIRECT: return loop_timer_new(loop, on_soon, q, &q->soon);
    case CONSOLE_QUEUE_NONBLOCK:
    case CONSOLE_QUEUE_SOCKET:
    case CONSOLE_QUEUE_POLLED:
        return loop_watch_new(loop, q->fd, 0, LOOP_PRIO_BULK, on_writable, q, &q->watch);
    }
    assert_not_reached();
}

void console_queue_close(struct console_queue *q) {
    loop_watch_free(q->watch);
    loop_timer_free(q->soon);
    if (q->owned)
        (void)close(q->fd);
    strbuf_fini(&q->bytes);
    strbuf_fini(&q->behind);
    spool_fini(&q->spool);
}
