/* Python stacks of a process of this machine: finds Python in it and reads its memory. Nothing is
 * stopped or attached to, and nothing of the process runs. It may block on the file system of the
 * interpreter: call it in a helper with a deadline.
 *
 *     struct pystack_process p = {0};
 *     r = pystack_process_find(pid, &p, &err);           up to 10 ms; once for each process
 *     r = pystack_process_read(&p, on_thread, arg, &err);  about 0.2 ms
 *
 * Rights: those of ptrace(2), PTRACE_MODE_ATTACH_REALCREDS: the same user and a process that has
 * not changed its rights, or CAP_SYS_PTRACE. With Yama's ptrace_scope 1, root or an ancestor of the
 * process, or what it named by prctl(PR_SET_PTRACER), and that one's children. */
#pragma once

#include "watchdog/look/pystack.h"

/* What is known of one process; the caller owns it, and may copy it, also between processes. */
struct pystack_process {
    int32_t pid;    /* as this process sees it */
    uint64_t start; /* its start in clock ticks since boot (proc.h): with the pid, one process */
    bool inner;     /* it is in a pid namespace below ours: tids have to be translated */
    struct pystack_python python;
};

/* The sentence of *err is the reason alone, without the process's name: "no Python is loaded in
 * it". -ESRCH: there is no such process; -ENOENT: no Python in it (yet); -ENOTSUP: its version is
 * not known; -EPERM: no right to read it; -EBADMSG: it is not as its version says. */
_must_use_ int pystack_process_find(int32_t pid, struct pystack_process *ret, struct err *err);

/* As pystack_read(), but the tids are those of this process's pid namespace. Returns how many
 * threads there were. -ESRCH also if the process is another one by now; or Python in it has not
 * begun, has ended, or was replaced by another program: find again. */
_must_use_ int pystack_process_read(const struct pystack_process *p, pystack_thread_fn *fn,
                                    void *arg, struct err *err);
/* As pystack_addresses(). */
uint64_t pystack_process_addresses(const struct pystack_process *p);
