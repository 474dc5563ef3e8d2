/* What /proc tells about one thread: evidence that disturbs nobody. None of these files blocks. */
#pragma once

#include <sys/types.h>

#include "watchdog/evidence/evidence.h"
#include "watchdog/gather/waits.h"

/* Of a thread of a process. -ESRCH: there is no such thread (any more). What there is no right to
 * read is empty: a wait and its target need that of ptrace(2), PTRACE_MODE_ATTACH_FSCREDS. *call,
 * if it is not NULL: the system call; number -1 if it is in none, or it is not known. */
_must_use_ int thread_look(pid_t pid, pid_t tid, struct evidence_thread *ret,
                           struct waits_call *call);
/* The kernel's functions in which the thread waits, a line each; malloc'ed. -EACCES, -EPERM: only
 * root may read it. */
_must_use_ int thread_kernel_stack(pid_t pid, pid_t tid, char **ret);
