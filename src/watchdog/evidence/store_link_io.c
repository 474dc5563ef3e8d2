#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/process/proc.h"
#include "watchdog/evidence/gather_priv.h"
#include "watchdog/evidence/waits.h"

#define TABLE_MAX ((size_t)4 << 20) /* of the kernel's list of sockets */
#define LINKS_MAX 8192              /* connections to the store from this machine */

struct links {
    uint64_t inodes[LINKS_MAX];
    size_t n;
};

static bool read_table(pid_t pid, const char *name, uint16_t port, struct links *to) {
    char path[PROC_PATH_MAX];
    char *table = malloc(TABLE_MAX);
    bool whole = false;
    proc_path(path, pid, "");
    int dir = open(path, O_DIRECTORY | O_CLOEXEC);
    ssize_t len = -1;
    if (table != NULL && dir >= 0)
        len = thread_sockets(dir, name, table, TABLE_MAX, &whole);
    if (len >= 0 && whole)
        to->n += waits_connected(table, (size_t)len, port, to->inodes + to->n, LINKS_MAX - to->n);
    free(table);
    if (dir >= 0)
        (void)close(dir);
    return whole && to->n < LINKS_MAX;
}

/* Of all processes of this one's network. False: they can't be read, or not all of them. */
static bool read_tables(pid_t pid, uint16_t port, struct links *ret) {
    ret->n = 0;
    return read_table(pid, "net/tcp", port, ret) &&
           (access("/proc/self/net/tcp6", F_OK) < 0 || read_table(pid, "net/tcp6", port, ret));
}

struct search {
    const struct links *links;
    int dir;
    bool found;
};

static void look_at_fd(void *arg, int fd) {
    struct search *s = arg;
    char name[16], link[64];
    (void)snprintf(name, sizeof name, "%d", fd);
    ssize_t n = s->found ? -1 : readlinkat(s->dir, name, link, sizeof link - 1);
    if (n < 0)
        return;
    link[n] = '\0';
    uint64_t inode = waits_socket_inode(link);
    for (size_t i = 0; i < s->links->n && inode != 0; i++)
        s->found |= s->links->inodes[i] == inode;
}

/* 1, 0, or a negative errno: it can't be read. */
static int has_link(pid_t pid, const struct links *links) {
    char path[PROC_PATH_MAX];
    proc_path(path, pid, "/fd");
    struct search s = {.links = links, .dir = open(path, O_DIRECTORY | O_CLOEXEC)};
    if (s.dir < 0)
        return -errno;
    int r = proc_each_number(path, look_at_fd, &s);
    (void)close(s.dir);
    return s.found ? 1 : r;
}

/* The same of a worker and its children. */
static int worker_has_link(const struct evidence_worker *w, const struct links *links) {
    int r = has_link(w->pid, links);
    for (uint32_t k = 0; k < w->n_children && r == 0; k++)
        r = has_link(w->children[k].pid, links) == 1;
    return r;
}

static bool net_of(pid_t pid, char *ret, size_t size) {
    char path[PROC_PATH_MAX];
    proc_path(path, pid, "/ns/net");
    ssize_t n = readlink(path, ret, size - 1);
    if (n > 0)
        ret[n] = '\0';
    return n > 0;
}

/* The ports of "tcp 10.0.0.1:4242 -> 10.0.0.2:29500 established", and whether it is such a text. */
static bool ports_of(const char *target, uint16_t *ret_own, uint16_t *ret_other) {
    char own[64], other[64];
    if (sscanf(target, "tcp %63s -> %63s", own, other) != 2)
        return false;
    const char *own_port = strrchr(own, ':'), *other_port = strrchr(other, ':');
    return own_port != NULL && other_port != NULL && sscanf(own_port, ":%" SCNu16, ret_own) == 1 &&
           sscanf(other_port, ":%" SCNu16, ret_other) == 1;
}

/* Whether the other end of a connection with this port here belongs to another worker. */
static bool is_of_another(const struct evidence *e, const struct evidence_worker *w, uint16_t port,
                          struct links *links) {
    (void)read_tables(w->pid, port, links); /* one of them can be missing */
    for (uint32_t i = 0; i < e->n_workers && links->n > 0; i++) {
        const struct evidence_worker *other = &e->workers[i];
        if (other != w && other->n_threads > 0 && worker_has_link(other, links) == 1)
            return true;
    }
    return false;
}

static void find_waits(struct evidence *e, uint16_t port) {
    struct links *links = xcalloc(1, sizeof *links);
    for (uint32_t i = 0; i < e->n_workers; i++) {
        struct evidence_worker *w = &e->workers[i];
        uint16_t own, other;
        for (uint32_t k = 0; k <= w->n_children && w->n_threads > 0 && !w->awaits_rank; k++) {
            const struct evidence_thread *t = k == 0 ? &w->threads[0] : &w->children[k - 1].main;
            if (ports_of(t->target, &own, &other))
                w->awaits_rank = other == port || is_of_another(e, w, own, links);
        }
    }
    free(links);
}

void gather_store_links(struct evidence *e, uint16_t port) {
    char net[64], own[64];
    pid_t first = 0;
    find_waits(e, port);
    for (uint32_t i = 0; i < e->n_workers && first == 0; i++)
        first = e->workers[i].n_threads > 0 ? e->workers[i].pid : 0;
    if (port == 0 || first == 0 || !net_of(first, net, sizeof net))
        return;
    struct links *links = xcalloc(1, sizeof *links);
    bool known = read_tables(first, port, links);
    for (uint32_t i = 0; i < e->n_workers && known; i++) {
        struct evidence_worker *w = &e->workers[i];
        if (w->n_threads == 0 || !net_of(w->pid, own, sizeof own) || strcmp(own, net) != 0)
            continue;
        int r = worker_has_link(w, links);
        w->at_store = r == 1;
        w->not_at_store = r == 0;
    }
    free(links);
}
