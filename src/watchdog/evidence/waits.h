/* What a thread waits for in the kernel. waits.c is pure: words for it; thread_io.c reads the files
 * of /proc, which disturbs no process, and never blocks. */
#pragma once

#include <linux/inet_diag.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct waits_call {
    long
        number; /* of the system call on this machine; -1: it is in the kernel for another reason */
    uint64_t args[4];     /* its first arguments */
    uint64_t stack, code; /* where the thread is; 0: not known */
};
/* The text of /proc/PID/syscall. False: the thread runs, or no such text. proc_pid_syscall(5) */
_must_use_ bool waits_call_read(const char *text, size_t len, struct waits_call *ret);

/* "read"; NULL: a system call in which a thread does not usually wait. */
const char *waits_call_name(long number);

enum waits_kind {
    WAITS_OTHER = 0,
    WAITS_FD,   /* the first argument is a descriptor */
    WAITS_DATA, /* the same, and it only ends when something comes: read(2), recv(2), accept(2) */
    WAITS_DISK, /* it waits until what was written is on the disk: sync(2) */
    WAITS_DISK_FD, /* the same, of a descriptor: fsync(2), and close(2) of a file of NFS */
    WAITS_POLL,    /* the first argument points to that many (second argument) struct pollfd */
    WAITS_PATH,    /* the first argument points to a path */
    WAITS_PATH_AT, /* the second does */
    WAITS_CHILD,
};
enum waits_kind waits_kind(long number);
/* Whether it ends by itself: nanosleep(2), select(2) and poll(2) of no descriptor, futex(2) with a
 * time-out. */
bool waits_for_time(const struct waits_call *call);

/* Reads "tcp 10.0.0.1:4242 -> 10.0.0.2:29500 established" (thread_look()). False: not the text of a
 * connection. */
struct waits_ends {
    char own[64], other[64]; /* addresses, without the ports */
    uint16_t own_port, other_port;
};
_must_use_ bool waits_connection(const char *target, struct waits_ends *ret);
/* The number of "socket:[123]"; 0: not such a text. */
uint64_t waits_socket_inode(const char *link);
/* What /proc/PID/fd/N names, in a word where there is one: "pipe:[5]" -> "pipe",
 * "anon_inode:[eventpoll]" -> "eventpoll"; a path stays. */
void waits_target(const char *link, char *ret, size_t size);

/* ---- thread_io.c ---- */

/* A TCP socket of this process's network, by the kernel's list (sock_diag(7)). */
struct tcp_socket {
    uint64_t inode;
    struct inet_diag_msg at; /* addresses, ports, state: include/net/tcp_states.h */
    uint64_t bytes;          /* that it has sent and received */
};
#define TCP_SOCKET_ESTABLISHED 1
/* By what /proc/PID/fd/N names. NULL: it is none of these. The list can be THREAD_SOCKETS_AGE_NS
 * old; valid until then. */
const struct tcp_socket *thread_socket(const char *link);
#define THREAD_SOCKETS_AGE_NS NS_PER_S
/* Whether one of them is an established connection to this port of another end. */
bool thread_sockets_reach(uint16_t port);
/* Whether the list is complete. */
bool thread_sockets_known(void);

struct evidence_thread;
/* Of a thread of a process. -ESRCH: there is no such thread (any more). What there is no right to
 * read is empty: a wait and its target need that of ptrace(2), PTRACE_MODE_ATTACH_FSCREDS. A socket
 * is described as by waits_connection(), if it is thread_socket(). */
_must_use_ int thread_look(pid_t pid, pid_t tid, struct evidence_thread *ret);
/* Only the system call, and not what it waits for; number -1: it is in none, or it is not known. */
struct waits_call thread_call(pid_t pid, pid_t tid);
/* Only its CPU time. -ESRCH: there is no such thread (any more); -ENODATA: the kernel does not
 * report it. */
_must_use_ int thread_ran(pid_t pid, pid_t tid, uint64_t *ret_ns);
/* The kernel's functions in which the thread waits, a line each; malloc'ed. -EACCES, -EPERM: only
 * root may read it. */
_must_use_ int thread_kernel_stack(pid_t pid, pid_t tid, char **ret);
/* Whether a process waits for input from a person: a debugger's prompt, input(). Its standard input
 * is a terminal, and its main thread waits for that in read(2), select(2), poll(2) or
 * epoll_wait(2). False also if that cannot be seen: it needs the permission of ptrace(2),
 * PTRACE_MODE_ATTACH_FSCREDS. Reads files that never block, and stops nothing. */
_must_use_ bool terminal_is_awaited(pid_t pid);
