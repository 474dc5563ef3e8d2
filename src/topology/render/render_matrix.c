#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/model/distance.h"
#include "topology/render/render_plan.h"

#define GAP 2        /* blanks between columns; nvidia-smi's tabs don't align with long names */
#define NAME_WIDTH 7 /* of a column, as for "mlx5_10"; with longer names NICs are numbered */

/* ---- columns ---- */

static void add_cell(struct strbuf *to, const char *text, size_t width) {
    size_t n = utf8_columns(text);
    strbuf_printf(to, "%s%*s", text, (int)(n < width ? width - n : 0) + GAP, "");
}

/* Writes rows of texts. Each column is as wide as its widest text. */
#define COLUMNS_MAX 8
struct columns {
    size_t n, rows;
    char (*cells)[COLUMNS_MAX][RENDER_TEXT_MAX];
};

static char (*columns_row(struct columns *c))[RENDER_TEXT_MAX] {
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
                width = MAX2(width, utf8_columns(c->cells[r][i]));
            if (width > 0)
                add_cell(to, c->cells[row][i], width);
        }
        strbuf_end_line(to);
    }
    free(c->cells);
    *c = (struct columns){0};
}

/* ---- the matrix ---- */

/* As nvidia-smi does, with the names in a list of NICs: 32 columns "rdmap113s0" would be wide. */
static bool numbers_nics(const struct topology *t) {
    bool wide = false;
    for (uint32_t i = 0; i < t->n_nics; i++)
        wide = wide || utf8_columns(t->nics[i].name) > NAME_WIDTH;
    return wide;
}

static void endpoint_name(const struct topology *t, struct topo_endpoint e,
                          char out[RENDER_TEXT_MAX]) {
    if (e.is_gpu)
        render_gpu_label(t, e.index, out);
    else if (numbers_nics(t))
        (void)snprintf(out, RENDER_TEXT_MAX, "NIC%" PRIu32, e.index);
    else
        render_clean(out, TOPO_NAME_MAX, t->nics[e.index].name, true);
}

static void affinity(const struct topology *t, int32_t numa, struct strbuf *cpus,
                     char node[RENDER_TEXT_MAX]) {
    const struct topo_numa *n = numa < 0 ? NULL : topology_numa(t, numa);
    strbuf_clear(cpus);
    if (n != NULL)
        cpuset_write_list(&n->cpus, cpus);
    if (cpus->len == 0)
        strbuf_add(cpus, "N/A");
    if (numa >= 0)
        (void)snprintf(node, RENDER_TEXT_MAX, "%" PRId32, numa);
    else
        (void)snprintf(node, RENDER_TEXT_MAX, "N/A");
}

/* The NUMA node of a GPU's own memory. */
static void gpu_numa(const struct topology *t, struct topo_endpoint e, char out[RENDER_TEXT_MAX]) {
    out[0] = '\0';
    if (e.is_gpu && t->gpus[e.index].memory_numa >= 0)
        (void)snprintf(out, RENDER_TEXT_MAX, "%" PRId32, t->gpus[e.index].memory_numa);
    else if (e.is_gpu)
        (void)snprintf(out, RENDER_TEXT_MAX, "N/A");
}

static int32_t numa_of(const struct topology *t, struct topo_endpoint e) {
    return e.is_gpu ? t->gpus[e.index].numa : t->nics[e.index].numa;
}

static void add_header(const struct topology *t, size_t first, const size_t *widths, size_t cpus,
                       struct strbuf *to) {
    char name[RENDER_TEXT_MAX];
    add_cell(to, "", first);
    for (uint32_t i = 0; i < distance_endpoints(t); i++) {
        endpoint_name(t, distance_endpoint(t, i), name);
        add_cell(to, name, widths[i]);
    }
    add_cell(to, "CPU Affinity", cpus);
    add_cell(to, "NUMA Affinity", 0);
    strbuf_add(to, t->n_gpus > 0 ? "GPU NUMA ID" : "");
    strbuf_end_line(to);
}

