/* What is looked at only while a worker is quiet, every 5 s: whether anything else of it moves. Two
 * looks make flags of signs.h. Pure; slow_io.h looks. */
#pragma once

#include <stdbool.h>

#include "base/util.h"
#include "watchdog/look/signs.h"

#define SLOW_EVERY_NS (5 * NS_PER_S)
#define SLOW_AGE_MAX_NS (15 * NS_PER_S) /* an older look is compared with no more */

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
    uint32_t rank;
    int32_t pid;
    /* CPU time without that of the main thread and of NCCL's own threads, which spin in a job that
     * waits. Of processes, also of those that it has waited for. */
    uint64_t cpu_ns;
    /* CPU time of the threads of the process that counts, without its main thread and those that
     * only poll (slow_is_poller()), which have used idle_ns. */
    uint64_t threads_ns, idle_ns;
    /* By read(2), write(2) and the like; and of TCP sockets. While a thread waits in fsync(2), also
     * those that the kernel has written to the disks of this machine, for whomever. */
    uint64_t bytes;
    uint64_t talked; /* bytes of the TCP sockets of the process itself */
    int32_t follow;  /* a child that its main thread waits for, or the child of that; 0: none */
    uint64_t follow_start; /* in clock ticks since boot */
    /* Only of a main thread that runs all the time, or little: a number made of where its Python
     * frames are (pystack_addresses()), or, without Python, the thread; 0: not known. One that is
     * awake, or was elsewhere at the last look, has the number of that if it is back there within a
     * moment, or is never seen asleep elsewhere. */
    uint64_t addresses;
    bool sleeps; /* its main thread waits there for time, as time.sleep() and q.get(timeout=) do */
    bool receives; /* it waits there until something comes, without a time-out */
    bool spinners; /* its threads may spin while they wait: a GPU, or OMP_WAIT_POLICY=active */
    bool gpu;      /* the worker has a GPU open */
    bool nccl;     /* the process has threads of NCCL, or of PyTorch's process group for it */
    bool asks;     /* it, or the child that it waits for, waits for somebody to type */
};

/* SIGN_BUSY and SIGN_BYTES, of what it did in `elapsed_ns` between two looks. A figure that fell
 * (a process that nobody waited for has ended) says nothing. */
uint32_t slow_flags(const struct slow_look *before, const struct slow_look *now,
                    uint64_t elapsed_ns);
/* Whether the main thread only spun between two looks: it was at the same place of its program, and
 * has a GPU. NCCL's waiters spin so; without a GPU it computes, in one call. */
bool slow_spins(const struct slow_look *before, const struct slow_look *now, uint64_t elapsed_ns);
/* Whether the main thread, which runs little, only wakes for moments: it sleeps, and did at the
 * last look, at the same place, and its process exchanges nothing with others. The first look
 * (before NULL, or too old) takes it for granted. */
bool slow_polls(const struct slow_look *before, const struct slow_look *now, uint64_t elapsed_ns);
/* Whether the main thread was at different places. */
bool slow_changed(const struct slow_look *before, const struct slow_look *now, uint64_t elapsed_ns);
/* Whether the threads of the process computed between two looks: SIGNS_COMPUTES_PERCENT. Those of a
 * process in which waiters may spin say nothing. */
bool slow_computes(const struct slow_look *before, const struct slow_look *now,
                   uint64_t elapsed_ns);
/* Whether a thread of this name is one of NCCL's own (ncclSetThreadName() in its source: only with
 * NCCL_SET_THREAD_NAME=1), or of PyTorch's process group of NCCL. */
bool slow_is_nccl(const char *name);
/* Whether it is one of a library that polls while others wait, too: NCCL, PyTorch's process groups
 * and store ("pt_nccl_watchdg", "pt_gloo_runloop", "pt_tcpstore_uv"), UCX ("async"), PMIx and
 * Open MPI's progress threads, libfabric's psm3. */
bool slow_is_poller(const char *name);
/* Whether this environment, with a NUL behind each variable and at its end, has OpenMP's threads
 * spin for long while they wait: OMP_WAIT_POLICY=active, KMP_BLOCKTIME=infinite, GOMP_SPINCOUNT. */
bool slow_omp_spins(const char *env, size_t len);
/* What a file in a thread's Python stack says of the thread. One of the main thread: that it works,
 * or waits for others itself (torch.distributed, a data loader). One of another thread: that this
 * one does the work of the process, and no pinning of memory or watching of compilers. */
enum slow_frame { SLOW_FRAME_NONE, SLOW_FRAME_WORKS, SLOW_FRAME_HELPS };
enum slow_frame slow_main_frame(const char *file); /* _NONE or _WORKS */
enum slow_frame slow_thread_frame(const char *file);
/* The sum of the numbers at rchar and wchar of /proc/PID/io. proc_pid_io(5) */
uint64_t slow_io_bytes(const char *text, size_t len);
/* The pages that the kernel has written since boot: nr_written of /proc/vmstat. 0: it is not there.
 */
uint64_t slow_written_pages(const char *text, size_t len);
