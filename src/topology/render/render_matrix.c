#include <inttypes.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/model/distance.h"
#include "topology/render/render_plan.h"

#define GAP 2        /* blanks between columns; nvidia-smi's tabs don't align with long names */
#define NAME_WIDTH 7 /* of a column, as for "mlx5_10"; with longer names NICs are numbered */

static void cell(struct strbuf *cells, const char *text) {
    strbuf_add_bytes(cells, text, strlen(text) + 1);
}

/* Adds rows of n cells. Each column is as wide as its widest text. */
static void add_rows(const struct strbuf *cells, size_t n, const char *indent, struct strbuf *to) {
    const char *const begin = strbuf_text(cells), *const end = begin + cells->len;
    _cleanup_(freep) size_t *widths = xcalloc(n, sizeof *widths);
    size_t i = 0;
    for (const char *at = begin; at < end; at += strlen(at) + 1, i++)
        widths[i % n] = MAX2(widths[i % n], utf8_columns(at));
    i = 0;
    for (const char *at = begin; at < end; at += strlen(at) + 1, i++) {
        size_t width = widths[i % n];
        strbuf_add(to, i % n == 0 ? indent : "");
        strbuf_printf(to, "%s%*s", at, width > 0 ? (int)(width - utf8_columns(at)) + GAP : 0, "");
        if (i % n == n - 1)
            strbuf_end_line(to);
    }
}

/* As nvidia-smi does, with the names in a list of NICs: 32 columns "rdmap113s0" would be wide. */
static bool numbers_nics(const struct topology *t) {
    bool wide = false;
    for (uint32_t i = 0; i < t->n_nics; i++)
        wide = wide || utf8_columns(t->nics[i].name) > NAME_WIDTH;
    return wide;
}

static struct render_text endpoint_name(const struct topology *t, uint32_t i) {
    if (i < t->n_gpus)
        return render_gpu_label(t, i);
    return numbers_nics(t) ? render_words("NIC%" PRIu32, i - t->n_gpus)
                           : render_clean(t->nics[i - t->n_gpus].name, true);
}

static struct render_text node_number(int32_t numa) {
    return numa >= 0 ? render_words("%" PRId32, numa) : render_words("N/A");
}

static void affinity(const struct topology *t, int32_t numa, struct strbuf *cpus) {
    const struct topo_numa *n = numa < 0 ? NULL : topology_numa(t, numa);
    strbuf_clear(cpus);
    if (n != NULL)
        cpuset_write_list(&n->cpus, cpus);
    if (cpus->len == 0)
        strbuf_add(cpus, "N/A");
}

static void add_matrix(const struct topology *t, struct strbuf *to) {
    uint32_t n = distance_endpoints(t);
    _cleanup_(strbuf_fini) struct strbuf cells = {0}, cpus = {0};
    char text[16];
    cell(&cells, "");
    for (uint32_t i = 0; i < n; i++) /* at least as wide as NODE */
        cell(&cells, render_words("%-4s", endpoint_name(t, i).text).text);
    cell(&cells, "CPU Affinity");
    cell(&cells, "NUMA Affinity");
    cell(&cells, t->n_gpus > 0 ? "GPU NUMA ID" : "");
    for (uint32_t a = 0; a < n; a++) {
        cell(&cells, endpoint_name(t, a).text);
        for (uint32_t b = 0; b < n; b++) {
            topo_link_text(distance_between(t, a, b), text);
            cell(&cells, text);
        }
        affinity(t, distance_numa(t, a), &cpus);
        cell(&cells, strbuf_text(&cpus));
        cell(&cells, node_number(distance_numa(t, a)).text);
        /* of its own memory */
        cell(&cells, a < t->n_gpus ? node_number(t->gpus[a].memory_numa).text : "");
    }
    add_rows(&cells, (size_t)n + 4, "", to);
}

static void add_legend(const struct topology *t, struct strbuf *to) {
    strbuf_add(to, "\nLegend:\n"
                   "  X     the device itself\n"
                   "  NV#   # NVLinks\n"
                   "  PIX   one PCIe switch, or one bridge\n"
                   "  PXB   several PCIe switches, but not the CPU\n"
                   "  PHB   the CPU's PCIe host bridge\n"
                   "  NODE  several host bridges of one NUMA node\n"
                   "  SYS   from one NUMA node to another, or not known\n");
    if (!t->nvlinks_known && topology_count_gpus(t, TOPO_VENDOR_NVIDIA) > 1)
        strbuf_add(to, "  NVLinks are not known here: the GPUs' paths are those over PCIe.\n");
}

