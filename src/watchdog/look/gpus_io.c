#include "watchdog/look/gpus.h"

#include <inttypes.h>
#include <string.h>

#include "io/process/helper_call.h"
#include "topology/discover/nvml/nvml_io.h"
#include "watchdog/worker_signs.h"

static bool counted(const struct nvml_counter *a, const struct nvml_counter *b, uint64_t *ret) {
    if (a->bits == 0 || a->bits != b->bits)
        return false;
    *ret = b->bits == 32 ? (uint32_t)(b->value - a->value) : b->value - a->value;
    return b->bits == 32 || b->value >= a->value;
}

static bool same(const struct nvml_report *before, const struct nvml_report *after, uint32_t i) {
    return i < before->n && pci_addr_compare(before->gpus[i].at, after->gpus[i].at) == 0;
}

static void add_way(const struct nvml_gpu *a, const struct nvml_gpu *b, enum nvml_way sent,
                    const char *name, struct strbuf *to) {
    uint64_t out, in, unit = sent == NVML_PCIE_SENT ? 1024 : 1;
    if (counted(&a->moved[sent], &b->moved[sent], &out) &&
        counted(&a->moved[sent + 1], &b->moved[sent + 1], &in))
        strbuf_printf(to, ", %s sent %" PRIu64 " received %" PRIu64 " KiB", name, out / unit,
                      in / unit);
}

static void add_gpu(const struct nvml_gpu *a, const struct nvml_gpu *b, uint64_t passed_ns,
                    struct strbuf *to) {
    strbuf_printf(to, "%s: ", b->has_address ? pci_addr_text(b->at).text : "a GPU");
    if (b->lost != 0) {
        strbuf_add(to, "lost, or needs a reset\n");
        return;
    }
    if (b->busy_percent != NVML_UNKNOWN)
        strbuf_printf(to, "busy %u %%", b->busy_percent);
    else
        strbuf_add(to, "busy ?");
    if (b->sm_mhz > 0)
        strbuf_printf(to, ", %u of %u MHz", b->sm_mhz, b->sm_max_mhz);
    size_t before = to->len;
    if (a != NULL) {
        add_way(a, b, NVML_NVLINK_SENT, "NVLink", to);
        add_way(a, b, NVML_PCIE_SENT, "PCIe", to);
    }
    if (to->len > before)
        strbuf_printf(to, " in %.1f s", (double)passed_ns / 1e9);
    for (int f = NVML_GPU_RECOVERY; f < NVML_GPU_FAULTS; f++) {
        const char *fault = nvml_gpu_fault(b, (enum nvml_gpu_fault)f);
        if (fault != NULL)
            strbuf_printf(to, "; %s", fault);
    }
    strbuf_add_char(to, '\n');
}

void gpus_summary(const struct nvml_report *before, const struct nvml_report *after,
                  struct strbuf *to) {
    for (uint32_t i = 0; i < after->n; i++)
        add_gpu(same(before, after, i) ? &before->gpus[i] : NULL, &after->gpus[i],
                after->when_ns - before->when_ns, to);
}

static bool has_pid(const struct nvml_gpu *g, int32_t pid) {
    for (uint32_t i = 0; i < g->n_pids; i++)
        if (g->pids[i] == (uint32_t)pid)
            return true;
    return false;
}

static bool link_moves(const struct nvml_gpu *a, const struct nvml_gpu *b, enum nvml_way sent,
                       uint64_t passed_ns, bool *seen) {
    uint64_t out, in;
    if (!counted(&a->moved[sent], &b->moved[sent], &out) ||
        !counted(&a->moved[sent + 1], &b->moved[sent + 1], &in)) {
        *seen = false;
        return false;
    }
    double bytes = ((double)out + (double)in) * (sent == NVML_PCIE_SENT ? 1 : 1024);
    double limit = sent == NVML_PCIE_SENT ? GPU_PCIE_BYTES_PER_S : GPU_NVLINK_BYTES_PER_S;
    return bytes >= limit * ((double)passed_ns / 1e9);
}

bool gpus_move(const struct nvml_report *before, const struct nvml_report *after, int32_t pid,
               bool *ret_seen) {
    bool listed = false, moves = false, seen = after->n > 0 && after->when_ns > before->when_ns;
    uint64_t passed_ns = after->when_ns - before->when_ns;
    for (uint32_t i = 0; i < after->n; i++)
        listed = listed || has_pid(&after->gpus[i], pid);
    for (uint32_t i = 0; i < after->n && seen; i++) {
        const struct nvml_gpu *a = &before->gpus[i], *b = &after->gpus[i];
        if (listed && !has_pid(b, pid))
            continue;
        seen = same(before, after, i) && b->lost == 0;
        moves = (seen && link_moves(a, b, NVML_PCIE_SENT, passed_ns, &seen)) || moves;
        moves = (seen && b->n_links > 0 && link_moves(a, b, NVML_NVLINK_SENT, passed_ns, &seen)) ||
                moves;
    }
    *ret_seen = seen;
    return seen && moves;
}

struct gpu_watch {
    struct loop *loop;
    struct helper_call *call;           /* NULL: none is under way */
    uint64_t asked_ns;                  /* when it was last asked; 0: never */
    struct nvml_report *before, *after; /* owned; NULL: not known */
};

struct gpu_watch *gpu_watch_new(struct loop *loop) {
    struct gpu_watch *w = xcalloc(1, sizeof *w);
    *w = (struct gpu_watch){.loop = loop};
    return w;
}

void gpu_watch_free(struct gpu_watch *w) {
    if (w == NULL)
        return;
    helper_call_free(w->call);
    free(w->before);
    free(w->after);
    free(w);
}

static int run(int fd, void *arg) {
    _cleanup_(freep) struct nvml_report *r = xcalloc(1, sizeof *r);
    return nvml_read_load(r, NULL) == 0 && helper_send(fd, r, nvml_report_size(r->n)) ? 0 : 1;
}

static void on_answer(void *arg, const struct helper_answer *a) {
    struct gpu_watch *w = arg;
    w->call = NULL;
    if (a->code < 0 || a->len < nvml_report_size(0))
        return; /* nothing is concluded */
    free(w->before);
    w->before = w->after;
    w->after = xcalloc(1, sizeof *w->after);
    memcpy(w->after, a->data, a->len);
    nvml_report_clean(w->after);
}

void gpu_watch_tick(struct gpu_watch *w, uint64_t now_ns, bool wanted) {
    struct helper_call_config config = {.name = "muster-gpus",
                                        .run = run,
                                        .timeout_ns = GPU_WATCH_DEADLINE_NS,
                                        .max_bytes = sizeof(struct nvml_report)};
    if (!wanted || w->call != NULL ||
        (w->asked_ns != 0 && now_ns - w->asked_ns < GPU_WATCH_EVERY_NS) || !nvml_may_answer())
        return;
    w->asked_ns = now_ns;
    if (helper_call_new(w->loop, &config, on_answer, w, &w->call) < 0)
        w->call = NULL; /* it is tried again */
}

uint32_t gpu_watch_flags(const struct gpu_watch *w, pid_t pid, uint64_t now_ns) {
    bool seen = false;
    if (w->before == NULL || now_ns - w->after->when_ns > GPU_WATCH_AGE_MAX_NS ||
        w->after->when_ns - w->before->when_ns > GPU_WATCH_AGE_MAX_NS)
        return 0;
    bool moves = gpus_move(w->before, w->after, pid, &seen);
    return (moves ? (uint32_t)SIGN_GPU : 0U) | (seen ? (uint32_t)SIGN_GPU_SEEN : 0U);
}
