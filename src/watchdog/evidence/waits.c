#include "watchdog/evidence/waits.h"

#include <asm/unistd.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

#define HEX_ADDRESS_MAX 32 /* of IPv6 */

static const struct {
    long number;
    const char *name;
    enum waits_kind kind;
} calls[] = {
#define CALL(name, kind) \
    { __NR_##name, #name, WAITS_##kind }
#ifdef __NR_poll /* not on newer architectures */
    CALL(poll, POLL),
    CALL(select, OTHER),
    CALL(epoll_wait, FD),
    CALL(pause, OTHER),
    CALL(open, PATH),
    CALL(stat, PATH),
    CALL(lstat, PATH),
    CALL(access, PATH),
    CALL(unlink, PATH),
    CALL(rename, PATH),
    CALL(mkdir, PATH),
    CALL(getdents, FD),
    CALL(readlink, PATH),
#endif
#ifdef __NR_newfstatat
    CALL(newfstatat, PATH_AT),
#endif
#ifdef __NR_epoll_pwait2
    CALL(epoll_pwait2, FD),
#endif
#ifdef __NR_renameat /* not on RISC-V */
    CALL(renameat, PATH_AT),
#endif
#ifdef __NR_openat2
    CALL(openat2, PATH_AT),
#endif
#ifdef __NR_faccessat2
    CALL(faccessat2, PATH_AT),
#endif
#ifdef __NR_futex_waitv
    CALL(futex_waitv, OTHER),
#endif
    CALL(read, DATA),
    CALL(write, FD),
    CALL(pread64, FD),
    CALL(pwrite64, FD),
    CALL(readv, DATA),
    CALL(writev, FD),
    CALL(preadv, FD),
    CALL(pwritev, FD),
    CALL(recvfrom, DATA),
    CALL(recvmsg, DATA),
    CALL(sendto, FD),
    CALL(sendmsg, FD),
    CALL(connect, FD),
    CALL(accept, DATA),
    CALL(accept4, DATA),
    CALL(ioctl, FD),
    CALL(fcntl, FD),
    CALL(flock, FD),
    CALL(fsync, DISK_FD),
    CALL(fdatasync, DISK_FD),
    CALL(fstat, FD),
    CALL(ftruncate, FD),
    CALL(fallocate, FD),
    CALL(close, DISK_FD),
    CALL(lseek, FD),
    CALL(getdents64, FD),
    CALL(sendfile, FD),
    CALL(splice, FD),
    CALL(sync_file_range, DISK_FD),
    CALL(epoll_pwait, FD),
    CALL(ppoll, POLL),
    CALL(pselect6, OTHER),
    CALL(futex, OTHER),
    CALL(nanosleep, OTHER),
    CALL(clock_nanosleep, OTHER),
    CALL(wait4, CHILD),
    CALL(waitid, CHILD),
    CALL(rt_sigtimedwait, OTHER),
    CALL(rt_sigsuspend, OTHER),
    CALL(openat, PATH_AT),
    CALL(statx, PATH_AT),
    CALL(faccessat, PATH_AT),
    CALL(unlinkat, PATH_AT),
    CALL(mkdirat, PATH_AT),
    CALL(renameat2, PATH_AT),
    CALL(readlinkat, PATH_AT),
    CALL(linkat, PATH_AT),
    CALL(symlinkat, PATH),
    CALL(fchmodat, PATH_AT),
    CALL(execve, PATH),
    CALL(mmap, OTHER),
    CALL(munmap, OTHER),
    CALL(mprotect, OTHER),
    CALL(madvise, OTHER),
    CALL(mlock, OTHER),
    CALL(msync, DISK),
    CALL(brk, OTHER),
    CALL(exit_group, OTHER),
    CALL(exit, OTHER),
    CALL(sched_yield, OTHER),
    CALL(semtimedop, OTHER),
    CALL(msgrcv, OTHER),
    CALL(mq_timedreceive, FD),
    CALL(io_getevents, OTHER),
    CALL(io_uring_enter, FD),
    CALL(sync, DISK),
    CALL(syncfs, DISK_FD),
    CALL(umount2, PATH),
    CALL(restart_syscall, OTHER),
    CALL(process_vm_readv, OTHER),
#undef CALL
};

const char *waits_call_name(long number) {
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].number == number)
            return calls[i].name;
    return NULL;
}

