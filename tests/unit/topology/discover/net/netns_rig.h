/* A network namespace of the test's own, set up with ip(8). */
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../../tree_rig.h"
#include "rig/unit.h"

/* Runs "ip" with these words, separated by blanks: its exit status. */
static inline int netns_ip(const char *line) {
    char words[256], *save = NULL;
    const char *argv[32] = {"ip"};
    size_t n = 1;
    (void)snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok_r(words, " ", &save); w != NULL && n < 31; w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    return tree_run(argv);
}

#define IP(line) cr_assert_eq(netns_ip(line), 0, "ip %s", line)

/* Enters a new one, with its own /sys if `own_sys`; the test is skipped if that is not allowed. */
static inline void netns_enter(bool own_sys) {
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0)
        cr_skip_test("no network namespace for us");
    if (netns_ip("link set lo up") != 0)
        cr_skip_test("no ip(8) here");
    if (own_sys &&
        (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("sys", "/sys", "sysfs", 0, NULL) < 0))
        cr_skip_test("no /sys of our own");
}

/* From here on this process gets no socket of `family`. */
static inline void netns_refuse(int family) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)family, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 13), /* EACCES */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        cr_skip_test("no seccomp here");
    cr_assert_lt(socket(family, family == AF_NETLINK ? SOCK_RAW : SOCK_DGRAM, 0), 0);
}

/* As under some containers' seccomp profiles. */
static inline void netns_refuse_netlink(void) { netns_refuse(AF_NETLINK); }

/* The kernel reports a link's carrier a little later. Only the test's own time limit ends this. */
static inline void netns_wait_running(const char *name, bool running) {
    struct ifreq q = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    (void)snprintf(q.ifr_name, sizeof q.ifr_name, "%s", name);
    cr_assert_geq(fd, 0);
    do
        cr_assert_eq(ioctl(fd, SIOCGIFFLAGS, &q), 0);
    while (((q.ifr_flags & IFF_RUNNING) != 0) != running && sched_yield() == 0);
    (void)close(fd);
}

/* eth0 is a veth with 10.9.0.1/24 and fd09::1/64, br0 a bridge with 10.9.1.1/24. */
static inline void netns_wire(void) {
    IP("link add eth0 type veth peer name peer0");
    IP("link set eth0 up");
    IP("link set peer0 up");
    IP("addr add 10.9.0.1/24 dev eth0");
    IP("addr add fd09::1/64 dev eth0 nodad");
    IP("link add br0 type bridge");
    IP("link set br0 up");
    IP("addr add 10.9.1.1/24 dev br0");
    netns_wait_running("eth0", true);
    while (system("ip -6 route show table local fd09::1 | grep -q .") != 0) /* the kernel adds it later */
        continue;
}
