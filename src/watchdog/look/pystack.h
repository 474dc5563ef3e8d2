/* The Python stacks of another process, read from its memory while it runs, which neither stops it
 * nor attaches to it. pystack.c is pure: the memory is a callback; pystack_io.c finds process and
 * runtime.
 *
 *     r = pystack_open(&memory, &found, &python, &err);
 *     r = pystack_read(&memory, &python, on_thread, arg);
 *
 * The process continues meanwhile, so any pointer and any length can be wrong: each read is checked
 * and each loop is bounded, but a stack of a thread that runs can mix two moments.
 *
 * A frame is named as by CPython's faulthandler: the code's name, its file and the line. Left out
 * are frames that are not Python code, and those that have not begun. */
#pragma once

#include "watchdog/look/pystack_layout.h"

#define PYSTACK_FRAMES_MAX 48  /* of a thread: the innermost */
#define PYSTACK_THREADS_MAX 64 /* of a process */
#define PYSTACK_FUNCTION_MAX 96
#define PYSTACK_FILE_MAX 256

struct pystack_frame {
    char function[PYSTACK_FUNCTION_MAX]; /* "?": could not be read. UTF-8, nothing for a terminal */
    char file[PYSTACK_FILE_MAX];         /* its end, if it is longer */
    uint32_t line;                       /* 0: not known */
};

struct pystack_thread {
    int32_t tid; /* in the process's own pid namespace; 0: not known (maybe with 3.9 and 3.10) */
    bool main;   /* the process's first thread */
    bool cut;    /* there are more frames */
    uint32_t n;
    struct pystack_frame frames[PYSTACK_FRAMES_MAX]; /* innermost first */
    /* The file of the lock for which it polls, with filelock, FileBaton of PyTorch and DeepSpeed,
     * fasteners or portalocker; "": none, or not known */
    char lock[PYSTACK_FILE_MAX];
};

/* Where Python is in a process. Addresses are of the process; 0: not known. */
struct pystack_found {
    uint32_t version;   /* PY_VERSION_HEX */
    uint64_t runtime;   /* _PyRuntime */
    uint64_t code_type; /* PyCode_Type, PyUnicode_Type and PyBytes_Type: an object of another type
                         * is not believed */
    uint64_t text_type;
    uint64_t bytes_type;
    int32_t pid; /* in its own pid namespace: the tid of its first thread */
};

struct pystack_python {
    struct pystack_found found;
    struct pystack_layout layout;
};

/* Errors as of pystack_layout_of(). */
_must_use_ int pystack_open(const struct pystack_memory *m, const struct pystack_found *found,
                            struct pystack_python *ret, struct err *err);

typedef void pystack_thread_fn(void *arg, const struct pystack_thread *thread);
/* Calls fn for each thread that Python knows, the newest first; the thread is borrowed. Returns how
 * many there were, or -EFAULT: the first thread could not be read. */
_must_use_ int pystack_read(const struct pystack_memory *m, const struct pystack_python *p,
                            pystack_thread_fn *fn, void *arg);

/* A number made of the main thread's frames, their code and their place in it: if it is the same a
 * second later although the thread ran all the time, the thread is in one call of C, or in a wait
 * that spins. 0: could not be read. */
uint64_t pystack_addresses(const struct pystack_memory *m, const struct pystack_python *p);

/* ---- the main thread again and again, at a third of the cost ----
 *
 *     w = pystack_watch_new(&python);
 *     r = pystack_watch_read(w, &memory, number, arg, &stack);    … */

struct pystack_watch;
struct pystack_watch *pystack_watch_new(const struct pystack_python *p);
void pystack_watch_free(struct pystack_watch *w); /* takes NULL */

/* The caller's number of a frame; called when the watch sees it for the first time, and perhaps
 * again. Below 0: an error. */
typedef int64_t pystack_number_fn(void *arg, const struct pystack_frame *frame);
struct pystack_numbers {
    uint32_t n;
    uint32_t of[PYSTACK_FRAMES_MAX]; /* innermost first */
    bool gc; /* the garbage collector runs; false also if that is not known */
};
/* -EAGAIN: the stack changed meanwhile, twice; -EFAULT: there is no such thread (yet); or the error
 * of fn. */
_must_use_ int pystack_watch_read(struct pystack_watch *w, const struct pystack_memory *m,
                                  pystack_number_fn *fn, void *arg, struct pystack_numbers *ret);

/* ---- a process of this machine ----
 *
 *     struct pystack_process p = {0};
 *     r = pystack_process_find(pid, &p, &err);             up to 10 ms; once for each process
 *     r = pystack_process_read(&p, on_thread, arg, &err);  about 0.2 ms
 *
 * It may block on the file system of the interpreter: call it in a helper with a deadline.
 *
 * Permissions: those of ptrace(2), PTRACE_MODE_ATTACH_REALCREDS: the same user and a process that
 * has not changed its own, or CAP_SYS_PTRACE. With Yama's ptrace_scope 1, root or an ancestor of
 * the process, or what it named by prctl(PR_SET_PTRACER), and that one's children. */

/* What is known of one process; the caller owns it, and may copy it, also between processes. */
struct pystack_process {
    int32_t pid;    /* as this process sees it */
    uint64_t start; /* its start in clock ticks since boot (proc.h): with the pid, one process */
    bool inner;     /* it is in a pid namespace below ours: tids have to be translated */
    struct pystack_python python;
};

/* The sentence of *err is the reason alone, without the process's name: "no Python is loaded in
 * it". -ESRCH: there is no such process; -ENOENT: no Python in it (yet); -ENOTSUP: its version is
 * not known; -EPERM: not permitted; -EBADMSG: it does not match its version. */
_must_use_ int pystack_process_find(int32_t pid, struct pystack_process *ret, struct err *err);

/* As pystack_read(), but the tids are those of this process's pid namespace. Returns how many
 * threads there were. -ESRCH also if the process is another one by now; or Python in it has not
 * begun, has ended, or was replaced by another program: find again. */
_must_use_ int pystack_process_read(const struct pystack_process *p, pystack_thread_fn *fn,
                                    void *arg, struct err *err);
/* As pystack_watch_read(); w is of p->python. It is not checked whether it is the same process. */
_must_use_ int pystack_process_watch(const struct pystack_process *p, struct pystack_watch *w,
                                     pystack_number_fn *fn, void *arg, struct pystack_numbers *ret);
/* As pystack_addresses(). */
uint64_t pystack_process_addresses(const struct pystack_process *p);