enum waits_kind waits_kind(long number) {
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].number == number)
            return calls[i].kind;
    return WAITS_OTHER;
}

/* Its second argument. */
static bool is_futex_wait(uint64_t operation) {
    uint64_t command = operation & FUTEX_CMD_MASK;
    return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

bool waits_for_time(const struct waits_call *call) {
    switch (call->number) {
    case __NR_nanosleep:
    case __NR_clock_nanosleep: return true;
#ifdef __NR_poll
    case __NR_select: return call->args[0] == 0;
    case __NR_poll: return call->args[1] == 0;
#endif
    case __NR_pselect6: return call->args[0] == 0;
    case __NR_ppoll: return call->args[1] == 0;
    case __NR_futex: return is_futex_wait(call->args[1]) && call->args[3] != 0;
    default: return false;
    }
}

bool waits_call_read(const char *text, size_t len, struct waits_call *ret) {
    char line[256];
    size_t n = MIN2(len, sizeof line - 1);
    memcpy(line, text, n);
    line[n] = '\0';
    struct waits_call c = {.number = -1};
    if (sscanf(line,
               "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %*s %*s %" SCNx64 " %" SCNx64,
               &c.number, &c.args[0], &c.args[1], &c.args[2], &c.args[3], &c.stack, &c.code) < 1)
        return false;
    *ret = c;
    return true;
}

uint64_t waits_socket_inode(const char *link) {
    uint64_t inode = 0;
    return sscanf(link, "socket:[%" SCNu64 "]", &inode) == 1 ? inode : 0;
}

void waits_target(const char *link, char *ret, size_t size) {
    static const char anon[] = "anon_inode:";
    if (strncmp(link, "pipe:[", 6) == 0)
        link = "pipe";
    else if (strncmp(link, "socket:[", 8) == 0)
        link = "socket";
    else if (strncmp(link, anon, sizeof anon - 1) == 0)
        link += sizeof anon - 1;
    utf8_copy(ret, size, link);
    size_t len = strlen(ret);
    if (ret[0] == '[' && ret[len - 1] == ']') {
        memmove(ret, ret + 1, len - 1);
        ret[len - 2] = '\0';
    }
}

static const char *state_name(unsigned state) {
    /* include/net/tcp_states.h */
    static const char *const names[] = {"",           "established", "syn-sent",  "syn-received",
                                        "fin-wait-1", "fin-wait-2",  "time-wait", "closed",
                                        "close-wait", "last-ack",    "listening", "closing"};
    return state < ARRAY_SIZE(names) ? names[state] : "";
}

/* Words of 32 bits, each in this machine's byte order. False: no address. */
static bool address(const char *hex, unsigned port, char *ret, size_t size) {
    uint8_t b[HEX_ADDRESS_MAX / 2];
    size_t len = strlen(hex);
    if (len != 8 && len != HEX_ADDRESS_MAX)
        return false;
    for (size_t i = 0; i < len; i += 8) {
        uint32_t word;
        if (sscanf(hex + i, "%8" SCNx32, &word) != 1)
            return false;
        memcpy(b + i / 2, &word, sizeof word);
    }
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool v4 = len == 8 || memcmp(b, mapped, sizeof mapped) == 0;
    const uint8_t *a = v4 && len != 8 ? b + 12 : b;
    int n;
    if (v4)
        n = snprintf(ret, size, "%u.%u.%u.%u:%u", a[0], a[1], a[2], a[3], port);
    else
        n = snprintf(ret, size, "[%x:%x:%x:%x:%x:%x:%x:%x]:%u", b[0] << 8 | b[1], b[2] << 8 | b[3],
                     b[4] << 8 | b[5], b[6] << 8 | b[7], b[8] << 8 | b[9], b[10] << 8 | b[11],
                     b[12] << 8 | b[13], b[14] << 8 | b[15], port);
    return n > 0 && (size_t)n < size;
}

static bool socket_line(const char *line, uint64_t inode, char ret[WAITS_SOCKET_MAX]) {
    char local[HEX_ADDRESS_MAX + 1], remote[HEX_ADDRESS_MAX + 1], from[56], to[56];
    unsigned local_port, remote_port, state;
    uint32_t sent, got;
    uint64_t this;
    if (sscanf(line,
               " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %" SCNx32 ":%" SCNx32
               " %*x:%*x %*x %*u %*u %" SCNu64,
               local, &local_port, remote, &remote_port, &state, &sent, &got, &this) != 8 ||
        this != inode)
        return false;
    if (!address(local, local_port, from, sizeof from) ||
        !address(remote, remote_port, to, sizeof to))
        return false;
    if (state == 10) /* listening */
        (void)snprintf(ret, WAITS_SOCKET_MAX, "tcp %s listening", from);
    else if (sent != 0 && state == 1)
        (void)snprintf(ret, WAITS_SOCKET_MAX, "tcp %s -> %s, %" PRIu32 " bytes unsent", from, to,
                       sent);
    else
        (void)snprintf(ret, WAITS_SOCKET_MAX, "tcp %s -> %s %s", from, to, state_name(state));
    return true;
}

/* Cuts off the port. */
static bool take_port(char *address, uint16_t *ret) {
    char *colon = strrchr(address, ':');
    if (colon == NULL || sscanf(colon, ":%" SCNu16, ret) != 1)
        return false;
    *colon = '\0';
    return true;
}

bool waits_connection(const char *target, struct waits_ends *ret) {
    return sscanf(target, "tcp %63s -> %63s", ret->own, ret->other) == 2 &&
           take_port(ret->own, &ret->own_port) && take_port(ret->other, &ret->other_port);
}

/* The next line of the table, without the rest of one that is too long. False: there is none. */
static bool next_line(const char **at, const char *end, char *line, size_t size) {
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    size_t n = (size_t)((stop == NULL ? end : stop) - *at), kept = n < size ? n : 0;
    memcpy(line, *at, kept);
    line[kept] = '\0';
    *at += n + 1;
    return true;
}

/* "   1: 0100007F:7275 0200007F:A001 06 ..." */
static bool is_time_wait(const char *line, const char *end) {
    for (unsigned i = 0; i < 3; i++) {
        while (line < end && *line == ' ')
            line++;
        while (line < end && *line != ' ')
            line++;
    }
    return end - line > 4 && memcmp(line, " 06 ", 4) == 0;
}

size_t waits_drop_closed(char *table, size_t len) {
    const char *end = table + len;
    char *kept = table;
    for (const char *at = table; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop == NULL ? end : stop + 1;
        size_t n = (size_t)(next - at);
        if (stop == NULL || !is_time_wait(at, stop)) {
            memmove(kept, at, n);
            kept += n;
        }
        at = next;
    }
    return (size_t)(kept - table);
}

size_t waits_connected(const char *table, size_t len, uint16_t port, uint64_t *ret, size_t max) {
    char line[256];
    size_t n = 0;
    for (const char *at = table; n < max && next_line(&at, table + len, line, sizeof line);) {
        unsigned remote_port, state;
        uint64_t inode;
        if (sscanf(line,
                   " %*u: %*32[0-9A-F]:%*x %*32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %*u %*u %" SCNu64,
                   &remote_port, &state, &inode) == 3 &&
            remote_port == port && state == 1 && inode != 0)
            ret[n++] = inode;
    }
    return n;
}

/* Only lines in which this number is are read: there can be many thousands of others. */
bool waits_socket(const char *table, size_t len, uint64_t inode, char ret[WAITS_SOCKET_MAX]) {
    char line[256], number[24];
    const char *end = table + len, *at = table;
    size_t n = (size_t)snprintf(number, sizeof number, " %" PRIu64 " ", inode);
    while ((at = memmem(at, (size_t)(end - at), number, n)) != NULL) {
        const char *before = memrchr(table, '\n', (size_t)(at - table));
        at = before == NULL ? table : before + 1;
        if (next_line(&at, end, line, sizeof line) && socket_line(line, inode, ret))
            return true;
        at = MIN2(at, end);
    }
    return false;
}
