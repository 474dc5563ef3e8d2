/* Finds the thread that does the work of a Python process whose main thread only waits for it: in
 * join(), or in an event loop. Such a process is alive if that thread runs. It may block on the
 * file system of the interpreter: call it in a helper with a deadline. */
#pragma once

#include "watchdog/look/pystack.h"

struct work_thread {
    int32_t tid;    /* 0: none; the main thread works itself, or nobody does */
    uint64_t start; /* in clock ticks since boot */
};

/* Looks at the process `pid` for its thread. *python is what an earlier call has found (pid 0: it
 * is looked for), and *t that one's answer, which stays while the thread lives and no other one is
 * seen to work: between its steps nobody can tell it from others. With several, it is the one that
 * has used the most CPU time. gpu: the process has one open. Its waiters spin there, and where
 * Python does not say which thread is which (before 3.11), nobody could tell that they do: none is
 * found.
 */
void work_thread_find(int32_t pid, bool gpu, struct pystack_process *python, struct work_thread *t);
