#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "io/net/netlink.h"
#include "io/process/proc.h"
#include "watchdog/evidence/evidence.h"
#include "watchdog/evidence/waits.h"
#include "watchdog/look/signs.h"

#define PATH_BYTES 96
#define PAGE_BYTES 4096 /* or a multiple of it */
#define STAT_MAX 512
#define SOCKETS_MAX 65536

/* < 0: it can't be read. The text ends with a NUL. */
static ssize_t read_at(int dir, const char *name, char *buf, size_t size) {
    _cleanup_(file_close) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -errno : file_read_all(fd, buf, size - 1);
    buf[MAX2(n, 0)] = '\0';
    return n;
}

static void read_word(int dir, const char *name, char *ret, size_t size) {
    char buf[EVIDENCE_WORD_MAX];
    if (read_at(dir, name, buf, sizeof buf) < 0)
        return;
    buf[strcspn(buf, "\n")] = '\0';
    utf8_copy(ret, size, buf);
}

/* ---- sockets ---- */

#define STATE_TIME_WAIT 6 /* include/net/tcp_states.h: no process has these */
#define STATE_LISTEN 10

/* By inode, as they were lately. For the process's life: helpers are short. */
static struct {
    struct tcp_socket *list;
    size_t n;
    uint64_t read_ns; /* 0: never */
    bool whole;
} sockets;

static void add_socket(void *arg, const struct netlink_answer *answer) {
    struct tcp_socket s = {0};
    struct netlink_attribute a[INET_DIAG_INFO + 1];
    struct tcp_info info = {0};
    if (!netlink_answer_is(answer, SOCK_DIAG_BY_FAMILY, &s.at, sizeof s.at, a, INET_DIAG_INFO) ||
        s.at.idiag_inode == 0)
        return;
    if (sockets.n == SOCKETS_MAX) {
        sockets.whole = false;
        return;
    }
    if (a[INET_DIAG_INFO].data != NULL) /* an older kernel's is shorter */
        memcpy(&info, a[INET_DIAG_INFO].data, MIN2(a[INET_DIAG_INFO].size, sizeof info));
    s.inode = s.at.idiag_inode;
    s.bytes = info.tcpi_bytes_acked + info.tcpi_bytes_received;
    sockets.list = xgrow(sockets.list, sockets.n, sizeof s);
    sockets.list[sockets.n++] = s;
}

static int by_inode(const void *a, const void *b) {
    uint64_t x = ((const struct tcp_socket *)a)->inode, y = ((const struct tcp_socket *)b)->inode;
    return x < y ? -1 : x > y;
}

static void read_sockets(void) {
    uint64_t now = clock_now_ns();
    if (sockets.read_ns != 0 && now - sockets.read_ns <= THREAD_SOCKETS_AGE_NS)
        return;
    sockets.n = 0;
    sockets.whole = true;
    if (netlink_ask_tcp(~(UINT32_C(1) << STATE_TIME_WAIT), add_socket, NULL) < 0)
        sockets.whole = false; /* what came counts */
    if (sockets.n > 0)
        qsort(sockets.list, sockets.n, sizeof *sockets.list, by_inode);
    sockets.read_ns = now;
}

const struct tcp_socket *thread_socket(const char *link) {
    struct tcp_socket key = {.inode = waits_socket_inode(link)};
    if (key.inode == 0)
        return NULL;
    read_sockets();
    return sockets.n == 0 ? NULL : bsearch(&key, sockets.list, sockets.n, sizeof key, by_inode);
}

bool thread_sockets_reach(uint16_t port) {
    bool found = false;
    read_sockets();
    for (size_t i = 0; i < sockets.n; i++)
        found |= sockets.list[i].at.idiag_state == TCP_SOCKET_ESTABLISHED &&
                 ntohs(sockets.list[i].at.id.idiag_dport) == port;
    return found;
}

bool thread_sockets_known(void) {
    read_sockets();
    return sockets.whole;
}

static void name_socket(const struct tcp_socket *s, char *ret, size_t size) {
    static const char *const states[] = {"",           "established", "syn-sent",  "syn-received",
                                         "fin-wait-1", "fin-wait-2",  "time-wait", "closed",
                                         "close-wait", "last-ack",    "listening", "closing"};
    const struct inet_diag_msg *m = &s->at;
    struct addr own = addr_from_bytes(m->idiag_family, m->id.idiag_src, ntohs(m->id.idiag_sport));
    struct addr other = addr_from_bytes(m->idiag_family, m->id.idiag_dst, ntohs(m->id.idiag_dport));
    char from[ADDR_TEXT_MAX], to[ADDR_TEXT_MAX];
    addr_to_text(&own, from);
    addr_to_text(&other, to);
    if (m->idiag_state == STATE_LISTEN)
        (void)snprintf(ret, size, "tcp %s listening", from);
    else if (m->idiag_wqueue != 0 && m->idiag_state == TCP_SOCKET_ESTABLISHED)
        (void)snprintf(ret, size, "tcp %s -> %s, %" PRIu32 " bytes unsent", from, to,
                       m->idiag_wqueue);
    else
        (void)snprintf(ret, size, "tcp %s -> %s %s", from, to,
                       m->idiag_state < ARRAY_SIZE(states) ? states[m->idiag_state] : "");
}

