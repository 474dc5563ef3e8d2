/* ^Z at the terminal of a head: it stops, for the shell to see, and the job goes on. A relay ends
 * its job when the head is silent for SSH_SILENCE_NS, so a copy of the head, in a process group of
 * its own, sends PING until the head is continued. Output waits meanwhile, as with any reader that
 * stops. If the head is killed, the kernel kills the copy, and the relays find the end of their
 * input.
 *
 * SIGSTOP can't be caught: a head that is stopped by it for longer than SSH_SILENCE_NS has gone. */
#pragma once

#include <stddef.h>

/* Stops this process as SIGTSTP does, until SIGCONT. fds: sockets to relays that have said HELLO,
 * in which no message is half sent. Returns at once where no shell could continue it (an orphaned
 * process group), or where there can be no copy. */
void ssh_suspend_self(const int *fds, size_t n);
