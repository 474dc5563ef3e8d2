#include "watchdog/look/nics.h"

#include <string.h>

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

const char *const *nic_error_names(bool rdma) { return rdma ? rdma_errors : net_errors; }

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
    const char *const *names = nic_error_names(now->rdma);
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
        const char *const *names = nic_error_names(now->rdma);
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
