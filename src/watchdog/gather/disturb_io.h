/* What disturbs a worker: only once it is decided that it is killed. */
#pragma once

#include <sys/types.h>

#include "watchdog/evidence/evidence.h"

/* The native stacks of all threads of the worker, by eu-stack of elfutils if it is installed, which
 * stops the process meanwhile. Nothing attaches to a process in a wait that can't be interrupted,
 * or in one of FUSE: it would hang, and make that wait one that can't be killed. Blocks until
 * deadline_ns (CLOCK_MONOTONIC) at most. What is missing is a gap. */
void disturb_native_stack(struct evidence_worker *w, uint64_t deadline_ns);
/* Whether this wait allows to attach. */
bool disturb_may_attach(const struct evidence_thread *main);

/* Ends a Python program so that it says where it was: lets it go on if it was stopped, and sends
 * SIGABRT. With PYTHONFAULTHANDLER=1 in its environment all its threads write their stacks to its
 * standard error, also if the GIL is held. No core is written. The caller reaps it, and kills what
 * does not end. -ESRCH: it has ended; others of prlimit(2) and kill(2). */
_must_use_ int disturb_abort(pid_t pid);
