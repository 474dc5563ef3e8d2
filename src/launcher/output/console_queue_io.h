/* Output for a terminal, pipe, socket or file that can take it slowly or not at all. Bytes are
 * queued, and the loop writes them without ever waiting (how: console_io.h). It does not know about
 * lines. What is queued waits in memory, and with console_queue_spill() in a file (spool_io.h).
 *
 *     console_queue_open(&q, fd); r = console_queue_start(&q, loop, &ops, me);
 *     console_queue_add(&q, data, len); console_queue_update(&q);
 *     console_queue_close(&q); */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"
#include "io/loop.h"
#include "launcher/output/spool_io.h"

enum console_queue_kind {
    CONSOLE_QUEUE_NONE = 1, /* closed or broken: output is dropped */
    CONSOLE_QUEUE_DIRECT,   /* a plain file or a device that never waits */
    CONSOLE_QUEUE_NONBLOCK, /* a terminal or pipe, opened again */
    CONSOLE_QUEUE_SOCKET,
    CONSOLE_QUEUE_POLLED, /* a terminal or pipe that can't be opened again */
};

/* Both may add to the queue. */
struct console_queue_ops {
    /* Some bytes were written, or none could be written now. */
    void (*on_written)(void *arg);
    /* What was queued is lost. Unless the disk is full, all later output is lost, too. Also called
     * if bytes that waited in the file can't be read. */
    void (*on_error)(void *arg, int error);
};

struct console_queue {
    enum console_queue_kind kind;
    int fd;
    bool owned; /* the queue closes fd */
    bool tty;
    bool hangs;    /* a plain file: its disk can hang */
    bool unusable; /* it was closed, or is not open for writing */
    struct strbuf bytes;
    size_t done;    /* how much of bytes is already written */
    uint64_t taken; /* bytes written so far */
    /* After bytes: what is in the file, then what still has to go there. */
    struct spool spool;
    struct strbuf behind;
    bool spilling;            /* new bytes go to `behind` */
    struct loop_watch *watch; /* NULL: DIRECT, NONE */
    struct loop_timer *soon;  /* DIRECT: writes at the end of the turn */
    const struct console_queue_ops *ops;
    void *arg;
};

/* Chooses how to write to fd without ever waiting. fd is borrowed and stays unchanged. */
void console_queue_open(struct console_queue *q, int fd);
_must_use_ int console_queue_start(struct console_queue *q, struct loop *loop,
                                   const struct console_queue_ops *ops, void *arg);
void console_queue_close(struct console_queue *q);

/* No bytes are taken, now or later. */
static inline bool console_queue_is_closed(const struct console_queue *q) {
    return q->kind == CONSOLE_QUEUE_NONE;
}
static inline size_t console_queue_in_memory(const struct console_queue *q) {
    return q->bytes.len - q->done + q->behind.len;
}
static inline uint64_t console_queue_pending(const struct console_queue *q) {
    return console_queue_in_memory(q) + spool_pending(&q->spool);
}
/* Whether its reader can make it wait: a terminal, pipe or socket. */
bool console_queue_has_reader(const struct console_queue *q);
bool console_queue_is_pipe(const struct console_queue *q);
/* Lets further bytes wait in the file until the queue is empty. False: there is no room in it. */
bool console_queue_spill(struct console_queue *q);

void console_queue_add(struct console_queue *q, const void *data, size_t len);
/* The buffer, for adding bytes directly. */
struct strbuf *console_queue_buffer(struct console_queue *q);
/* Before `more` bytes are added: a plain file's queue is written as soon as it is long enough. */
void console_queue_make_room(struct console_queue *q, size_t more);
void console_queue_discard(struct console_queue *q);
/* Writes what can be written without waiting, a bounded amount. */
void console_queue_write(struct console_queue *q);
/* Call this after adding bytes: the loop then writes them. */
void console_queue_update(struct console_queue *q);
