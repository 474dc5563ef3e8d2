#include <inttypes.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/model/distance.h"
#include "topology/render/render_plan.h"

#define GAP 2        /* blanks between columns; nvidia-smi's tabs don't align with long names */
#define NAME_WIDTH 7 /* of a column, as for "mlx5_10"; with longer names NICs are numbered */

static void add_cell(struct strbuf *to, const char *text, size_t width) {
    size_t n = utf8_columns(text);
    strbuf_printf(to, "%s%*s", text, (int)(n < width ? width - n : 0) + GAP, "");
}

/* Writes rows of texts. Each column is as wide as its widest text. */
#define COLUMNS_MAX 8
struct columns {
    size_t n, rows;
    struct render_text (*cells)[COLUMNS_MAX];
};

static struct render_text *columns_row(struct columns *c) {
    c->cells = xrealloc(c->cells, (c->rows + 1) * sizeof *c->cells);
    memset(c->cells[c->rows], 0, sizeof *c->cells);
    return c->cells[c->rows++];
}

static void columns_print(struct columns *c, struct strbuf *to) {
    for (size_t row = 0; row < c->rows; row++) {
        strbuf_add(to, "  ");
        for (size_t i = 0; i < c->n; i++) {
            size_t width = 0;
            for (size_t r = 0; r < c->rows; r++)
                width = MAX2(width, utf8_columns(c->cells[r][i].text));
            if (width > 0)
                add_cell(to, c->cells[row][i].text, width);
        }
        strbuf_end_line(to);
    }
    free(c->cells);
    *c = (struct columns){0};
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

static void add_header(const struct topology *t, size_t first, const size_t *widths, size_t cpus,
                       struct strbuf *to) {
    add_cell(to, "", first);
    for (uint32_t i = 0; i < distance_endpoints(t); i++)
        add_cell(to, endpoint_name(t, i).text, widths[i]);
    add_cell(to, "CPU Affinity", cpus);
    add_cell(to, "NUMA Affinity", 0);
    strbuf_add(to, t->n_gpus > 0 ? "GPU NUMA ID" : "");
    strbuf_end_line(to);
}

static void add_matrix(const struct topology *t, struct strbuf *to) {
    uint32_t n = distance_endpoints(t);
    _cleanup_(freep) size_t *widths = xcalloc((size_t)n + 1, sizeof *widths);
    _cleanup_(strbuf_fini) struct strbuf cpus = {0};
    char text[16];
    size_t first = 0, cpus_width = strlen("CPU Affinity");
    for (uint32_t i = 0; i < n; i++) {
        size_t width = utf8_columns(endpoint_name(t, i).text);
        widths[i] = MAX2(width, strlen("NODE"));
        first = MAX2(first, width);
        affinity(t, distance_numa(t, i), &cpus);
        cpus_width = MAX2(cpus_width, cpus.len);
    }
    add_header(t, first, widths, cpus_width, to);
    for (uint32_t a = 0; a < n; a++) {
        add_cell(to, endpoint_name(t, a).text, first);
        for (uint32_t b = 0; b < n; b++) {
            topo_link_text(distance_between(t, a, b), text);
            add_cell(to, text, widths[b]);
        }
        affinity(t, distance_numa(t, a), &cpus);
        add_cell(to, strbuf_text(&cpus), cpus_width);
        add_cell(to, node_number(distance_numa(t, a)).text, strlen("NUMA Affinity"));
        if (a < t->n_gpus) /* of its own memory */
            strbuf_add(to, node_number(t->gpus[a].memory_numa).text);
        strbuf_end_line(to);
    }
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
    struct columns c = {.n = 7};
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        struct render_text *row = columns_row(&c);
        const struct topo_gpu *gpu = &t->gpus[i];
        row[0] = render_gpu_label(t, i);
        row[1] = render_bus(t, gpu->pci);
        row[2] = render_gpu_name(t, i);
        row[3] = render_words("%s", gpu->lost ? "LOST" : gpu->mig ? "MIG" : "");
        if (g == NULL)
            continue;
        nccl_graph_predict(g, i, p);
        row[4] = p->n_nets > 0 ? render_nets(p) : render_words("none");
        if (p->n_nets == 0)
            continue;
        row[5] = render_words("%s", nccl_path_name(p->path));
        row[6] = render_words("%.1f GB/s", p->bandwidth);
    }
    if (t->n_gpus > 0)
        strbuf_add(to, g != NULL ? "\nGPUs, and the NIC that NCCL takes (path, bandwidth):\n"
                                 : "\nGPUs:\n");
    columns_print(&c, to);
}

static void add_nics(const struct topology *t, struct strbuf *to) {
    struct columns c = {.n = 6};
    for (uint32_t i = 0; i < t->n_nics; i++) {
        struct render_text *row = columns_row(&c);
        const struct topo_nic *nic = &t->nics[i];
        if (numbers_nics(t))
            row[0] = render_words("NIC%" PRIu32, i);
        row[1] = render_clean(nic->name, true);
        row[2] = render_bus(t, nic->pci);
        if (nic->n_ports > 0 && topo_nic_state(nic) != TOPO_PORT_UNKNOWN)
            row[3] = render_words("%s", topo_port_state_names[topo_nic_state(nic)]);
        row[4] = render_nic_link(nic);
        row[5] = render_clean(nic->netdev, true);
    }
    if (t->n_nics > 0)
        strbuf_add(to, "\nNICs:\n");
    columns_print(&c, to);
}

static void add_cpus(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf cpus = {0};
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
    struct columns c = {.n = 3};
    for (uint32_t i = 0; i < t->n_numa && !cpuset_is_empty(&t->allowed); i++) {
        struct render_text *row = columns_row(&c);
        row[0] = render_words("NUMA node %" PRId32, t->numa[i].index);
        strbuf_clear(&cpus);
        cpuset_write_list(&t->numa[i].cpus, &cpus);
        row[1] = render_words("%s%s", cpus.len > 0 ? "CPUs " : "no CPUs", strbuf_text(&cpus));
        if (t->numa[i].bytes > 0)
            row[2] = render_bytes(t->numa[i].bytes);
    }
    columns_print(&c, to);
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
