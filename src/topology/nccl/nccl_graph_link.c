/* Links between the nodes: PCI, NVLink, C2C, CPU to CPU, NIC to NET (src/graph/topo.cc). */
#include "topology/nccl/nccl_graph_priv.h"

#include <string.h>

/* ---- figures ---- */

double nccl_nvlink_gbs(uint32_t sm) {
    return sm >= 100  ? 40.1
           : sm >= 90 ? 20.6
           : sm == 86 ? 12.0
           : sm >= 70 ? 20.0
           : sm >= 60 ? 18.0
                      : 20.0;
}

uint32_t nccl_nvlinks_max(uint32_t sm) {
    return sm >= 90 ? 18 : sm >= 80 ? 12 : sm >= 70 ? 6 : sm >= 60 ? 4 : sm > 0 ? 0 : 18;
}

static double bundle_gbs(const struct topology *t, const struct topo_nvlink *l) {
    if (l->c2c || l->count == 0)
        return l->bandwidth;
    return l->count * nccl_nvlink_gbs(t->gpus[l->gpu].sm);
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* GB/s between two NUMA nodes (src/graph/topo.h, *_QPI_BW and the like). */
static double cpu_link_gbs(const struct topology *t) {
    if (begins(t->arch, "ppc64"))
        return 32;
    if (begins(t->arch, "aarch64") || begins(t->arch, "arm64"))
        return 6;
    if (t->arch[0] != '\0' && !begins(t->arch, "x86_64"))
        return NCCL_LOCAL_GBS; /* if only the vendor is known, it is an x86 */
    if (strcmp(t->cpu_vendor, "AuthenticAMD") == 0)
        return 16;
    if (strcmp(t->cpu_vendor, "GenuineIntel") == 0) {
        uint32_t model = t->cpu_family == 6 ? t->cpu_model : 0;
        return model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
    }
    if (strcmp(t->cpu_vendor, "CentaurHauls") == 0 || strcmp(t->cpu_vendor, "  Shanghai  ") == 0)
        return t->cpu_family == 7 && t->cpu_model == 0x5b ? 9 : 6;
    return NCCL_LOCAL_GBS;
}

/* ---- Broadcom's switches ---- */

/* A gen 4 or gen 5 PEX in base mode looks like a switch of switches, although all its ports have
 * the full bandwidth. level 0: the outer one, 1: an inner one. Returns its generation; 0: not such
 * a switch. */
static int broadcom_generation(const struct topo_pci *p, int level) {
    if (p->vendor != 0x1000 || p->subvendor != 0x1000)
        return 0;
    unsigned kind = p->subdevice & 0xf000u;
    if (p->device == 0xc010 && kind == 0xa000)
        return 4;
    return p->device == 0xc030 && kind == (unsigned)level * 0x1000 ? 5 : 0;
}

/* Moves the children of `inner` to `outer`, after those that it has; inner itself is not
 * changed. */
static void dissolve(struct nccl_graph *g, uint32_t outer, uint32_t inner) {
    uint32_t *last = &g->nodes[outer].first_child;
    while (*last != TOPO_NONE) {
        if (*last == inner)
            *last = g->nodes[inner].next;
        else
            last = &g->nodes[*last].next;
    }
    *last = g->nodes[inner].first_child;
    for (uint32_t c = *last; c != TOPO_NONE; c = g->nodes[c].next)
        g->nodes[c].parent = outer;
    g->nodes[inner].first_child = g->nodes[inner].parent = g->nodes[inner].next = TOPO_NONE;
}

static void flatten_broadcom(struct nccl_graph *g) {
    const struct topology *t = g->t;
    _cleanup_(freep) uint32_t *inner = xcalloc((size_t)g->n_nodes + 1, sizeof *inner);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct nccl_node *n = &g->nodes[i];
        if (n->kind != NCCL_NODE_PCI || n->parent == TOPO_NONE)
            continue;
        int generation = broadcom_generation(&t->pci[n->pci], 0);
        /* only the current ones: switches that they contain are not dissolved */
        uint32_t n_inner = 0;
        for (uint32_t c = n->first_child; generation != 0 && c != TOPO_NONE; c = g->nodes[c].next)
            if (g->nodes[c].kind == NCCL_NODE_PCI &&
                broadcom_generation(&t->pci[g->nodes[c].pci], 1) == generation)
                inner[n_inner++] = c;
        for (uint32_t k = 0; k < n_inner; k++)
            dissolve(g, i, inner[k]);
    }
}

/* ---- links ---- */

/* Adds a link in one direction. Several links of a pair add up. */
static void add_link(struct nccl_graph *g, uint32_t from, uint32_t to, enum nccl_path kind,
                     double bandwidth) {
    struct nccl_node *n = &g->nodes[from];
    uint32_t i = 0;
    while (i < n->n_links && (n->links[i].to != to || n->links[i].kind != kind))
        i++;
    if (i == n->n_links) {
        if ((n->n_links & (n->n_links - 1)) == 0)
            n->links = xrealloc(n->links,
                                (n->n_links == 0 ? 1 : (size_t)n->n_links * 2) * sizeof *n->links);
        n->links[n->n_links++] = (struct nccl_link){.kind = kind, .to = to};
    }
    n->links[i].bandwidth += bandwidth;
}

