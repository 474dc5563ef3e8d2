#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
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
#include "io/process/proc.h"
#include "watchdog/evidence/evidence.h"
#include "watchdog/evidence/waits.h"
#include "watchdog/look/signs.h"

#define PATH_BYTES 96
#define PAGE_BYTES 4096 /* or a multiple of it */
#define STAT_MAX 512
#define TABLE_MAX ((size_t)4 << 20) /* of the kernel's list of sockets */
#define SOCKETS_BYTES (64 << 10)    /* of it, in one read */

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

ssize_t thread_sockets(int dir, const char *name, char *text, size_t size, bool *ret_whole) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    size_t done = 0, len = 0; /* lines up to `done` were looked at */
    ssize_t n = 1;
    *ret_whole = false;
    if (fd < 0)
        return -errno;
    while (n > 0 && len < size) {
        n = read(fd, text + len, MIN2(size - len, (size_t)SOCKETS_BYTES));
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        len += n > 0 ? (size_t)n : 0;
        len = done + waits_drop_closed(text + done, len - done);
        const char *last = memrchr(text + done, '\n', len - done);
        done = last == NULL ? done : (size_t)(last + 1 - text);
    }
    int r = n < 0 ? -errno : 0;
    (void)close(fd);
    *ret_whole = n == 0;
    return r < 0 && len == 0 ? r : (ssize_t)len;
}

/* ---- what it waits for ---- */

/* The kernel's list of sockets of one network namespace, as it was lately. */
struct table {
    const char *name;
    uint64_t network, read_ns; /* 0: never */
    char *text;                /* for the process's life: helpers are short */
    ssize_t len;
};

static bool look_in(int dir, struct table *t, uint64_t inode, char ret[WAITS_SOCKET_MAX]) {
    struct stat net;
    uint64_t now = clock_now_ns();
    if (t->text == NULL)
        t->text = malloc(TABLE_MAX);
    if (t->text == NULL || fstatat(dir, "ns/net", &net, 0) < 0)
        return false;
    if (t->read_ns == 0 || t->network != net.st_ino || now - t->read_ns > THREAD_SOCKETS_AGE_NS) {
        bool whole;
        t->len = thread_sockets(dir, t->name, t->text, TABLE_MAX, &whole);
        t->network = net.st_ino;
        t->read_ns = now;
    }
    return t->len > 0 && waits_socket(t->text, (size_t)t->len, inode, ret);
}

static bool find_socket(int dir, uint64_t inode, char ret[WAITS_SOCKET_MAX]) {
    static struct table v4 = {.name = "net/tcp"}, v6 = {.name = "net/tcp6"};
    return look_in(dir, &v4, inode, ret) || look_in(dir, &v6, inode, ret);
}

static void name_fd(int dir, uint64_t fd, char *ret, size_t size) {
    char path[PATH_BYTES], link[EVIDENCE_TARGET_MAX], text[WAITS_SOCKET_MAX];
    if (fd > INT32_MAX)
        return;
    (void)snprintf(path, sizeof path, "fd/%u", (unsigned)fd);
    ssize_t n = readlinkat(dir, path, link, sizeof link - 1);
    if (n < 0)
        return;
    link[n] = '\0';
    uint64_t inode = waits_socket_inode(link);
    if (inode != 0 && find_socket(dir, inode, text))
        utf8_copy(ret, size, text);
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
        struct iovec here = {.iov_base = path + n, .iov_len = MIN2(sizeof path - n, to_page_end)};
        struct iovec there = {.iov_base = (void *)(uintptr_t)at, .iov_len = here.iov_len};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            return;
        if (memchr(path + n, '\0', (size_t)got) != NULL) {
            utf8_copy(ret, size, path);
            return;
        }
        n += (size_t)got;
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
    case WAITS_FD: name_fd(dir, call->args[0], t->target, sizeof t->target); break;
    case WAITS_POLL: name_polled(dir, pid, call, t->target, sizeof t->target); break;
    case WAITS_PATH: name_path(pid, call->args[0], t->target, sizeof t->target); break;
    case WAITS_PATH_AT: name_path(pid, call->args[1], t->target, sizeof t->target); break;
    case WAITS_CHILD:
    case WAITS_OTHER: break;
    }
}

/* ---- one thread ---- */

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
    return len > 0 && signs_ran(text, (size_t)len, ret_ns, &turns) ? 0 : -ENODATA;
}

int thread_ran(pid_t pid, pid_t tid, uint64_t *ret_ns) {
    int dir = open_dir(pid, tid);
    int r = dir < 0 ? dir : ran(dir, ret_ns);
    if (dir >= 0)
        (void)close(dir);
    return r;
}

void thread_call(pid_t pid, pid_t tid, struct waits_call *ret) {
    int dir = open_dir(pid, tid);
    *ret = dir < 0 ? (struct waits_call){.number = -1} : read_call(dir);
    if (dir >= 0)
        (void)close(dir);
}

