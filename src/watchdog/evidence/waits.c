#include "watchdog/evidence/waits.h"

#include <asm/unistd.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

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
