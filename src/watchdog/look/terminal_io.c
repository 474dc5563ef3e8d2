#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/process/proc.h"
#include "watchdog/look/signs.h"

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

/* False: not all of it could be read. */
static bool read_memory(pid_t pid, uint64_t address, void *to, size_t size) {
    struct iovec here = {.iov_base = to, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
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
    char terminal[LINK_MAX_BYTES], rest[48], text[256];
    long call;
    uint64_t a, b;
    name_of(pid, STDIN_FILENO, terminal);
    if (!is_terminal(terminal))
        return false;
    (void)snprintf(rest, sizeof rest, "/task/%d/syscall", (int)pid);
    ssize_t n = proc_read(pid, rest, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (sscanf(text, "%ld %" SCNx64 " %" SCNx64, &call, &a, &b) != 3)
        return false; /* it runs, or is stopped */
    switch (call) {
    case SYS_read:
    case SYS_readv: return is_input(pid, a, terminal);
#ifdef SYS_select /* not on newer architectures */
    case SYS_select:
#endif
    case SYS_pselect6: return is_selected(pid, a, b, terminal);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll: return is_polled(pid, a, b, terminal);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait: return is_in_epoll(pid, a, terminal);
    default: return false;
    }
}
