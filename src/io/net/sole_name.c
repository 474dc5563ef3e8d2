#include "io/net/sole_name.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES 32768 /* a dump comes in pieces of at most this size: netlink(7) */
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

/* Stores the user of this socket if it has the name. */
static void read_socket(struct nlmsghdr *h, const char *name, int *r, uid_t *ret_uid) {
    const struct unix_diag_msg *m = NLMSG_DATA(h);
    struct rtattr *a = (void *)((char *)h + NLMSG_LENGTH(sizeof *m));
    bool named = false, owned = false;
    uid_t uid = 0;
    if (h->nlmsg_len < NLMSG_LENGTH(sizeof *m) || m->udiag_type != SOCK_DGRAM)
        return;
    size_t left = h->nlmsg_len - NLMSG_LENGTH(sizeof *m), len = strlen(name);
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        const char *data = RTA_DATA(a);
        size_t n = RTA_PAYLOAD(a);
        if (a->rta_type == UNIX_DIAG_NAME)
            named = n == len + 1 && data[0] == '\0' && memcmp(data + 1, name, len) == 0;
        owned = owned || (a->rta_type == ATTRIBUTE_UID && n == sizeof uid);
        if (a->rta_type == ATTRIBUTE_UID && n == sizeof uid)
            memcpy(&uid, data, sizeof uid);
    }
    if (!named || !owned)
        return;
    *ret_uid = uid;
    *r = 0;
}

static _must_use_ int read_answers(int fd, const char *name, uid_t *ret_uid) {
    _Alignas(struct nlmsghdr) char bytes[ANSWER_BYTES];
    int r = -ENOENT;
    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPROTO;
        struct nlmsghdr *h = (void *)bytes;
        for (size_t left = (size_t)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
                return r;
            read_socket(h, name, &r, ret_uid);
        }
    }
}

int sole_name_holder(const char *name, uid_t *ret_uid) {
    struct {
        struct nlmsghdr head;
        struct unix_diag_req body;
    } question = {
        .head = {.nlmsg_len = sizeof question,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = AF_UNIX,
                 .udiag_states = UINT32_MAX,
                 .udiag_show = UDIAG_SHOW_NAME | SHOW_UID},
    };
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return -errno;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int r = sendto(fd, &question, sizeof question, 0, (const void *)&kernel, sizeof kernel) < 0
                ? -errno
                : read_answers(fd, name, ret_uid);
    (void)close(fd);
    return r;
}
