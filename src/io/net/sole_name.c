#include "io/net/sole_name.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/net/netlink.h"

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

struct search {
    const char *name;
    uid_t uid;
    bool found;
};

static void on_socket(void *arg, const struct netlink_answer *answer) {
    struct search *s = arg;
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
    struct search s = {.name = name};
    struct unix_diag_req body = {.sdiag_family = AF_UNIX,
                                 .udiag_states = UINT32_MAX,
                                 .udiag_show = UDIAG_SHOW_NAME | SHOW_UID};
    netlink_request_init(&q, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body, sizeof body);
    int r = netlink_ask(NETLINK_SOCK_DIAG, &q, on_socket, &s);
    if (s.found)
        *ret_uid = s.uid;
    return s.found ? 0 : r < 0 ? r : -ENOENT;
}
