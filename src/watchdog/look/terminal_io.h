/* Whether a process waits for somebody to type: a debugger's prompt, input(). Read from /proc,
 * which neither stops nor asks it; none of these files blocks. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/util.h"

/* Whether the standard input of the process is a terminal, and its main thread waits for input from
 * it: in read(2), select(2), poll(2) or epoll_wait(2). False also if that can't be seen: it needs
 * the right of ptrace(2), PTRACE_MODE_ATTACH_FSCREDS. */
_must_use_ bool terminal_is_awaited(pid_t pid);
