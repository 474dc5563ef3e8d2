/* The Python stacks of another process, read from its memory while it runs, which neither stops it
 * nor attaches to it. Pure: the memory is a callback, and pystack_io.h finds process and runtime.
 *
 *     r = pystack_open(&memory, &found, &python, &err);
 *     r = pystack_read(&memory, &python, on_thread, arg);
 *
 * The process goes on meanwhile. So what is read can be half changed, and any pointer and any
 * length can be wrong: each read is checked and each loop is bounded, but a stack of a thread that
 * runs can mix two moments. That of a thread that waits is right.
 *
 * A frame is named as by CPython's faulthandler: the code's name, its file and the line. Left out
 * are frames that are no Python code, and those that have not begun. */
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

/* A number made of the main thread's frames, their code and their place in it, but of no name: if
 * it is the same a second later although the thread ran all the time, the thread is in one call of
 * C, or in a wait that spins. 0: could not be read. Never 0 otherwise. */
uint64_t pystack_addresses(const struct pystack_memory *m, const struct pystack_python *p);
