#include "watchdog/look/gpus.h"

#include <inttypes.h>
#include <string.h>

/* nvmlClocksEventReasons of the NVML API Reference Guide; idle clocks and those that a user set
 * slow nothing down. */
static const struct {
    uint64_t bit;
    const char *text;
} reasons[] = {{0x4, "the power limit"},
               {0x8, "the hardware"},
               {0x20, "heat"},
               {0x40, "heat (hardware)"},
               {0x80, "the power brake"}};

static bool counted(const struct gpu_counter *a, const struct gpu_counter *b, uint64_t *ret) {
    if (a->bits == 0 || a->bits != b->bits)
        return false;
    *ret = b->bits == 32 ? (uint32_t)(b->value - a->value) : b->value - a->value;
    return b->bits == 32 || b->value >= a->value;
}

static bool same(const struct gpus *before, const struct gpus *after, uint32_t i) {
    return i < before->n && strcmp(before->at[i].address, after->at[i].address) == 0;
}

static void add_way(const struct gpu *a, const struct gpu *b, enum gpu_way sent, const char *name,
                    struct strbuf *to) {
    uint64_t out, in, unit = sent == GPU_PCIE_SENT ? 1024 : 1;
    if (counted(&a->moved[sent], &b->moved[sent], &out) &&
        counted(&a->moved[sent + 1], &b->moved[sent + 1], &in))
        strbuf_printf(to, ", %s sent %" PRIu64 " received %" PRIu64 " KiB", name, out / unit,
                      in / unit);
}

static void add_gpu(const struct gpu *a, const struct gpu *b, uint64_t passed_ns,
                    struct strbuf *to) {
    strbuf_printf(to, "%s: ", b->address[0] != '\0' ? b->address : "a GPU");
    if (b->lost) {
        strbuf_add(to, "lost, or needs a reset\n");
        return;
    }
    if (b->busy_percent >= 0)
        strbuf_printf(to, "busy %d %%", b->busy_percent);
    else
        strbuf_add(to, "busy ?");
    if (b->sm_mhz >= 0 && b->sm_max_mhz >= 0)
        strbuf_printf(to, ", %d of %d MHz", b->sm_mhz, b->sm_max_mhz);
    size_t before = to->len;
    if (a != NULL) {
        add_way(a, b, GPU_NVLINK_SENT, "NVLink", to);
        add_way(a, b, GPU_PCIE_SENT, "PCIe", to);
    }
    if (to->len > before)
        strbuf_printf(to, " in %.1f s", (double)passed_ns / 1e9);
    const char *mark = "; slowed by ";
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if ((b->slowed & reasons[i].bit) != 0) {
            strbuf_printf(to, "%s%s", mark, reasons[i].text);
            mark = ", ";
        }
    if (b->uncorrected > 0)
        strbuf_printf(to, "; %" PRId64 " uncorrected ECC errors", b->uncorrected);
    strbuf_add_char(to, '\n');
}

void gpus_summary(const struct gpus *before, const struct gpus *after, struct strbuf *to) {
    for (uint32_t i = 0; i < after->n; i++)
        add_gpu(same(before, after, i) ? &before->at[i] : NULL, &after->at[i],
                after->when_ns - before->when_ns, to);
}

static bool has_pid(const struct gpu *g, int32_t pid) {
    for (uint32_t i = 0; i < g->n_pids; i++)
        if (g->pids[i] == pid)
            return true;
    return false;
}

static bool link_moves(const struct gpu *a, const struct gpu *b, enum gpu_way sent,
                       uint64_t passed_ns, bool *seen) {
    uint64_t out, in;
    if (!counted(&a->moved[sent], &b->moved[sent], &out) ||
        !counted(&a->moved[sent + 1], &b->moved[sent + 1], &in)) {
        *seen = false;
        return false;
    }
    double bytes = ((double)out + (double)in) * (sent == GPU_PCIE_SENT ? 1 : 1024);
    double limit = sent == GPU_PCIE_SENT ? GPU_PCIE_BYTES_PER_S : GPU_NVLINK_BYTES_PER_S;
    return bytes >= limit * ((double)passed_ns / 1e9);
}

bool gpus_move(const struct gpus *before, const struct gpus *after, int32_t pid, bool *ret_seen) {
    bool listed = false, moves = false, seen = after->n > 0 && after->when_ns > before->when_ns;
    uint64_t passed_ns = after->when_ns - before->when_ns;
    for (uint32_t i = 0; i < after->n; i++)
        listed = listed || has_pid(&after->at[i], pid);
    for (uint32_t i = 0; i < after->n && seen; i++) {
        const struct gpu *a = &before->at[i], *b = &after->at[i];
        if (listed && !has_pid(b, pid))
            continue;
        seen = same(before, after, i) && !b->lost;
        moves = (seen && link_moves(a, b, GPU_PCIE_SENT, passed_ns, &seen)) || moves;
        moves = (seen && b->nvlink && link_moves(a, b, GPU_NVLINK_SENT, passed_ns, &seen)) || moves;
    }
    *ret_seen = seen;
    return seen && moves;
}
