/* What /proc tells about one thread: evidence that disturbs nobody. None of these files blocks. */
#pragma once

#include <sys/types.h>

#include "watchdog/evidence/evidence.h"
#include "watchdog/evidence/waits.h"

/* Of a thread of a process. -ESRCH: there is no such thread (any more). What there is no right to
 * read is empty: a wait and its target need that of ptrace(2), PTRACE_MODE_ATTACH_FSCREDS. A socket
 * is looked for in a list of the kernel's that can be THREAD_SOCKETS_AGE_NS old: with thousands of
 * sockets it takes many ms to make. */
_must_use_ int thread_look(pid_t pid, pid_t tid, struct evidence_thread *ret);
#define THREAD_SOCKETS_AGE_NS NS_PER_S
/* The kernel's list of TCP sockets of a process's network (name: net/tcp or net/tcp6; dir: its
 * folder in /proc), without those that are closed. Returns the length, or a negative errno.
 * *ret_whole: it had room, and could be read to its end. */
_must_use_ ssize_t thread_sockets(int dir, const char *name, char *text, size_t size,
                                  bool *ret_whole);
/* Only the system call, and not what it waits for; number -1: it is in none, or it is not known. */
void thread_call(pid_t pid, pid_t tid, struct waits_call *ret);
/* Only its CPU time. -ESRCH: there is no such thread (any more); -ENODATA: the kernel does not say
 * it. */
_must_use_ int thread_ran(pid_t pid, pid_t tid, uint64_t *ret_ns);
/* The kernel's functions in which the thread waits, a line each; malloc'ed. -EACCES, -EPERM: only
 * root may read it. */
_must_use_ int thread_kernel_stack(pid_t pid, pid_t tid, char **ret);
