/* Bytes on their way to a terminal, pipe, socket or file that may take them slowly or not at all:
 * they are queued and written by the loop, and nobody ever waits (how: console_io.h). Knows nothing
 * of lines.
 *
 *     console_queue_open(&q, fd); r = console_queue_start(&q, loop, &ops, me);
 *     console_queue_add(&q, data, len); console_queue_update(&q);
 *     console_queue_close(&q); */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"
#include "io/loop.h"

enum console_queue_kind {
    CONSOLE_QUEUE_NONE = 1, /* closed or broken: output is dropped */
    CONSOLE_QUEUE_DIRECT,   /* a plain file or a device that never waits */
    CONSOLE_QUEUE_NONBLOCK, /* a terminal or pipe, opened again */
    CONSOLE_QUEUE_SOCKET,
    CONSOLE_QUEUE_POLLED, /* a terminal or pipe that can't be opened again */
};

/* Both may add to the queue. */
struct console_queue_ops {
    /* Some was written, or nothing could be now. */
    void (*on_written)(void *arg);
    /* What was queued is lost: of a full disk this, else all that will come, too. */
    void (*on_error)(void *arg, int error);
};

struct console_queue {
    enum console_queue_kind kind;
    int fd;
    bool owned; /* fd is ours to close */
    bool tty;
    bool hangs; /* a plain file: its disk may */
    struct strbuf bytes;
    size_t done;              /* of bytes, written already */
    struct loop_watch *watch; /* NULL: DIRECT, NONE */
    struct loop_timer *soon;  /* DIRECT: writes at the end of the turn */
    uint64_t progress_ns;     /* when it last took bytes, or began to have some to take */
    const struct console_queue_ops *ops;
    void *arg;
};

/* Chooses how to write to fd without ever waiting. fd is borrowed and stays unchanged. */
void console_queue_open(struct console_queue *q, int fd);
_must_use_ int console_queue_start(struct console_queue *q, struct loop *loop,
                                   const struct console_queue_ops *ops, void *arg);
void console_queue_close(struct console_queue *q);

/* Nothing is taken, now and later. */
static inline bool console_queue_is_closed(const struct console_queue *q) {
    return q->kind == CONSOLE_QUEUE_NONE;
}
static inline size_t console_queue_pending(const struct console_queue *q) {
    return q->bytes.len - q->done;
}
/* A pipe or socket, whose sources may be made to wait. */
bool console_queue_is_pipe(const struct console_queue *q);
/* Took bytes within CONSOLE_PIPE_PATIENCE_NS, or has none to take. */
bool console_queue_is_moving(const struct console_queue *q, uint64_t now_ns);

void console_queue_add(struct console_queue *q, const void *data, size_t len);
/* The buffer to add to directly, up to its limit. */
struct strbuf *console_queue_buffer(struct console_queue *q);
/* Is there room for `more` bytes below `limit`? Writes to make some. */
bool console_queue_make_room(struct console_queue *q, size_t more, size_t limit);
void console_queue_discard(struct console_queue *q);
/* Writes what goes without waiting, a bounded amount. */
void console_queue_write(struct console_queue *q);
/* After adding: the loop writes. */
void console_queue_update(struct console_queue *q);
