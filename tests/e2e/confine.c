/* Runs a program as a container without capabilities does, under a filter of system calls like Docker's default.
 *
 *     confine [caps] [filter] -- PROGRAM [ARGS...]
 *
 *     caps     takes all capabilities away, for ever (capabilities(7): the bounding set)
 *     filter   refuses what Docker's default profile refuses to a container without capabilities; clone3 does not exist
 *
 * Docker's profile names what is allowed; this one names what is refused, which is the same for the calls that exist
 * on this machine and that a launcher could want. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define AT(field) ((unsigned)offsetof(struct seccomp_data, field))
#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define IF_CALL(nr, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(nr), 0, 1), then

static void die(const char *what) {
    (void)fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void drop_capabilities(void) {
    for (unsigned long cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            die("PR_CAPBSET_DROP");
}

static const struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(nr)),
    IF_CALL(SYS_clone3, REFUSE(ENOSYS)),
    IF_CALL(SYS_unshare, REFUSE(EPERM)),
    IF_CALL(SYS_setns, REFUSE(EPERM)),
    IF_CALL(SYS_mount, REFUSE(EPERM)),
    IF_CALL(SYS_umount2, REFUSE(EPERM)),
    IF_CALL(SYS_pivot_root, REFUSE(EPERM)),
    IF_CALL(SYS_bpf, REFUSE(EPERM)),
    IF_CALL(SYS_perf_event_open, REFUSE(EPERM)),
    IF_CALL(SYS_userfaultfd, REFUSE(EPERM)),
    IF_CALL(SYS_keyctl, REFUSE(EPERM)),
    IF_CALL(SYS_add_key, REFUSE(EPERM)),
    IF_CALL(SYS_request_key, REFUSE(EPERM)),
    IF_CALL(SYS_mbind, REFUSE(EPERM)),
    IF_CALL(SYS_set_mempolicy, REFUSE(EPERM)),
    IF_CALL(SYS_get_mempolicy, REFUSE(EPERM)),
    IF_CALL(SYS_move_pages, REFUSE(EPERM)),
    IF_CALL(SYS_kcmp, REFUSE(EPERM)),
    IF_CALL(SYS_process_vm_readv, REFUSE(EPERM)),
    IF_CALL(SYS_process_vm_writev, REFUSE(EPERM)),
    IF_CALL(SYS_ptrace, REFUSE(EPERM)),
    IF_CALL(SYS_open_by_handle_at, REFUSE(EPERM)),
    IF_CALL(SYS_name_to_handle_at, REFUSE(EPERM)),
    IF_CALL(SYS_fanotify_init, REFUSE(EPERM)),
    IF_CALL(SYS_quotactl, REFUSE(EPERM)),
    IF_CALL(SYS_syslog, REFUSE(EPERM)),
    IF_CALL(SYS_acct, REFUSE(EPERM)),
    IF_CALL(SYS_clock_settime, REFUSE(EPERM)),
    IF_CALL(SYS_settimeofday, REFUSE(EPERM)),
    IF_CALL(SYS_sethostname, REFUSE(EPERM)),
    IF_CALL(SYS_vhangup, REFUSE(EPERM)),
    /* clone() with a namespace */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(args[0])),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1),
    REFUSE(EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void install_filter(void) {
    const struct sock_fprog program = {.len = sizeof filter / sizeof *filter,
                                       .filter = (struct sock_filter *)(void *)filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        die("PR_SET_SECCOMP");
}

int main(int argc, char **argv) {
    int i = 1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        die("PR_SET_NO_NEW_PRIVS");
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "caps") == 0)
            drop_capabilities();
        else if (strcmp(argv[i], "filter") == 0)
            install_filter();
        else
            die(argv[i]);
    }
    if (i + 1 >= argc)
        die("no program");
    (void)execvp(argv[i + 1], argv + i + 1);
    die(argv[i + 1]);
}
