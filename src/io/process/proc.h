/* Processes and their boot, from /proc. Async-signal-safe: also for children before their exec. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text/cpuset.h"
#include "base/util.h"

typedef void proc_number_fn(void *arg, int number);

/* Calls fn(arg, number) for each entry of a directory that is a number above 0: processes, threads,
 * descriptors. Returns 0, or a negative errno; entries read before the error have been reported. */
_must_use_ int proc_each_number(const char *path, proc_number_fn *fn, void *arg);
/* Whether /proc shows the processes of this pid namespace. False if it is not mounted, or if it is
 * that of another pid namespace, as after unshare --pid without --mount-proc. */
bool proc_is_ours(void);
/* Calls fn(arg, pid) for each child of the process. by_file: uses the kernel's list, if there is
 * one (CONFIG_PROC_CHILDREN). Else it examines all processes. Finds none if !proc_is_ours(). */
void proc_each_child(pid_t parent, bool by_file, proc_number_fn *fn, void *arg);

#define PROC_PATH_MAX 64
/* Writes "/proc/PID" and the rest; pid 0: "self". */
void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest);
/* Reads the beginning of a file, up to size bytes; < 0: it can't be read. */
_must_use_ ssize_t proc_read_file(const char *path, char *buf, size_t size);
/* The same of /proc/PID/name. */
_must_use_ ssize_t proc_read(pid_t pid, const char *name, char *buf, size_t size);

struct proc_stat {
    char name[17];
    char state; /* 'Z': it has ended, and was not waited for */
    pid_t parent;
    int threads;    /* includes a main thread that has ended */
    uint64_t start; /* in clock ticks since boot; together with the pid it identifies one process */
    uint64_t ran_ns;      /* CPU time of all its threads, or of this thread */
    uint64_t children_ns; /* CPU time of the processes that it has waited for */
    uint64_t stack;       /* where its stack begins; an exec chooses this, and a fork keeps it */
};
/* Reads such a text and its NUL; missing numbers are 0. False: it is not one. proc_pid_stat(5) */
_must_use_ bool proc_parse_stat(const char *text, struct proc_stat *ret);
/* Reads /proc/PID/stat; pid 0: this process's. False: there is no such process. */
_must_use_ bool proc_read_stat(pid_t pid, struct proc_stat *ret);
/* The same of a thread: /proc/PID/task/TID/stat. */
_must_use_ bool proc_read_thread_stat(pid_t pid, pid_t tid, struct proc_stat *ret);
/* Calls fn for what each open descriptor above 0 of a process is, such as "socket:[123]", until it
 * returns false; a longer name is cut. Returns 0, or a negative errno: it can't be read. */
typedef bool proc_link_fn(void *arg, const char *link);
_must_use_ int proc_each_link(pid_t pid, proc_link_fn *fn, void *arg);
/* Whether this name of an open file is that of a GPU, of NVIDIA or AMD. */
bool proc_is_gpu(const char *link);
/* TracerPid of /proc/PID/status, in this pid namespace; 0: none, or one outside the namespace. */
pid_t proc_tracer(pid_t pid);

#define BOOT_ID_MAX 64
/* The kernel's random name of this boot. 0, or a negative errno and "". random(4) */
_must_use_ int proc_boot_id(char out[BOOT_ID_MAX]);

/* Writes at `at`, and returns where the text ends. */
char *proc_put_text(char *at, const char *text);
char *proc_put_number(char *at, int n);

/* ---- the CPUs that this process may use ---- */

/* How many: what --nproc-per-node=cpu means, as in torch since 2.9's torch._utils.cpu_count(). At
 * least 1. */
uint32_t cpu_count_allowed(void);
/* The affinity mask (sched_getaffinity(2)), up to CPUSET_MAX; false: the kernel does not report
 * it. */
bool cpu_allowed(struct cpuset *ret);
