/* The head's own stdout or stderr, where the output of all hosts comes together. It never blocks:
 * what a slow reader has not taken waits here, and hosts are not read meanwhile.
 *
 *     ssh_console_new(loop, fd, &ops, me, &c);
 *     ssh_console_add(c, bytes, len);                     whole lines, unless their end is late
 *     if (ssh_console_is_full(c)) … stop reading until on_room
 *
 * A reader that has gone (EPIPE) takes everything from then on: the job goes on, as without ssh. */
#pragma once

#include <stdbool.h>

#include "io/loop.h"

#define SSH_CONSOLE_ROOM ((size_t)256 * 1024)

struct ssh_console;

struct ssh_console_ops {
    void (*on_room)(void *arg);  /* it was full, and is not */
    void (*on_empty)(void *arg); /* all is written */
};

/* fd is borrowed, and stays as it is: other processes use it, too. */
_must_use_ int ssh_console_new(struct loop *loop, int fd, const struct ssh_console_ops *ops,
                               void *arg, struct ssh_console **ret);
void ssh_console_free(struct ssh_console *c); /* takes NULL; drops what is not written */
void ssh_console_add(struct ssh_console *c, const void *bytes, size_t len);
bool ssh_console_is_full(const struct ssh_console *c);
/* Writes what can be written now. */
void ssh_console_flush(struct ssh_console *c);
/* If it is full, and has taken nothing since the last look, it gets no more. Both calls look; the
 * second tells whether that is so now. */
void ssh_console_look(struct ssh_console *c);
bool ssh_console_drop_if_stuck(struct ssh_console *c);
bool ssh_console_is_empty(const struct ssh_console *c);
