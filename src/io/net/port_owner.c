#include "io/net/port_owner.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/utf8.h"
#include "io/net/netlink.h"
#include "io/process/proc.h"

#define HOLDERS_MAX 16

struct search {
    const struct addr *at;
    uint64_t inodes[HOLDERS_MAX]; /* the sockets that listen there */
    unsigned n_inodes;
    struct stat self; /* this program's file */
    pid_t pid;        /* whose descriptors are being read */
    struct port_owner found;
};

/* Adds a listening socket that is in the way. */
static void on_listener(void *arg, const struct netlink_answer *answer) {
    struct search *s = arg;
    struct inet_diag_msg m;
    if (answer->type != SOCK_DIAG_BY_FAMILY || answer->len < sizeof m || s->n_inodes == HOLDERS_MAX)
        return;
    memcpy(&m, answer->bytes, sizeof m);
    struct addr own = addr_from_bytes(m.idiag_family, m.id.idiag_src, ntohs(m.id.idiag_sport));
    if (addr_port(&own) == addr_port(s->at) &&
        (addr_is_wildcard(&own) || addr_is_wildcard(s->at) || addr_same_host(&own, s->at)))
        s->inodes[s->n_inodes++] = m.idiag_inode;
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
    struct search s = {.at = at};
    char path[PROC_PATH_MAX];
    /* A kernel without sock_diag(7) has no answer: then the owner stays unknown. */
    (void)!netlink_ask_tcp(1 << TCP_LISTEN, on_listener, &s);
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
    int r = netlink_ask(NULL, NETLINK_SOCK_DIAG, &q, on_socket, &s);
    if (s.found)
        *ret_uid = s.uid;
    return s.found ? 0 : r < 0 ? r : -ENOENT;
}