int thread_look(pid_t pid, pid_t tid, struct evidence_thread *ret) {
    char stat[STAT_MAX];
    int dir = open_dir(pid, tid);
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
    (void)close(dir);
    if (n <= 0)
        return -ESRCH;
    *ret = t;
    return 0;
}

int thread_kernel_stack(pid_t pid, pid_t tid, char **ret) {
    char text[EVIDENCE_TEXT_MAX / 4];
    int dir = open_dir(pid, tid);
    if (dir < 0)
        return dir;
    ssize_t n = read_at(dir, "stack", text, sizeof text);
    (void)close(dir);
    if (n < 0)
        return (int)n;
    *ret = xstrdup(text);
    return 0;
}

/* ---- whether a process waits for input from a person ---- */

#define LINK_MAX_BYTES 64
#define POLLED_MAX 64
#define TEXT_MAX 4096

/* What a descriptor is, as /proc names it. "": it is not open, or has a longer name. */
static void name_of(pid_t pid, uint64_t fd, char out[LINK_MAX_BYTES]) {
    char path[PROC_PATH_MAX], rest[32];
    out[0] = '\0';
    if (fd > INT32_MAX)
        return;
    (void)snprintf(rest, sizeof rest, "/fd/%" PRIu64, fd);
    proc_path(path, pid, rest);
    ssize_t n = readlink(path, out, LINK_MAX_BYTES);
    out[n < 0 || n == LINK_MAX_BYTES ? 0 : n] = '\0';
}

/* By its name: to ask the file itself could block. */
static bool is_terminal(const char *name) {
    return strncmp(name, "/dev/pts/", 9) == 0 || strncmp(name, "/dev/tty", 8) == 0 ||
           strcmp(name, "/dev/console") == 0;
}

static bool is_input(pid_t pid, uint64_t fd, const char *terminal) {
    char name[LINK_MAX_BYTES];
    name_of(pid, fd, name);
    return strcmp(name, terminal) == 0;
}

static bool is_selected(pid_t pid, uint64_t n, uint64_t address, const char *terminal) {
    fd_set set;
    uint64_t bits = 8 * sizeof(long), words = (MIN2(n, (uint64_t)FD_SETSIZE) + bits - 1) / bits;
    size_t size = (size_t)words * sizeof(long);
    FD_ZERO(&set);
    if (address == 0 || size == 0 || !read_memory(pid, address, &set, size))
        return false;
    for (uint64_t fd = 0; fd < MIN2(n, 8 * (uint64_t)size); fd++)
        if (FD_ISSET((int)fd, &set) && is_input(pid, fd, terminal))
            return true;
    return false;
}

static bool is_polled(pid_t pid, uint64_t address, uint64_t n, const char *terminal) {
    struct pollfd list[POLLED_MAX];
    size_t count = (size_t)MIN2(n, (uint64_t)POLLED_MAX);
    if (count == 0 || !read_memory(pid, address, list, count * sizeof *list))
        return false;
    for (size_t i = 0; i < count; i++)
        if (list[i].fd >= 0 && (list[i].events & POLLIN) != 0 &&
            is_input(pid, (uint64_t)list[i].fd, terminal))
            return true;
    return false;
}

/* proc_pid_fdinfo(5): "tfd:        0 events:       19 data: ..." */
static bool is_in_epoll(pid_t pid, uint64_t epoll, const char *terminal) {
    char rest[32], text[TEXT_MAX];
    (void)snprintf(rest, sizeof rest, "/fdinfo/%" PRIu64, epoll);
    ssize_t n = epoll > INT32_MAX ? -1 : proc_read(pid, rest, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    for (const char *at = strstr(text, "tfd:"); at != NULL; at = strstr(at + 1, "tfd:")) {
        uint64_t fd;
        unsigned events;
        if (sscanf(at, "tfd: %" SCNu64 " events: %x", &fd, &events) == 2 &&
            (events & EPOLLIN) != 0 && is_input(pid, fd, terminal))
            return true;
    }
    return false;
}

bool terminal_is_awaited(pid_t pid) {
    char terminal[LINK_MAX_BYTES];
    struct waits_call call;
    name_of(pid, STDIN_FILENO, terminal);
    if (!is_terminal(terminal))
        return false;
    thread_call(pid, pid, &call);
    switch (call.number) {
    case SYS_read:
    case SYS_readv: return is_input(pid, call.args[0], terminal);
#ifdef SYS_select /* not on newer architectures */
    case SYS_select:
#endif
    case SYS_pselect6: return is_selected(pid, call.args[0], call.args[1], terminal);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll: return is_polled(pid, call.args[0], call.args[1], terminal);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait: return is_in_epoll(pid, call.args[0], terminal);
    default: return false;
    }
}
