#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "watchdog/look/nics.h"

#define VALUE_MAX 64
#define PORTS_MAX 16 /* of a device */
#define RDMA_WORD 4  /* bytes that port_rcv_data and port_xmit_data count as one */

/* The first line of a small file; false: it can't be read. */
static bool read_line(int dir, const char *path, char ret[VALUE_MAX]) {
    if (file_read_head(dir, path, ret, VALUE_MAX) < 0)
        return false;
    ret[strcspn(ret, "\n")] = '\0';
    utf8_clean(ret, false);
    return true;
}

static uint64_t read_number(int dir, const char *folder, const char *name) {
    char path[NIC_NAME_MAX * 2], value[VALUE_MAX];
    uint64_t n = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_line(dir, path, value) && parse_u64(value, &n) == 0 ? n : 0;
}

static struct nic *add(struct nics *to) {
    if (to->n == NICS_MAX) {
        to->cut = true;
        return NULL;
    }
    struct nic *nic = &to->at[to->n++];
    *nic = (struct nic){0};
    return nic;
}

static void read_errors(int dir, const char *folder, struct nic *nic) {
    const char *const *names = nic_error_names(nic->rdma);
    for (size_t i = 0; names[i] != NULL; i++)
        nic->errors[i] = read_number(dir, folder, names[i]);
}

static void read_net(int dir, const char *name, struct nics *to) {
    struct nic *nic = add(to);
    if (nic == NULL)
        return;
    utf8_copy(nic->name, sizeof nic->name, name);
    (void)read_line(dir, "operstate", nic->state);
    nic->received_bytes = read_number(dir, "statistics", "rx_bytes");
    nic->sent_bytes = read_number(dir, "statistics", "tx_bytes");
    read_errors(dir, "statistics", nic);
}

static void read_rdma(int dir, const char *name, struct nics *to) {
    for (unsigned port = 1; port <= PORTS_MAX; port++) {
        char folder[NIC_NAME_MAX], path[NIC_NAME_MAX * 2];
        (void)snprintf(folder, sizeof folder, "ports/%u/counters", port);
        if (faccessat(dir, folder, F_OK, 0) < 0)
            return;
        struct nic *nic = add(to);
        if (nic == NULL)
            return;
        nic->rdma = true;
        (void)snprintf(nic->name, sizeof nic->name, "%.40s port %u", name, port);
        (void)snprintf(path, sizeof path, "ports/%u/state", port);
        (void)read_line(dir, path, nic->state);
        nic->received_bytes = read_number(dir, folder, "port_rcv_data") * RDMA_WORD;
        nic->sent_bytes = read_number(dir, folder, "port_xmit_data") * RDMA_WORD;
        read_errors(dir, folder, nic);
    }
}

/* Each entry of a class in /sys. No such class: nothing. */
static int each(const char *root, const char *class, uint64_t deadline_ns,
                void (*fn)(int dir, const char *name, struct nics *to), struct nics *to) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/sys/class/%s", root, class);
    DIR *d = opendir(path);
    if (d == NULL)
        return errno == ENOENT ? 0 : -errno;
    int r = 0;
    for (const struct dirent *e; r == 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        if (clock_now_ns() >= deadline_ns) {
            r = -ETIMEDOUT;
            break;
        }
        int at = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (at >= 0)
            fn(at, e->d_name, to);
        file_close(&at);
    }
    closedir(d);
    return r;
}

int source_nics(const char *root, uint64_t deadline_ns, struct nics *ret, struct err *err) {
    root = root != NULL ? root : "";
    *ret = (struct nics){.when_ns = clock_now_ns()};
    int r = each(root, "infiniband", deadline_ns, read_rdma, ret);
    if (r == 0)
        r = each(root, "net", deadline_ns, read_net, ret);
    if (r == -ETIMEDOUT)
        return err_set(err, r,
                       "counters of NICs in %s/sys/class: only those of %u were read in time", root,
                       ret->n);
    return r < 0 ? err_set(err, r, "can't list the NICs in %s/sys/class: %s", root, strerror(-r))
                 : 0;
}
