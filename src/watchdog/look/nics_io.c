#include "watchdog/look/nics.h"

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

#define VALUE_MAX 64
#define PORTS_MAX 16 /* of a device */
#define RDMA_WORD 4  /* bytes that port_rcv_data and port_xmit_data count as one */

/* /sys/class/net/NAME/statistics (Linux, Documentation/ABI/testing/sysfs-class-net-statistics). */
static const char *const net_errors[NIC_ERRORS_MAX] = {
    "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "tx_carrier_errors", NULL,
};
/* /sys/class/infiniband/NAME/ports/N/counters (Documentation/ABI/stable/sysfs-class-infiniband). */
static const char *const rdma_errors[NIC_ERRORS_MAX] = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    NULL,
};

static const char *const *error_names(bool rdma) { return rdma ? rdma_errors : net_errors; }

static const struct nic *find(const struct nics *in, const struct nic *nic) {
    for (uint32_t i = 0; i < in->n; i++)
        if (in->at[i].rdma == nic->rdma && strcmp(in->at[i].name, nic->name) == 0)
            return &in->at[i];
    return NULL;
}

static uint64_t more(uint64_t before, uint64_t after) {
    return after > before ? after - before : 0;
}

static void add_bytes(struct strbuf *to, uint64_t n) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double amount = (double)n;
    size_t unit = 0;
    if (n < 1000) {
        strbuf_printf(to, "%llu B", (unsigned long long)n);
        return;
    }
    for (amount /= 1000; amount >= 1000 && unit + 1 < ARRAY_SIZE(units); unit++)
        amount /= 1000;
    strbuf_printf(to, "%.1f %s", amount, units[unit]);
}

/* operstate of lo and of some drivers is "unknown" for ever (Linux,
 * Documentation/networking/operstates.rst). */
static bool is_up(const struct nic *nic) {
    return nic->rdma ? strstr(nic->state, "ACTIVE") != NULL : strcmp(nic->state, "up") == 0;
}

/* Whether there is something to report. */
static bool is_notable(const struct nic *then, const struct nic *now) {
    const char *const *names = error_names(now->rdma);
    bool yes = then == NULL || is_up(now) || strcmp(then->state, now->state) != 0 ||
               more(then->received_bytes, now->received_bytes) > 0 ||
               more(then->sent_bytes, now->sent_bytes) > 0;
    for (size_t k = 0; names[k] != NULL && !yes; k++)
        yes = more(then->errors[k], now->errors[k]) > 0;
    return yes;
}

static void add_others(const struct nics *before, const struct nics *after, struct strbuf *to) {
    const char *between = "not up: ";
    for (uint32_t i = 0; i < after->n; i++) {
        const struct nic *now = &after->at[i];
        if (is_notable(find(before, now), now))
            continue;
        strbuf_printf(to, "%s%s", between, now->name);
        between = ", ";
    }
    if (between[0] == ',')
        strbuf_add(to, "\n");
}

void nics_summary(const struct nics *before, const struct nics *after, struct strbuf *to) {
    for (uint32_t i = 0; i < after->n; i++) {
        const struct nic *now = &after->at[i], *then = find(before, now);
        const char *const *names = error_names(now->rdma);
        if (!is_notable(then, now))
            continue;
        strbuf_add(to, now->name);
        if (now->state[0] != '\0')
            strbuf_printf(to, " (%s)", now->state);
        if (then == NULL) {
            strbuf_add(to, ": was not there before\n");
            continue;
        }
        strbuf_add(to, ": received ");
        add_bytes(to, more(then->received_bytes, now->received_bytes));
        strbuf_add(to, ", sent ");
        add_bytes(to, more(then->sent_bytes, now->sent_bytes));
        strbuf_printf(to, " in %.1f s", (double)more(before->when_ns, after->when_ns) / 1e9);
        for (size_t k = 0; names[k] != NULL; k++) {
            uint64_t grown = more(then->errors[k], now->errors[k]);
            if (now->errors[k] > 0)
                strbuf_printf(to, "; %s %llu", names[k], (unsigned long long)now->errors[k]);
            if (grown > 0)
                strbuf_printf(to, " (+%llu)", (unsigned long long)grown);
        }
        strbuf_add(to, "\n");
    }
    add_others(before, after, to);
    for (uint32_t i = 0; i < before->n; i++)
        if (find(after, &before->at[i]) == NULL)
            strbuf_printf(to, "%s: is no longer there\n", before->at[i].name);
    if (after->cut)
        strbuf_add(to, "(more were left out)\n");
}

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
    const char *const *names = error_names(nic->rdma);
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
