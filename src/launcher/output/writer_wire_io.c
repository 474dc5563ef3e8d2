#include "launcher/output/writer_wire_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "io/file.h"

union control {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr head;
};

#define TEXTS_MAX 3
#define PARTS_MAX (2 * TEXTS_MAX)
struct texts {
    size_t n, at[TEXTS_MAX];
};
#define AT(member) offsetof(struct writer_message, member)

static const struct texts texts[] = {
    [WRITER_PRINT] = {1, {AT(print.text)}},
    [WRITER_STATUS] = {1, {AT(status.text)}},
    [WRITER_PREPARE] = {3, {AT(prepare.generation), AT(prepare.node), AT(prepare.run_dir)}},
    [WRITER_OPEN] = {3, {AT(open.prefix), AT(open.paths[0]), AT(open.paths[1])}},
    [WRITER_EXITED] = {2, {AT(exited.error_path), AT(exited.stderr_path)}},
    [WRITER_EVENT] = {2, {AT(event.path), AT(event.line)}},
    [WRITER_ENDED] = {1, {AT(ended.run_dir)}},
    [WRITER_FILES] = {1, {AT(files.dir)}},
    [WRITER_PREPARED] = {3, {AT(prepared.run_dir), AT(prepared.node_dir), AT(prepared.why)}},
    [WRITER_NO_FILE] = {1, {AT(no_file.why)}},
    [WRITER_LAST_OUTPUT] = {2, {AT(last_output.error), AT(last_output.tail)}},
    [WRITER_FINISHED] = {0},
};

static int *fds_of(struct writer_message *m) {
    return m->kind == WRITER_OPEN ? m->open.fds : m->kind == WRITER_FILES ? m->files.fds : NULL;
}

/* The parts that the texts consist of: each text, and its NUL. Returns how many. */
static size_t list_parts(const struct writer_message *m, struct iovec ret[PARTS_MAX]) {
    static char nul[1];
    size_t n = 0, room = WRITER_TEXT_MAX - texts[m->kind].n;
    for (size_t i = 0; i < texts[m->kind].n; i++) {
        char *text;
        memcpy(&text, (const char *)m + texts[m->kind].at[i], sizeof text);
        size_t len = text == NULL ? 0 : m->kind == WRITER_PRINT ? m->print.len : strlen(text);
        len = MIN2(len, room);
        room -= len;
        ret[n++] = (struct iovec){.iov_base = len > 0 ? text : nul, .iov_len = len};
        ret[n++] = (struct iovec){.iov_base = nul, .iov_len = 1};
    }
    return n;
}

static void unpack(struct writer_packet *p) {
    const char *at = p->text;
    for (size_t i = 0; i < texts[p->m.kind].n; i++) {
        memcpy((char *)&p->m + texts[p->m.kind].at[i], &at, sizeof at);
        at += strlen(at) + 1;
    }
}

int writer_wire_send(int fd, const struct writer_message *m) {
    struct writer_message head = *m;
    const int *fds = fds_of(&head);
    int sent[2];
    size_t n = 0;
    for (int i = 0; i < 2 && fds != NULL; i++)
        if (fds[i] >= 0)
            sent[n++] = fds[i];
    struct iovec v[1 + PARTS_MAX] = {{.iov_base = &head, .iov_len = sizeof head}};
    union control control = {0};
    struct msghdr h = {.msg_iov = v, .msg_iovlen = 1 + list_parts(m, v + 1)};
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
    struct iovec v[2] = {{.iov_base = &ret->m, .iov_len = sizeof ret->m},
                         {.iov_base = ret->text, .iov_len = sizeof ret->text}};
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
    if (r < (ssize_t)sizeof ret->m)
        return 0;
    ret->len = (size_t)r - sizeof ret->m;
    int got[2] = {-1, -1}, *fds = fds_of(&ret->m);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(c), MIN2(c->cmsg_len - CMSG_LEN(0), sizeof got));
    for (int i = 0, next = 0; i < 2 && fds != NULL; i++) /* those that exist are sent, in order */
        fds[i] = fds[i] >= 0 ? got[next++] : -1;
    unpack(ret);
    return 1;
}

struct writer_packet *writer_wire_copy(const struct writer_message *m) {
    struct iovec v[PARTS_MAX];
    size_t n = list_parts(m, v), len = 0;
    for (size_t i = 0; i < n; i++)
        len += v[i].iov_len;
    struct writer_packet *p = xmalloc(offsetof(struct writer_packet, text) + len);
    p->m = *m;
    p->len = len;
    char *at = p->text;
    for (size_t i = 0; i < n; i++)
        at = mempcpy(at, v[i].iov_base, v[i].iov_len);
    unpack(p);
    int *fds = fds_of(&p->m);
    for (int i = 0; i < 2 && fds != NULL; i++)
        fds[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
    return p;
}

void writer_wire_close(struct writer_message *m) {
    int *fds = fds_of(m);
    for (int i = 0; i < 2 && fds != NULL; i++)
        file_close(&fds[i]);
}

void writer_wire_free(struct writer_packet *p) {
    if (p != NULL)
        writer_wire_close(&p->m);
    free(p);
}
