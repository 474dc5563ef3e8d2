#include "io/net/port_owner.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/utf8.h"
#include "io/net/netlink.h"
#include "io/process/proc.h"

/* enum tcp_states of the kernel: TCP_LISTEN */
#define STATE_LISTEN 0x0a
#define HOLDERS_MAX 16

struct search {
    uint64_t inodes[HOLDERS_MAX]; /* the sockets that listen there */
    unsigned n_inodes;
    struct stat self; /* this program's file */
    pid_t pid;        /* whose descriptors are being read */
    struct port_owner found;
};

/* The text is the address in memory order, as words of 32 bits in the machine's byte order. */
static bool read_address(const char *hex, sa_family_t family, uint16_t port, struct addr *ret) {
    uint32_t words[4];
    unsigned n = family == AF_INET ? 1 : 4;
    *ret = (struct addr){0};
    for (unsigned i = 0; i < n; i++, hex += 8)
        if (sscanf(hex, "%8" SCNx32, &words[i]) != 1)
            return false;
    ret->ss.ss_family = family;
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&ret->ss;
        memcpy(&in->sin_addr, words, sizeof in->sin_addr);
        ret->len = sizeof *in;
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ret->ss;
        memcpy(&in6->sin6_addr, words, sizeof in6->sin6_addr);
        ret->len = sizeof *in6;
    }
    addr_set_port(ret, port);
    return true;
}

/* Adds the listening sockets of one table that are in the way. */
static void read_table(const char *path, sa_family_t family, const struct addr *at,
                       struct search *s) {
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    char line[512], host[33];
    while (s->n_inodes < HOLDERS_MAX && fgets(line, sizeof line, f) != NULL) {
        unsigned port, state;
        uint64_t inode;
        struct addr own;
        if (sscanf(line, " %*u: %32[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*u %*d %" SCNu64, host, &port,
                   &state, &inode) != 4 ||
            state != STATE_LISTEN || port != addr_port(at) ||
            strlen(host) != (family == AF_INET ? 8 : 32) ||
            !read_address(host, family, (uint16_t)port, &own))
            continue;
        if (addr_is_wildcard(&own) || addr_is_wildcard(at) || addr_same_host(&own, at))
            s->inodes[s->n_inodes++] = inode;
    }
    (void)fclose(f);
}

static bool on_link(void *arg, const char *link) {
    struct search *s = arg;
    uint64_t inode;
    if (sscanf(link, "socket:[%" SCNu64 "]", &inode) != 1)
        return true;
    for (unsigned i = 0; i < s->n_inodes; i++)
        if (s->inodes[i] == inode)
            s->found.pid = s->pid;
    return s->found.pid == 0;
}

static void on_process(void *arg, int pid) {
    struct search *s = arg;
    s->pid = pid;
    if (s->found.pid == 0 && proc_each_link(pid, on_link, s) < 0)
        return; /* another user's, or it has just ended */
}

static void describe(struct search *s) {
    struct port_owner *o = &s->found;
    struct proc_stat stat_;
    struct stat file;
    char path[PROC_PATH_MAX];
    if (proc_read_stat(o->pid, &stat_))
        (void)snprintf(o->name, sizeof o->name, "%s", stat_.name);
    utf8_clean(o->name, false); /* a process chooses its name */
    proc_path(path, o->pid, "/exe");
    /* by its name, too: another version of muster, or one that was replaced on the disk */
    o->muster =
        strncmp(o->name, "muster", strlen("muster")) == 0 ||
        (stat(path, &file) == 0 && file.st_ino == s->self.st_ino && file.st_dev == s->self.st_dev);
}

struct port_owner port_owner_find(const struct addr *at) {
    struct search s = {0};
    char path[PROC_PATH_MAX];
    read_table("/proc/self/net/tcp", AF_INET, at, &s);
    read_table("/proc/self/net/tcp6", AF_INET6, at, &s);
    s.found.listens = s.n_inodes > 0;
    proc_path(path, 0, "/exe");
    if (s.n_inodes == 0 || stat(path, &s.self) < 0 ||
        proc_each_number("/proc", on_process, &s) < 0 || s.found.pid == 0)
        return s.found;
    describe(&s);
    return s.found;
}

char *port_owner_text(const struct port_owner *owner, const struct addr *at) {
    char where[ADDR_TEXT_MAX];
    addr_to_text(at, where);
    if (owner->pid == 0)
        return xasprintf("another process%s listens on %s",
                         owner->listens ? ", of another user," : "", where);
    return xasprintf("another %s listens on %s: %s, pid %d",
                     owner->muster ? "agent of muster" : "program, not muster,", where, owner->name,
                     (int)owner->pid);
}

/* ==== names ==== */

/* UDIAG_SHOW_UID and UNIX_DIAG_UID, which headers before Linux 5.3 don't have. */
#define SHOW_UID 0x40
#define ATTRIBUTE_UID 7

int sole_name_take(const char *name, int *ret_fd) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    assert(len <= SOLE_NAME_MAX && len + 1 < sizeof at.sun_path);
    memcpy(at.sun_path + 1, name, len); /* after the NUL byte that makes it abstract */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    if (bind(fd, (const struct sockaddr *)&at, size) < 0) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

/* ---- whose it is ---- */

struct name_search {
    const char *name;
    uid_t uid;
    bool found;
};

static void on_socket(void *arg, const struct netlink_answer *answer) {
    struct name_search *s = arg;
    struct unix_diag_msg m;
    struct netlink_attribute a[ATTRIBUTE_UID + 1];
    size_t len = strlen(s->name);
    if (!netlink_answer_is(answer, SOCK_DIAG_BY_FAMILY, &m, sizeof m, a, ATTRIBUTE_UID) ||
        m.udiag_type != SOCK_DGRAM || a[ATTRIBUTE_UID].size != sizeof s->uid ||
        a[UNIX_DIAG_NAME].size != len + 1 || a[UNIX_DIAG_NAME].data[0] != '\0' ||
        memcmp(a[UNIX_DIAG_NAME].data + 1, s->name, len) != 0)
        return;
    memcpy(&s->uid, a[ATTRIBUTE_UID].data, sizeof s->uid);
    s->found = true;
}

int sole_name_holder(const char *name, uid_t *ret_uid) {
    union netlink_request q;
    struct name_search s = {.name = name};
    struct unix_diag_req body = {.sdiag_family = AF_UNIX,
                                 .udiag_states = UINT32_MAX,
                                 .udiag_show = UDIAG_SHOW_NAME | SHOW_UID};
    netlink_request_init(&q, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body, sizeof body);
    int r = netlink_ask(NETLINK_SOCK_DIAG, &q, on_socket, &s);
    if (s.found)
        *ret_uid = s.uid;
    return s.found ? 0 : r < 0 ? r : -ENOENT;
}
