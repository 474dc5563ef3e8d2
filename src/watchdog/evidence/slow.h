/* The closer look at a quiet worker, every 5 s, and when one begins to run little: whether anything
 * else of it moves, and whose movement counts for a worker that only waits for its child. slow.c is
 * pure; slow_io.c looks, in a helper with a deadline.
 *
 *     slow = slow_new(loop, signs);
 *     signs_sample(signs, now); slow_tick(slow, now);      each second
 *
 * If other threads compute while the main thread waits, the worker moves (struct signs_found). The
 * main thread of a program that trains in another thread does not move: its Python stack shows
 * whether there is such a thread, and then that one's movement counts.
 *
 * It does nothing while all workers move, and none runs all the time, or little; but where the
 * movement of another thread counts, it checks every minute whether that one still works. */
#pragma once

#include <stdbool.h>

#include "base/util.h"
#include "watchdog/look/pystack.h"
#include "watchdog/look/signs.h"

#define SLOW_EVERY_NS (5 * NS_PER_S)
#define SLOW_THREADS_NS (60 * NS_PER_S)
#define SLOW_DEADLINE_NS (2 * NS_PER_S)
#define SLOW_AGE_MAX_NS (15 * NS_PER_S) /* an older look is not compared */

/* More than a waiter does. Measured with PyTorch 2.13 and gloo: a rank that waits in a collective
 * uses 0.2 to 0.3 % of a core (its loop wakes 100 times a second), and one with a thread that
 * prints a line a second 25 bytes in 5 s. */
#define SLOW_BUSY_PERCENT 5         /* of a core */
#define SLOW_BYTES_PER_S (16 << 10) /* read and written, and by sockets */
/* A worker that exchanges so much with others does not only poll: all_reduce of one number in gloo
 * takes some 300 bytes. NCCL's monitor asks the store each second, so it does not count with a GPU.
 */
#define SLOW_TALKS_PER_S 50

/* Of one worker and all that stems from it. 0 is also what could not be read. */
struct slow_look {
    uint32_t rank; /* the first four are given */
    int32_t pid;
    bool hot;    /* its main thread may spin: its place is read */
    bool little; /* or it may only poll: the same */
    /* CPU time without that of the main thread and of NCCL's own threads, which spin in a job that
     * waits. Also of processes that it has waited for. */
    uint64_t cpu_ns;
    /* CPU time of the threads of the process that counts, without its main thread and those that
     * only poll (slow_is_poller()), which have used idle_ns. */
    uint64_t threads_ns, idle_ns;
    /* By read(2), write(2) and TCP sockets. While a thread waits in fsync(2), also what the kernel
     * has written to disks, for any process. */
    uint64_t bytes;
    uint64_t talked; /* bytes of the TCP sockets of the process itself */
    int32_t follow;  /* a child that its main thread waits for, or the child of that; 0: none */
    uint64_t follow_start; /* in clock ticks since boot */
    /* Only of a main thread that runs all the time, or little: where its Python frames are
     * (pystack_addresses()), or, without Python, the thread; 0: not known. One that is awake, or
     * was elsewhere at the last look, has the number of that if it is back there within a moment,
     * or is never seen asleep elsewhere. */
    uint64_t addresses;
    bool sleeps;   /* its main thread waits there for time: time.sleep(), q.get(timeout=) */
    bool receives; /* it waits there until something comes, without a time-out */
    bool spinners; /* its threads may spin while they wait: a GPU, or OMP_WAIT_POLICY=active */
    bool gpu;      /* the worker has a GPU open */
    bool nccl;     /* the process has threads of NCCL, or of PyTorch's process group for it */
    bool asks;     /* it, or the child that it waits for, waits for input from a person */
};

/* ---- slow.c ---- */

/* The process whose threads count. */
static inline int32_t slow_process(const struct slow_look *l) {
    return l->follow != 0 ? l->follow : l->pid;
}
/* What a look has found. before, was: the last look at this worker, and what it had found; NULL:
 * there was none. The threads of a process in which waiters may spin prove nothing. A main thread
 * that exchanges more than SLOW_TALKS_PER_S with others does not only poll. */
struct signs_found slow_compare(const struct slow_look *before, const struct signs_found *was,
                                uint64_t before_ns, const struct slow_look *now, uint64_t now_ns);
/* Whether a thread of this name is one of NCCL's own (ncclSetThreadName() in its source: only with
 * NCCL_SET_THREAD_NAME=1), or of PyTorch's process group of NCCL. */
bool slow_is_nccl(const char *name);
/* Whether it is one of a library that polls while others wait, too: NCCL, PyTorch's process groups
 * and store, UCX ("async"), PMIx and Open MPI's progress threads, libfabric's psm3. */
bool slow_is_poller(const char *name);
/* Whether this environment, with a NUL behind each variable and at its end, has OpenMP's threads
 * spin for long while they wait: OMP_WAIT_POLICY=active, KMP_BLOCKTIME=infinite, GOMP_SPINCOUNT. */
bool slow_omp_spins(const char *env, size_t len);

/* ---- slow_io.c ---- */

/* The sum of the numbers at rchar and wchar of /proc/PID/io; 0: not such a text. proc_pid_io(5) */
uint64_t slow_io_bytes(const char *text);
/* The pages that the kernel has written since boot: nr_written of /proc/vmstat. 0: not found. */
uint64_t slow_written_pages(const char *text);

struct slow;
struct loop;
/* Both are borrowed until slow_free(). loop NULL: slow_tick() waits for the answer itself. */
_must_use_ struct slow *slow_new(struct loop *loop, struct signs *signs);
void slow_free(struct slow *s); /* takes NULL */
void slow_tick(struct slow *s, uint64_t now_ns);
/* Why closer looks have failed for SLOW_AGE_MAX_NS, as -EMFILE; 0: they have not. */
int slow_error(const struct slow *s);
/* Whether the last look found threads of NCCL in this rank's process. */
bool slow_has_nccl(const struct slow *s, uint32_t rank);

struct work_thread {
    int32_t tid;    /* 0: none; the main thread works itself, or no thread does */
    uint64_t start; /* in clock ticks since boot */
};
/* A look at one worker. */
struct slow_task {
    struct slow_look look;         /* if little, the last place is given */
    bool find_thread;              /* a thread that does the work is searched for */
    uint64_t place;                /* look.addresses of the last look; 0: none */
    struct pystack_process python; /* found by an earlier look; pid 0: it is searched for */
    /* The thread that does the work of this process, as far as it is known: of the worker, or of
     * the process that it waits for. */
    int32_t thread_of;
    struct work_thread thread;
    struct pystack_process threads; /* the process, as far as it was found for that */
};
/* Looks at once, for a program that has nothing else to do. */
void slow_look(struct slow_task *tasks, size_t n);

/* Finds the thread that does the work of a Python process whose main thread only waits for it, in
 * join() or an event loop; with several, the one that has used the most CPU time. *python is what
 * an earlier call has found (pid 0: it is searched for), and *t that one's answer, which stays
 * while the thread lives and no other one is seen to work. gpu: the process has one open. Its
 * waiters spin there, and where Python does not identify threads (before 3.11), none is found. May
 * block on the file system of the interpreter: call it in a helper with a deadline. */
void work_thread_find(int32_t pid, bool gpu, struct pystack_process *python, struct work_thread *t);
