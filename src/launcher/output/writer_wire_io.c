#include "launcher/output/writer_wire_io.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/file.h"

union control {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr head;
};

int writer_wire_send(int fd, const struct writer_message *m, const char *text, size_t len,
                     const int fds[2]) {
    /* Only descriptors that exist are sent, because a placeholder can't be; `has` says which they
     * are. */
    struct {
        struct writer_message m;
        uint8_t has[2];
    } head = {.m = *m};
    int sent[2];
    size_t n = 0;
    for (int i = 0; i < 2 && fds != NULL; i++) {
        head.has[i] = fds[i] >= 0;
        if (fds[i] >= 0)
            sent[n++] = fds[i];
    }
    struct iovec v[2] = {
        {.iov_base = &head, .iov_len = sizeof head},
        {.iov_base = (void *)(uintptr_t)text, .iov_len = MIN2(len, WRITER_TEXT_MAX)}};
    union control control = {0};
    struct msghdr h = {.msg_iov = v, .msg_iovlen = 2};
    if (n > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n * sizeof(int));
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), sent, n * sizeof(int));
    }
    ssize_t r;
    do
        r = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors are in transit. unix(7) */
    bool later = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    return later ? -EAGAIN : -errno;
}

int writer_wire_receive(int fd, struct writer_packet *ret) {
    struct {
        struct writer_message m;
        uint8_t has[2];
    } head;
    struct iovec v[2] = {{.iov_base = &head, .iov_len = sizeof head},
                         {.iov_base = ret->text, .iov_len = WRITER_TEXT_MAX}};
    union control control;
    struct msghdr h = {.msg_iov = v,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t r;
    do
        r = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? -EAGAIN : 0;
    if (r < (ssize_t)sizeof head)
        return 0;
    int got[2] = {-1, -1};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(c), MIN2(c->cmsg_len - CMSG_LEN(0), sizeof got));
    ret->m = head.m;
    ret->fds[0] = head.has[0] != 0 ? got[0] : -1;
    ret->fds[1] = head.has[1] == 0 ? -1 : head.has[0] != 0 ? got[1] : got[0];
    ret->len = (size_t)r - sizeof head;
    ret->text[ret->len] = '\0';
    return 1;
}

void writer_wire_close(int fds[2]) {
    file_close(&fds[0]);
    file_close(&fds[1]);
}

void writer_wire_add_part(struct strbuf *text, const char *part) {
    strbuf_add_bytes(text, part, strlen(part) + 1);
}

const char *writer_wire_part(const struct writer_packet *p, unsigned n) {
    const char *at = p->text, *end = p->text + p->len;
    for (; n > 0 && at < end; n--)
        at += strlen(at) + 1;
    return at < end ? at : "";
}