static void add_gpus(const struct topology *t, const struct nccl_graph *g, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf cells = {0};
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *gpu = &t->gpus[i];
        if (g != NULL)
            nccl_graph_predict(g, i, p);
        cell(&cells, render_gpu_label(t, i).text);
        cell(&cells, render_bus(t, gpu->pci).text);
        cell(&cells, render_gpu_name(t, i).text);
        cell(&cells, gpu->lost ? "LOST" : gpu->mig ? "MIG" : "");
        bool any = p->n_nets > 0;
        cell(&cells, any ? render_nets(p).text : g != NULL ? "none" : "");
        cell(&cells, any ? nccl_path_name(p->path) : "");
        cell(&cells, any ? render_words("%.1f GB/s", p->bandwidth).text : "");
    }
    if (t->n_gpus > 0)
        strbuf_add(to, g != NULL ? "\nGPUs, and the NIC that NCCL takes (path, bandwidth):\n"
                                 : "\nGPUs:\n");
    add_rows(&cells, 7, "  ", to);
}

static void add_nics(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf cells = {0};
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        enum topo_port_state state = topo_nic_state(nic);
        bool known = nic->n_ports > 0 && state != TOPO_PORT_UNKNOWN;
        cell(&cells, numbers_nics(t) ? render_words("NIC%" PRIu32, i).text : "");
        cell(&cells, render_clean(nic->name, true).text);
        cell(&cells, render_bus(t, nic->pci).text);
        cell(&cells, known ? topo_port_state_names[state] : "");
        cell(&cells, render_nic_link(nic).text);
        cell(&cells, render_clean(nic->netdev, true).text);
    }
    if (t->n_nics > 0)
        strbuf_add(to, "\nNICs:\n");
    add_rows(&cells, 6, "  ", to);
}

static void add_cpus(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf cells = {0}, cpus = {0};
    struct render_text why = render_no_devices(t);
    cpuset_write_list(&t->allowed, &cpus);
    if (why.text[0] != '\0')
        strbuf_printf(to, "%s.\n", why.text);
    else
        strbuf_printf(to, "%s has no GPUs and no RDMA NICs.\n",
                      t->source == TOPO_LIVE ? "This node" : "The node");
    if (cpus.len > 0)
        strbuf_printf(to, "\nCPUs %s (%" PRIu32 ")", strbuf_text(&cpus), cpuset_count(&t->allowed));
    if (cpus.len > 0 && t->packages > 0)
        strbuf_printf(to, " in %" PRIu32 " package%s", t->packages, t->packages > 1 ? "s" : "");
    if (cpus.len > 0)
        strbuf_add(to, t->n_numa > 0 ? ":\n" : "\n");
    for (uint32_t i = 0; i < t->n_numa && !cpuset_is_empty(&t->allowed); i++) {
        const struct topo_numa *n = &t->numa[i];
        cell(&cells, render_words("NUMA node %" PRId32, n->index).text);
        strbuf_clear(&cpus);
        cpuset_write_list(&n->cpus, &cpus);
        cell(&cells,
             render_words("%s%s", cpus.len > 0 ? "CPUs " : "no CPUs", strbuf_text(&cpus)).text);
        cell(&cells, n->bytes > 0 ? render_bytes(n->bytes).text : "");
    }
    add_rows(&cells, 3, "  ", to);
}

void render_matrix(const struct topology *t, const struct nccl_graph *g, struct strbuf *to) {
    if (distance_endpoints(t) == 0) {
        add_cpus(t, to);
        return;
    }
    add_matrix(t, to);
    add_legend(t, to);
    add_gpus(t, g, to);
    add_nics(t, to);
    _cleanup_(strbuf_fini) struct strbuf domain = {0};
    render_domain(t, &domain);
    if (domain.len > 0)
        strbuf_printf(to, "\n%s\n", strbuf_text(&domain));
}