static void add_both(struct nccl_graph *g, uint32_t a, uint32_t b, enum nccl_path kind,
                     double bandwidth) {
    add_link(g, a, b, kind, bandwidth);
    add_link(g, b, a, kind, bandwidth);
}

static uint32_t cpu_of(const struct nccl_graph *g, uint32_t at) {
    while (g->nodes[at].parent != TOPO_NONE)
        at = g->nodes[at].parent;
    return at;
}

static int link_nvlink(struct nccl_graph *g, const struct topo_nvlink *l, uint32_t *nvs,
                       struct err *err) {
    const struct topology *t = g->t;
    if (l->gpu >= t->n_gpus || g->gpu_place[l->gpu] == TOPO_NONE)
        return 0;
    uint32_t gpu = g->gpus[g->gpu_place[l->gpu]];
    double gbs = bundle_gbs(t, l);
    if (!(gbs > 0))
        return 0;
    switch (l->end) {
    case TOPO_NVLINK_GPU:
        /* One direction: the other GPU lists its own. */
        if (l->peer < t->n_gpus && g->gpu_place[l->peer] != TOPO_NONE)
            add_link(g, gpu, g->gpus[g->gpu_place[l->peer]], NCCL_PATH_NVL, gbs);
        return 0;
    case TOPO_NVLINK_CPU:
        add_both(g, gpu, cpu_of(g, gpu), l->c2c ? NCCL_PATH_C2C : NCCL_PATH_NVL, gbs);
        return 0;
    case TOPO_NVLINK_SWITCH:
        if (*nvs == TOPO_NONE) { /* one node for all switches */
            int r = nccl_graph_add_node(g, NCCL_NODE_NVS, TOPO_NONE, nvs, err);
            if (r < 0)
                return r;
        }
        add_both(g, gpu, *nvs, NCCL_PATH_NVL, gbs);
        return 0;
    }
    return 0;
}

static int link_nets(struct nccl_graph *g, struct err *err) {
    for (uint32_t i = 0; i < g->n_nets; i++) {
        struct nccl_net *n = &g->nets[i];
        int r = nccl_graph_add_node(g, NCCL_NODE_NET, TOPO_NONE, &n->node, err);
        if (r < 0)
            return r;
        g->nodes[n->node].index = i;
        double gbs = n->mbps == 0 ? NCCL_LOCAL_GBS : (double)n->mbps / 8000.0;
        for (uint32_t p = 0; p < g->n_places; p++)
            if (g->places[p].net == i)
                add_both(g, g->places[p].nic_node, n->node, NCCL_PATH_NET, gbs);
    }
    return 0;
}

/* ncclTopoSort: the link up is tried last, so that NVLink wins among equal paths. */
static void put_up_last(struct nccl_graph *g, uint32_t at) {
    struct nccl_node *n = &g->nodes[at];
    for (uint32_t i = 0; n->parent != TOPO_NONE && i + 1 < n->n_links; i++)
        if (n->links[i].to == n->parent && n->links[i].kind == NCCL_PATH_PIX) {
            struct nccl_link up = n->links[i];
            memmove(&n->links[i], &n->links[i + 1], (n->n_links - i - 1) * sizeof up);
            n->links[n->n_links - 1] = up;
            return;
        }
}

static void link_cpus(struct nccl_graph *g) {
    double gbs = cpu_link_gbs(g->t);
    for (uint32_t a = 0; a < g->n_cpus; a++)
        for (uint32_t b = 0; b < g->n_cpus; b++)
            if (a != b)
                add_link(g, g->cpus[a], g->cpus[b], NCCL_PATH_SYS, gbs);
}

int nccl_graph_link(struct nccl_graph *g, struct err *err) {
    const struct topology *t = g->t;
    uint32_t nvs = TOPO_NONE, n_tree = g->n_nodes;
    flatten_broadcom(g);
    for (uint32_t i = 0; i < n_tree; i++)
        if (g->nodes[i].parent != TOPO_NONE)
            add_both(g, i, g->nodes[i].parent, NCCL_PATH_PIX, g->nodes[i].bandwidth);
    int r = link_nets(g, err);
    for (int c2c = 0; c2c <= 1; c2c++) /* C2C after all NVLinks, in NCCL's order */
        for (uint32_t i = 0; r == 0 && i < t->n_nvlinks; i++)
            if (t->nvlinks[i].c2c == (c2c != 0))
                r = link_nvlink(g, &t->nvlinks[i], &nvs, err);
    if (r < 0)
        return r;
    link_cpus(g);
    for (uint32_t i = 0; i < n_tree; i++)
        put_up_last(g, i);
    return 0;
}