/* What a descriptor is, as /proc names it. False: it is not open. */
static bool read_link(int dir, uint64_t fd, char ret[EVIDENCE_TARGET_MAX]) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "fd/%" PRIu64, fd);
    ssize_t n = fd > INT32_MAX ? -1 : readlinkat(dir, path, ret, EVIDENCE_TARGET_MAX - 1);
    ret[MAX2(n, 0)] = '\0';
    return n >= 0;
}

static void name_fd(int dir, uint64_t fd, char *ret, size_t size) {
    char link[EVIDENCE_TARGET_MAX];
    if (!read_link(dir, fd, link))
        return;
    const struct tcp_socket *s = thread_socket(link);
    if (s != NULL)
        name_socket(s, ret, size);
    else
        waits_target(link, ret, size);
}

/* False: not all of it could be read. */
static bool read_memory(pid_t pid, uint64_t address, void *to, size_t size) {
    struct iovec here = {.iov_base = to, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* The first of the descriptors that it polls. */
static void name_polled(int dir, pid_t pid, const struct waits_call *c, char *ret, size_t size) {
    struct pollfd first;
    if (c->args[1] == 0 || !read_memory(pid, c->args[0], &first, sizeof first) || first.fd < 0)
        return;
    name_fd(dir, (uint64_t)first.fd, ret, size);
    size_t len = strlen(ret);
    if (c->args[1] > 1 && len > 0)
        (void)snprintf(ret + len, size - len, " and %u more", (unsigned)(c->args[1] - 1));
}

/* A path in the memory of the process, as it was given to the call. One that is too long, or can't
 * be read, is none. */
static void name_path(pid_t pid, uint64_t address, char *ret, size_t size) {
    char path[EVIDENCE_TARGET_MAX];
    size_t n = 0;
    while (n < sizeof path) {
        uint64_t at = address + n, to_page_end = PAGE_BYTES - at % PAGE_BYTES;
        size_t part = MIN2(sizeof path - n, to_page_end);
        if (!read_memory(pid, at, path + n, part))
            return;
        if (memchr(path + n, '\0', part) != NULL) {
            utf8_copy(ret, size, path);
            return;
        }
        n += part;
    }
}

static struct waits_call read_call(int dir) {
    struct waits_call call = {.number = -1};
    char text[256];
    ssize_t n = read_at(dir, "syscall", text, sizeof text);
    return n > 0 && waits_call_read(text, (size_t)n, &call) ? call
                                                            : (struct waits_call){.number = -1};
}

static void name_call(int dir, pid_t pid, const struct waits_call *call,
                      struct evidence_thread *t) {
    if (call->number < 0)
        return;
    const char *name = waits_call_name(call->number);
    if (name != NULL)
        utf8_copy(t->syscall, sizeof t->syscall, name);
    else
        (void)snprintf(t->syscall, sizeof t->syscall, "system call %ld", call->number);
    switch (waits_kind(call->number)) {
    case WAITS_FD:
    case WAITS_DATA:
    case WAITS_DISK_FD: name_fd(dir, call->args[0], t->target, sizeof t->target); break;
    case WAITS_POLL: name_polled(dir, pid, call, t->target, sizeof t->target); break;
    case WAITS_PATH: name_path(pid, call->args[0], t->target, sizeof t->target); break;
    case WAITS_PATH_AT: name_path(pid, call->args[1], t->target, sizeof t->target); break;
    case WAITS_CHILD:
    case WAITS_DISK:
    case WAITS_OTHER: break;
    }
}

static int open_dir(pid_t pid, pid_t tid) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d", (int)pid, (int)tid);
    int dir = open(path, O_DIRECTORY | O_CLOEXEC);
    return dir >= 0 ? dir : errno == ENOENT ? -ESRCH : -errno;
}

static int ran(int dir, uint64_t *ret_ns) {
    char text[STAT_MAX];
    uint64_t turns;
    ssize_t len = read_at(dir, "schedstat", text, sizeof text);
    if (len == -ESRCH)
        return -ESRCH;
    return len > 0 && signs_ran(text, ret_ns, &turns) ? 0 : -ENODATA;
}

int thread_ran(pid_t pid, pid_t tid, uint64_t *ret_ns) {
    _cleanup_(file_close) int dir = open_dir(pid, tid);
    return dir < 0 ? dir : ran(dir, ret_ns);
}

struct waits_call thread_call(pid_t pid, pid_t tid) {
    _cleanup_(file_close) int dir = open_dir(pid, tid);
    return read_call(dir);
}

int thread_look(pid_t pid, pid_t tid, struct evidence_thread *ret) {
    char stat[STAT_MAX];
    _cleanup_(file_close) int dir = open_dir(pid, tid);
    if (dir < 0)
        return dir;
    struct evidence_thread t = {.tid = tid, .stack = -1};
    struct proc_stat parsed;
    ssize_t n = read_at(dir, "stat", stat, sizeof stat);
    if (n > 0 && proc_parse_stat(stat, &parsed))
        t.state = parsed.state;
    read_word(dir, "comm", t.name, sizeof t.name);
    read_word(dir, "wchan", t.wchan, sizeof t.wchan);
    if (strcmp(t.wchan, "0") == 0)
        t.wchan[0] = '\0';
    if (t.state != 'R' && t.state != 'Z') {
        const struct waits_call call = read_call(dir);
        name_call(dir, pid, &call, &t);
    }
    if (ran(dir, &t.ran_ns) < 0)
        t.ran_ns = 0;
    if (n <= 0)
        return -ESRCH;
    *ret = t;
    return 0;
}

int thread_kernel_stack(pid_t pid, pid_t tid, char **ret) {
    char text[EVIDENCE_TEXT_MAX / 4];
    _cleanup_(file_close) int dir = open_dir(pid, tid);
    if (dir < 0)
        return dir;
    ssize_t n = read_at(dir, "stack", text, sizeof text);
    if (n < 0)
        return (int)n;
    *ret = xstrdup(text);
    return 0;
}

#define POLLED_MAX 64
#define FDINFO_MAX 4096

/* Whose wait for input is looked at. */
struct waiter {
    pid_t pid;
    int dir;                            /* of its main thread in /proc */
    char terminal[EVIDENCE_TARGET_MAX]; /* its standard input */
};

/* By its name: to ask the file itself could block. */
static bool is_terminal(const char *name) {
    return strncmp(name, "/dev/pts/", 9) == 0 || strncmp(name, "/dev/tty", 8) == 0 ||
           strcmp(name, "/dev/console") == 0;
}

static bool is_input(const struct waiter *w, uint64_t fd) {
    char name[EVIDENCE_TARGET_MAX];
    return read_link(w->dir, fd, name) && strcmp(name, w->terminal) == 0;
}

static bool is_selected(const struct waiter *w, uint64_t n, uint64_t address) {
    fd_set set;
    uint64_t bits = 8 * sizeof(long), words = (MIN2(n, (uint64_t)FD_SETSIZE) + bits - 1) / bits;
    size_t size = (size_t)words * sizeof(long);
    FD_ZERO(&set);
    if (address == 0 || size == 0 || !read_memory(w->pid, address, &set, size))
        return false;
    for (uint64_t fd = 0; fd < MIN2(n, 8 * (uint64_t)size); fd++)
        if (FD_ISSET((int)fd, &set) && is_input(w, fd))
            return true;
    return false;
}

static bool is_polled(const struct waiter *w, uint64_t address, uint64_t n) {
    struct pollfd list[POLLED_MAX];
    size_t count = (size_t)MIN2(n, (uint64_t)POLLED_MAX);
    if (count == 0 || !read_memory(w->pid, address, list, count * sizeof *list))
        return false;
    for (size_t i = 0; i < count; i++)
        if (list[i].fd >= 0 && (list[i].events & POLLIN) != 0 && is_input(w, (uint64_t)list[i].fd))
            return true;
    return false;
}

/* proc_pid_fdinfo(5): "tfd:        0 events:       19 data: ..." */
static bool is_in_epoll(const struct waiter *w, uint64_t epoll) {
    char path[PATH_BYTES], text[FDINFO_MAX];
    (void)snprintf(path, sizeof path, "fdinfo/%" PRIu64, epoll);
    if (epoll > INT32_MAX || read_at(w->dir, path, text, sizeof text) < 0)
        return false;
    for (const char *at = strstr(text, "tfd:"); at != NULL; at = strstr(at + 1, "tfd:")) {
        uint64_t fd;
        unsigned events;
        if (sscanf(at, "tfd: %" SCNu64 " events: %x", &fd, &events) == 2 &&
            (events & EPOLLIN) != 0 && is_input(w, fd))
            return true;
    }
    return false;
}

bool terminal_is_awaited(pid_t pid) {
    _cleanup_(file_close) int dir = open_dir(pid, pid);
    struct waiter w = {.pid = pid, .dir = dir};
    if (dir < 0 || !read_link(dir, STDIN_FILENO, w.terminal) || !is_terminal(w.terminal))
        return false;
    const struct waits_call call = read_call(dir);
    switch (call.number) {
    case SYS_read:
    case SYS_readv: return is_input(&w, call.args[0]);
#ifdef SYS_select /* not on newer architectures */
    case SYS_select:
#endif
    case SYS_pselect6: return is_selected(&w, call.args[0], call.args[1]);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll: return is_polled(&w, call.args[0], call.args[1]);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait: return is_in_epoll(&w, call.args[0]);
    default: return false;
    }
}