static void add_matrix(const struct topology *t, struct strbuf *to) {
    uint32_t n = distance_endpoints(t);
    _cleanup_(freep) size_t *widths = xcalloc((size_t)n + 1, sizeof *widths);
    _cleanup_(strbuf_fini) struct strbuf cpus = {0};
    char name[RENDER_TEXT_MAX], node[RENDER_TEXT_MAX], text[16];
    size_t first = 0, cpus_width = strlen("CPU Affinity");
    for (uint32_t i = 0; i < n; i++) {
        endpoint_name(t, distance_endpoint(t, i), name);
        widths[i] = MAX2(utf8_columns(name), strlen("NODE"));
        first = MAX2(first, utf8_columns(name));
        affinity(t, numa_of(t, distance_endpoint(t, i)), &cpus, node);
        cpus_width = MAX2(cpus_width, cpus.len);
    }
    add_header(t, first, widths, cpus_width, to);
    for (uint32_t a = 0; a < n; a++) {
        endpoint_name(t, distance_endpoint(t, a), name);
        add_cell(to, name, first);
        for (uint32_t b = 0; b < n; b++) {
            struct topo_link link;
            distance_between(t, distance_endpoint(t, a), distance_endpoint(t, b), &link);
            topo_link_text(link, text);
            add_cell(to, text, widths[b]);
        }
        affinity(t, numa_of(t, distance_endpoint(t, a)), &cpus, node);
        add_cell(to, strbuf_text(&cpus), cpus_width);
        add_cell(to, node, strlen("NUMA Affinity"));
        gpu_numa(t, distance_endpoint(t, a), node);
        strbuf_add(to, node);
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

/* ---- devices ---- */

static void net_words(const struct nccl_prediction *p, char nets[RENDER_TEXT_MAX],
                      char path[RENDER_TEXT_MAX], char speed[RENDER_TEXT_MAX]) {
    render_nets(p, nets);
    if (p->n_nets == 0) {
        (void)snprintf(nets, RENDER_TEXT_MAX, "none");
        return;
    }
    (void)snprintf(path, RENDER_TEXT_MAX, "%s", nccl_path_name(p->path));
    (void)snprintf(speed, RENDER_TEXT_MAX, "%.1f GB/s", p->bandwidth);
}

static void add_gpus(const struct topology *t, const struct nccl_graph *g, struct strbuf *to) {
    struct columns c = {.n = 7};
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        char(*row)[RENDER_TEXT_MAX] = columns_row(&c);
        const struct topo_gpu *gpu = &t->gpus[i];
        render_gpu_label(t, i, row[0]);
        render_bus(t, gpu->pci, row[1]);
        render_gpu_name(t, i, row[2]);
        if (gpu->lost || gpu->mig)
            (void)snprintf(row[3], RENDER_TEXT_MAX, "%s", gpu->lost ? "LOST" : "MIG");
        if (g == NULL)
            continue;
        nccl_graph_predict(g, i, p);
        net_words(p, row[4], row[5], row[6]);
    }
    if (t->n_gpus > 0)
        strbuf_add(to, g != NULL ? "\nGPUs, and the NIC that NCCL takes (path, bandwidth):\n"
                                 : "\nGPUs:\n");
    columns_print(&c, to);
}

static void add_nics(const struct topology *t, struct strbuf *to) {
    struct columns c = {.n = 6};
    for (uint32_t i = 0; i < t->n_nics; i++) {
        char(*row)[RENDER_TEXT_MAX] = columns_row(&c);
        const struct topo_nic *nic = &t->nics[i];
        if (numbers_nics(t))
            (void)snprintf(row[0], RENDER_TEXT_MAX, "NIC%" PRIu32, i);
        render_clean(row[1], TOPO_NAME_MAX, nic->name, true);
        render_bus(t, nic->pci, row[2]);
        if (nic->n_ports > 0 && topo_nic_state(nic) != TOPO_PORT_UNKNOWN)
            (void)snprintf(row[3], RENDER_TEXT_MAX, "%s",
                           topo_port_state_names[topo_nic_state(nic)]);
        render_nic_link(nic, row[4]);
        render_clean(row[5], TOPO_NAME_MAX, nic->netdev, true);
    }
    if (t->n_nics > 0)
        strbuf_add(to, "\nNICs:\n");
    columns_print(&c, to);
}

/* ---- a node without either ---- */

static void add_cpus(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf cpus = {0};
    char bytes[RENDER_TEXT_MAX];
    cpuset_write_list(&t->allowed, &cpus);
    char words[RENDER_TEXT_MAX];
    render_no_devices(t, words);
    if (words[0] != '\0')
        strbuf_printf(to, "%s.\n", words);
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
        char(*row)[RENDER_TEXT_MAX] = columns_row(&c);
        (void)snprintf(row[0], RENDER_TEXT_MAX, "NUMA node %" PRId32, t->numa[i].index);
        strbuf_clear(&cpus);
        cpuset_write_list(&t->numa[i].cpus, &cpus);
        (void)snprintf(row[1], RENDER_TEXT_MAX, "%s%.*s", cpus.len > 0 ? "CPUs " : "no CPUs",
                       RENDER_TEXT_MAX - 8, strbuf_text(&cpus));
        render_bytes(t->numa[i].bytes, bytes);
        if (t->numa[i].bytes > 0)
            (void)snprintf(row[2], RENDER_TEXT_MAX, "%s", bytes);
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
