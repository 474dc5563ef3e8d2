/* What disturbs a worker: only once it is decided that it is killed. native.c is pure; disturb_io.c
 * does it. */
#pragma once

#include <sys/types.h>

#include "watchdog/evidence/evidence.h"

/* The native stacks of all threads of these workers, by eu-stack of elfutils if it is installed,
 * which stops each process meanwhile. Nothing attaches to a process that is traced, or with a
 * thread in a wait that can't be interrupted, or in one of FUSE: it would hang. Blocks until
 * deadline_ns (CLOCK_MONOTONIC) at most. What is missing is a gap. */
void disturb_native_stacks(struct evidence *e, uint64_t deadline_ns);
/* Whether a process may be attached to with a thread in this state, and this wait of the kernel's
 * (wchan): not if that can't be seen. */
bool disturb_may_attach(char state, const char *wchan);

/* Which process does the work of a worker: the worker, or the one Python program that stems from it
 * if it is none itself (a shell, a profiler), or the one below a launcher of Python that merely
 * waits for it (`python launch.py` with subprocess.call()). What else a Python program has started
 * is its own: its data loaders, a pool. Never blocks. */
pid_t disturb_program(pid_t pid);

/* Whether the main thread of a process can handle a signal now: not in a wait that none interrupts,
 * and not in one of FUSE, which a signal only turns into such a wait (until SIGKILL). Never
 * blocks. */
bool disturb_can_handle(pid_t pid);

/* Ends a Python program so that it prints its stacks: continues it if it was stopped, and sends
 * SIGABRT. With PYTHONFAULTHANDLER=1 in its environment all its threads write their stacks to its
 * standard error, also if the GIL is held. No core is written. The caller reaps it, and kills what
 * does not end. -ESRCH: it has ended; others of prlimit(2) and kill(2). */
_must_use_ int disturb_abort(pid_t pid);
/* The same for the program of a worker, disturb_program(), which is not the worker itself. The
 * worker is stopped, so that it does not continue behind it; the caller ends it when the program
 * has ended. */
_must_use_ int disturb_abort_below(pid_t worker, pid_t program);

/* ---- native.c ---- */

#define NATIVE_OUTPUT_MAX ((size_t)1 << 20) /* what is read of it */
#define NATIVE_NAME_MAX 180                 /* bytes of a frame: names of C++ can be very long */
#define NATIVE_MODULE_MAX 60
#define NATIVE_FRAMES_MAX 64 /* of a thread that are shown */
#define NATIVE_STACKS_MAX 64 /* different ones */

/* Shortens what "eu-stack -m" of elfutils prints of a process: "TID 12:", and
 * "#0  0x00007fc1871e1dd0 pause - /usr/lib/libc.so.6" for each frame, innermost first, become
 * "thread 12:" and "  pause  libc.so.6"; threads with the same frames are shown once, as
 * "thread 13, and 61 more like it:". Adds at most `max` bytes (at least 100), whole lines; a last
 * one marks that there is more. What has no thread in it gives nothing. */
void native_shorten(const char *text, size_t max, struct strbuf *ret);
