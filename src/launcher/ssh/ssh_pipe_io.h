/* The relay's way to its head: messages (ssh_wire.h) over two descriptors, which are what sshd
 * gives a command as its standard input and output: pipes or sockets. The head may stop reading:
 * what is sent is bounded by the sender, who asks.
 *
 *     ssh_pipe_new(loop, 0, 1, &ops, me, &p);
 *     if (ssh_pipe_has_room(p)) ssh_pipe_send(p, &output);        else wait for on_room
 *     ssh_pipe_free(p);                                           not inside its own callbacks
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "launcher/ssh/ssh_wire.h"

/* Output is sent only while less than this is queued. */
#define SSH_PIPE_ROOM ((size_t)128 * 1024)
/* Nothing is queued beyond this: short messages, which nothing delays, still find room. */
#define SSH_PIPE_UNSENT_MAX ((size_t)512 * 1024)

struct ssh_pipe;

struct ssh_pipe_ops {
    /* One message of a head, borrowed for the call. */
    void (*on_message)(void *arg, const struct ssh_message *m);
    /* ssh_pipe_has_room() was false, and is true again. */
    void (*on_room)(void *arg);
    /* All that was queued has been accepted by the kernel, or can't be sent any more. */
    void (*on_sent)(void *arg);
    /* No message follows. `error` is NULL at the end of file, and else says why. Called once. */
    void (*on_closed)(void *arg, const char *error);
};

/* The descriptors are borrowed; they become non-blocking. -EPERM: one of them is a file, which no
 * loop can watch. */
_must_use_ int ssh_pipe_new(struct loop *loop, int in_fd, int out_fd,
                            const struct ssh_pipe_ops *ops, void *arg, struct ssh_pipe **ret);
void ssh_pipe_free(struct ssh_pipe *p); /* takes NULL; drops what is unsent */

/* Queues the line before the first message. */
void ssh_pipe_begin(struct ssh_pipe *p);
/* False: it was dropped, as the other end has gone, or SSH_PIPE_UNSENT_MAX is reached. */
bool ssh_pipe_send(struct ssh_pipe *p, const struct ssh_message *m);
bool ssh_pipe_has_room(const struct ssh_pipe *p);
size_t ssh_pipe_unsent(const struct ssh_pipe *p);
/* From now on nobody is expected to read: there always is room, and what finds none is dropped. */
void ssh_pipe_expect_no_reader(struct ssh_pipe *p);
