/* Which NETs NCCL would use (src/transport/net_ib, net_socket.cc, src/misc/socket.cc, utils.cc of
 * 2.30.7), and the tree with them as in NCCL's XML, in the order in which NCCL builds it: the GPU
 * of rank 0, all NETs, then the other GPUs (src/graph/topo.cc, xml.cc); then links. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/nccl/nccl_graph_priv.h"

static struct nccl_net *add_net(struct nccl_graph *g, const char *name, uint64_t mbps) {
    g->nets = xgrow(g->nets, g->n_nets, sizeof *g->nets);
    struct nccl_net *n = &g->nets[g->n_nets];
    *n = (struct nccl_net){.nic = TOPO_NONE,
                           .netif = TOPO_NONE,
                           .pci = TOPO_NONE,
                           .node = TOPO_NONE,
                           .n_fused = 1,
                           .mbps = mbps,
                           .dev = g->n_nets++};
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    return n;
}

/* In the file's order; a device that is repeated under several CPUs is one NET. */
static void choose_from_file(struct nccl_graph *g) {
    const struct topology *t = g->t;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        bool known = false;
        for (uint32_t k = 0; k < g->n_nets && !known; k++)
            known = g->nets[k].dev == nic->dev;
        if (known)
            continue;
        struct nccl_net *n = add_net(g, nic->name, nic->n_ports > 0 ? nic->ports[0].rate_mbps : 0);
        n->gdr = nic->gdr != 0;
        n->dev = nic->dev;
        n->nic = i;
        n->pci = nic->pci < t->n_pci ? nic->pci : TOPO_NONE;
    }
}

/* ---- RDMA devices ---- */

/* EFA and Slingshot have no state files, and an hwloc file may not have the state. */
static bool port_counts(const struct topology *t, const struct topo_nic *nic,
                        enum topo_port_state state) {
    if (state != TOPO_PORT_UNKNOWN)
        return state == TOPO_PORT_ACTIVE;
    return nic->kind != TOPO_NIC_RDMA || t->source == TOPO_HWLOC_XML;
}

/* The NET of another port of the same card that still has room, or NULL. Only NCCL's own transport
 * fuses ports; the plugins of EFA and Slingshot don't. */
static struct nccl_net *net_to_fuse(struct nccl_graph *g, const struct topo_nic *nic) {
    const struct topology *t = g->t;
    if (nic->kind != TOPO_NIC_RDMA || nic->pci >= t->n_pci)
        return NULL;
    struct pci_addr a = t->pci[nic->pci].at;
    for (uint32_t i = 0; i < g->n_nets; i++) {
        struct nccl_net *n = &g->nets[i];
        if (n->pci == TOPO_NONE || t->nics[n->nic].kind != TOPO_NIC_RDMA)
            continue;
        struct pci_addr b = t->pci[n->pci].at;
        b.fn = a.fn;
        if (pci_addr_compare(a, b) == 0 && n->n_fused < NCCL_FUSED_MAX)
            return n;
    }
    return NULL;
}

static void take_port(struct nccl_graph *g, uint32_t i, uint64_t mbps) {
    const struct topo_nic *nic = &g->t->nics[i];
    struct nccl_net *n = net_to_fuse(g, nic);
    if (n != NULL) {
        size_t len = strlen(n->name);
        (void)snprintf(n->name + len, sizeof n->name - len, "+%s", nic->name);
        n->mbps = n->mbps == 0 || mbps == 0 ? 0 : n->mbps + mbps;
        n->gdr = n->gdr && nic->gdr != 0;
        n->n_fused++;
        return;
    }
    n = add_net(g, nic->name, mbps);
    n->gdr = nic->gdr != 0;
    n->nic = i;
    n->pci = nic->pci < g->t->n_pci ? nic->pci : TOPO_NONE;
}

static void choose_rdma(struct nccl_graph *g) {
    const struct topology *t = g->t;
    uint32_t n_ib = 0;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        bool ib = nic->kind == TOPO_NIC_RDMA;
        for (uint32_t p = 0; p < MAX2(nic->n_ports, 1) && p < TOPO_PORTS_MAX; p++) {
            const struct topo_port *port = &nic->ports[p]; /* all zero if it is not known */
            bool counts = port_counts(t, nic, port->state);
            if (!counts || (ib && n_ib == NCCL_IB_DEVICES_MAX)) {
                g->left = xgrow(g->left, g->n_left, sizeof *g->left);
                g->left[g->n_left++] = (struct nccl_left){i, p, counts};
                continue;
            }
            n_ib += ib ? 1 : 0;
            take_port(g, i, port->rate_mbps);
        }
    }
}

/* The addresses of a recorded tree are not known; then it is enough that the interface is
 * running. */
static bool netif_counts(const struct topo_netif *f, bool addresses_known) {
    if (!f->up || !f->running)
        return false;
    bool usable = !addresses_known;
    for (uint32_t i = 0; i < f->n_addrs && !usable; i++)
        usable = strcmp(f->addrs[i].addr, "::1") != 0;
    return usable;
}

/* Those whose name begins with one of the n, or, other: with none of them. */
static void take_netifs(struct nccl_graph *g, const char *const *names, size_t n, bool other) {
    const struct topology *t = g->t;
    bool known = false;
    for (uint32_t i = 0; i < t->n_netifs && !known; i++)
        known = t->netifs[i].n_addrs > 0;
    for (uint32_t i = 0; i < t->n_netifs && g->n_nets < NCCL_SOCKETS_MAX; i++) {
        const struct topo_netif *f = &t->netifs[i];
        if (!netif_counts(f, known) || text_begins_with_any(f->name, names, n) == other)
            continue;
        struct nccl_net *net =
            add_net(g, f->name, f->speed_mbps > 0 ? (uint64_t)f->speed_mbps : 10000);
        net->netif = i;
        net->pci = f->pci < t->n_pci ? f->pci : TOPO_NONE;
    }
}

/* ncclFindInterfaces: uses the first rule that finds an interface. The subnet of NCCL_COMM_ID,
 * which NCCL tries after ib*, is not known here. */
static void choose_sockets(struct nccl_graph *g) {
    static const char *const ib = "ib", *const late[] = {"docker", "lo", "virbr"};
    take_netifs(g, &ib, 1, false);
    if (g->n_nets == 0)
        take_netifs(g, late, ARRAY_SIZE(late), true);
    for (size_t i = 0; g->n_nets == 0 && i < ARRAY_SIZE(late); i++)
        take_netifs(g, &late[i], 1, false);
}

static int choose_nets(struct nccl_graph *g, struct err *err) {
    if (g->t->source == TOPO_NCCL_XML) {
        choose_from_file(g);
    } else {
        choose_rdma(g);
        if (g->n_nets == 0)
            choose_sockets(g);
    }
    return g->n_nets <= NCCL_NODES_MAX
               ? 0
               : err_set(err, -E2BIG, "more than %d network devices, which is NCCL's limit",
                         NCCL_NODES_MAX);
}

/* ---- PCI: parents and speeds ---- */

static uint32_t parent_of(const struct topology *t, uint32_t i) {
    uint32_t p = i < t->n_pci ? t->pci[i].parent : TOPO_NONE;
    return p < t->n_pci ? p : TOPO_NONE;
}

/* The `<pci>` above a device. In sysfs NCCL goes up two steps at once, so that root ports and
 * downstream ports disappear (src/graph/xml.cc, ncclTopoGetXmlFromSys). For a file its own elements
 * are used. */
static uint32_t pci_parent(const struct topology *t, uint32_t i) {
    uint32_t p = parent_of(t, i);
    return t->source == TOPO_NCCL_XML ? p : parent_of(t, p);
}

/* kvDictPciGen: the first entry with which the text begins counts; in 100 Mb/s for each lane. */
static const struct {
    const char *form;
    double speed;
} pci_speeds[] = {
    {"2.5 GT/s", 15},        {"5 GT/s", 30},          {"8 GT/s", 60},
    {"16 GT/s", 120},        {"32 GT/s", 240},        {"64 GT/s", 480},
    {"5.0 GT/s PCIe", 30},   {"8.0 GT/s PCIe", 60},   {"16.0 GT/s PCIe", 120},
    {"32.0 GT/s PCIe", 240}, {"64.0 GT/s PCIe", 480},
};

static const double *find_speed(const char *text) {
    for (size_t i = 0; i < ARRAY_SIZE(pci_speeds); i++)
        if (strncmp(text, pci_speeds[i].form, strlen(pci_speeds[i].form)) == 0)
            return &pci_speeds[i].speed;
    return NULL;
}

bool nccl_pci_speed_known(const char *speed) { return find_speed(speed) != NULL; }

static double pci_gbs(const char *speed, uint32_t width) {
    const double *s = find_speed(speed);
    return (width == 0 ? 16 : width) * (s != NULL ? *s : 60) / 80.0;
}

static const char *const generations[] = {"2.5 GT/s PCIe",  "5.0 GT/s PCIe",  "8.0 GT/s PCIe",
                                          "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};

/* hwloc gives only GB/s, after the line code (8b/10b, from gen 3 on 128b/130b). This finds the
 * generation and width again. NCCL's figure is the same for all that come close. */
static void link_of_gbs(double gbs, char speed[32], uint32_t *width) {
    static const double lane[] = {0.25, 0.5, 0.985, 1.969, 3.938, 7.877};
    static const uint32_t widths[] = {16, 8, 4, 2, 1, 12, 32};
    double best = INFINITY;
    for (size_t g = ARRAY_SIZE(lane); g-- > 0;)
        for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
            double off = fabs(lane[g] * widths[w] - gbs) / gbs;
            if (off < best * 0.9) {
                best = off;
                (void)snprintf(speed, 32, "%s", generations[g]);
                *width = widths[w];
            }
        }
}

/* Keeps the slower of the two, compared as numbers. */
static void slower(char speed[32], const char *other) {
    if (*other != '\0' && (*speed == '\0' || strtod(other, NULL) < strtod(speed, NULL)))
        (void)snprintf(speed, 32, "%s", other);
}
static uint32_t narrower(uint32_t a, uint32_t b) { return a == 0 ? b : b == 0 ? a : MIN2(a, b); }

void nccl_pci_link(const struct topology *t, uint32_t i, char speed[32], uint32_t *width) {
    const struct topo_pci *p = &t->pci[i];
    (void)snprintf(speed, 32, "%s", p->link_speed);
    *width = p->link_width;
    if (t->source == TOPO_NCCL_XML)
        return;
    slower(speed, p->up_speed);
    *width = narrower(*width, p->up_width);
    for (uint32_t k = 0; k < t->n_gpus; k++) {
        const struct topo_gpu *gpu = &t->gpus[k];
        if (gpu->pci != i)
            continue;
        /* NCCL uses the current speed of a GPU's link, while CUDA runs on it. An idle link is
         * reduced to generation 1, so the maximum generation is used here; lost lanes are
         * counted. */
        if (*speed == '\0' && gpu->max_gen >= 1 && gpu->max_gen <= ARRAY_SIZE(generations))
            (void)snprintf(speed, 32, "%s", generations[gpu->max_gen - 1]);
        *width = narrower(*width, gpu->cur_width != 0 ? gpu->cur_width : gpu->max_width);
    }
    if (*speed == '\0' && p->link_gbs > 0 && isfinite(p->link_gbs))
        link_of_gbs(p->link_gbs, speed, width);
}

/* Invalidates pointers into nodes[]. */
static uint32_t add_node(struct nccl_graph *g, enum nccl_node_kind kind, uint32_t parent) {
    g->nodes = xgrow(g->nodes, g->n_nodes, sizeof *g->nodes);
    uint32_t at = g->n_nodes++;
    g->nodes[at] = (struct nccl_node){.kind = kind,
                                      .index = TOPO_NONE,
                                      .pci = TOPO_NONE,
                                      .numa = -1,
                                      .parent = parent,
                                      .first_child = TOPO_NONE,
                                      .next = TOPO_NONE,
                                      .bandwidth = NCCL_LOCAL_GBS,
                                      .end = TOPO_NONE};
    if (parent != TOPO_NONE) {
        uint32_t *last = &g->nodes[parent].first_child;
        while (*last != TOPO_NONE)
            last = &g->nodes[*last].next;
        *last = at;
    }
    return at;
}

static uint32_t need_cpu(struct nccl_graph *g, int32_t numa) {
    for (uint32_t i = 0; i < g->n_cpus; i++)
        if (g->nodes[g->cpus[i]].numa == numa)
            return g->cpus[i];
    uint32_t cpu = add_node(g, NCCL_NODE_CPU, TOPO_NONE);
    g->nodes[cpu].numa = numa;
    g->cpus = xgrow(g->cpus, g->n_cpus, sizeof *g->cpus);
    g->cpus[g->n_cpus++] = cpu;
    return cpu;
}

static uint32_t need_child(struct nccl_graph *g, uint32_t parent, enum nccl_node_kind kind,
                           uint32_t pci) {
    for (uint32_t i = g->nodes[parent].first_child; i != TOPO_NONE; i = g->nodes[i].next)
        if (g->nodes[i].kind == kind && g->nodes[i].pci == pci)
            return i;
    uint32_t node = add_node(g, kind, parent);
    g->nodes[node].pci = pci;
    if (pci != TOPO_NONE) {
        char speed[32];
        uint32_t width;
        nccl_pci_link(g->t, pci, speed, &width);
        g->nodes[node].bandwidth = pci_gbs(speed, width);
    }
    return node;
}

/* Makes the node for a PCI device and all switches above it. */
static uint32_t need_device(struct nccl_graph *g, uint32_t pci, enum nccl_node_kind kind) {
    const struct topology *t = g->t;
    uint32_t depth = 0, top = pci;
    for (uint32_t p = pci_parent(t, pci); p != TOPO_NONE; p = pci_parent(t, p), depth++)
        top = p;
    int32_t numa = t->pci[top].numa;
    uint32_t node = need_cpu(g, numa >= 0 ? numa : t->pci[pci].numa);
    for (; depth > 0; depth--) {
        uint32_t p = pci;
        for (uint32_t k = 0; k < depth; k++)
            p = pci_parent(t, p);
        node = need_child(g, node, NCCL_NODE_PCI, p);
    }
    return need_child(g, node, kind, pci);
}

/* True if NCCL's graph has this GPU: one from NVIDIA; if there are none, any other. */
static bool takes_gpu(const struct topology *t, uint32_t gpu) {
    if (t->source == TOPO_NCCL_XML)
        return true; /* GPUs in a file for NCCL are NVIDIA's, whatever their vendor is there */
    return t->gpus[gpu].vendor == TOPO_VENDOR_NVIDIA ||
           topology_count_gpus(t, TOPO_VENDOR_NVIDIA) == 0;
}

static void add_gpu(struct nccl_graph *g, uint32_t gpu) {
    const struct topo_gpu *p = &g->t->gpus[gpu];
    uint32_t node;
    if (p->pci < g->t->n_pci) {
        node = need_device(g, p->pci, NCCL_NODE_GPU);
    } else {
        node = add_node(g, NCCL_NODE_GPU, need_cpu(g, p->numa));
        g->nodes[node].bandwidth = pci_gbs("", 0);
    }
    g->nodes[node].index = gpu;
    g->gpu_place[gpu] = g->n_gpus;
    g->gpus[g->n_gpus++] = node;
}

static uint32_t cpu_of(const struct nccl_graph *g, uint32_t at) {
    while (g->nodes[at].parent != TOPO_NONE)
        at = g->nodes[at].parent;
    return at;
}

static void add_place(struct nccl_graph *g, uint32_t net, uint32_t nic_node) {
    for (uint32_t i = 0; i < g->n_places; i++)
        if (g->places[i].net == net && g->places[i].nic_node == nic_node)
            return;
    g->places = xgrow(g->places, g->n_places, sizeof *g->places);
    g->places[g->n_places++] = (struct nccl_place){net, nic_node};
}

static void hang_at_cpu(struct nccl_graph *g, uint32_t net, uint32_t cpu) {
    add_place(g, net, need_child(g, cpu, NCCL_NODE_NIC, TOPO_NONE));
}

/* NCCL_IB_MERGE_VFS (on): device and function of an RDMA device's address become 0. So a card's
 * virtual functions are merged, and in a VM a device of the root bus is placed at the host
 * bridge. */
static uint32_t hang_rdma(struct nccl_graph *g, uint32_t net) {
    const struct topology *t = g->t;
    const struct topo_pci *p = &t->pci[g->nets[net].pci];
    struct pci_addr at = p->at;
    if (at.dev == 0 && at.fn == 0)
        return need_device(g, g->nets[net].pci, NCCL_NODE_NIC);
    at.dev = 0;
    at.fn = 0;
    uint32_t merged = topology_find_pci(t, at);
    if (merged == TOPO_NONE || parent_of(t, merged) != parent_of(t, g->nets[net].pci) ||
        t->pci[merged].bridge)
        merged = g->nets[net].pci;
    uint32_t node = need_device(g, merged, NCCL_NODE_NIC);
    if (parent_of(t, merged) == TOPO_NONE && p->at.dev != 0) {
        g->nodes[node].host_bridge = true; /* a host bridge has no link */
        g->nodes[node].bandwidth = pci_gbs("", 0);
    }
    return node;
}

static void add_net_place(struct nccl_graph *g, uint32_t net) {
    const struct nccl_net *n = &g->nets[net];
    if (n->pci == TOPO_NONE)
        return;
    bool ib = n->nic != TOPO_NONE && g->t->nics[n->nic].kind == TOPO_NIC_RDMA;
    add_place(g, net, ib ? hang_rdma(g, net) : need_device(g, n->pci, NCCL_NODE_NIC));
}

/* From a file: every `net` at its place. */
static void add_file_places(struct nccl_graph *g) {
    const struct topology *t = g->t;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        uint32_t net = 0;
        while (net < g->n_nets && g->nets[net].dev != nic->dev)
            net++;
        if (net == g->n_nets)
            continue;
        if (nic->pci < t->n_pci)
            add_place(g, net, need_device(g, nic->pci, NCCL_NODE_NIC));
        else
            hang_at_cpu(g, net, need_cpu(g, nic->numa));
    }
}

static void hang_virtual(struct nccl_graph *g, uint32_t cpu) {
    for (uint32_t i = 0; i < g->n_nets; i++)
        if (g->nets[i].pci == TOPO_NONE)
            hang_at_cpu(g, i, cpu);
}

/* Each rank places interfaces without a PCI device at the CPU of its own GPU. */
static void add_virtual_places(struct nccl_graph *g) {
    for (uint32_t k = 0; k < g->n_gpus; k++)
        hang_virtual(g, cpu_of(g, g->gpus[k]));
    if (g->n_gpus > 0)
        return;
    if (g->n_cpus == 0)
        (void)need_cpu(g, g->t->n_numa > 0 ? g->t->numa[0].index : -1);
    hang_virtual(g, g->cpus[0]);
}

/* The next node in the order of the XML, depth first. */
static uint32_t walk_next(const struct nccl_graph *g, uint32_t at) {
    if (g->nodes[at].first_child != TOPO_NONE)
        return g->nodes[at].first_child;
    while (at != TOPO_NONE && g->nodes[at].next == TOPO_NONE)
        at = g->nodes[at].parent;
    return at == TOPO_NONE ? TOPO_NONE : g->nodes[at].next;
}

/* NETs and GPUs are numbered by their order in the XML that the ranks build together. */
static void order_as_xml(struct nccl_graph *g) {
    _cleanup_(freep) uint32_t *map = xcalloc(g->n_nets, sizeof *map);
    uint32_t n = 0, n_gpus = 0;
    for (uint32_t i = 0; i < g->n_nets; i++)
        map[i] = TOPO_NONE;
    for (uint32_t c = 0; c < g->n_cpus; c++)
        for (uint32_t at = g->cpus[c]; at != TOPO_NONE; at = walk_next(g, at)) {
            if (g->nodes[at].kind == NCCL_NODE_GPU) {
                g->gpu_place[g->nodes[at].index] = n_gpus;
                g->gpus[n_gpus++] = at;
            }
            for (uint32_t p = 0; g->nodes[at].kind == NCCL_NODE_NIC && p < g->n_places; p++)
                if (g->places[p].nic_node == at && map[g->places[p].net] == TOPO_NONE)
                    map[g->places[p].net] = n++;
        }
    struct nccl_net *nets = xcalloc(g->n_nets, sizeof *nets);
    for (uint32_t i = 0; i < g->n_nets; i++) {
        map[i] = map[i] == TOPO_NONE ? n++ : map[i];
        nets[map[i]] = g->nets[i];
    }
    for (uint32_t i = 0; i < g->n_places; i++)
        g->places[i].net = map[g->places[i].net];
    free(g->nets);
    g->nets = nets;
}

static void add_gpus(struct nccl_graph *g, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        if (takes_gpu(g->t, i))
            add_gpu(g, i);
}

/* The tree has a node for each GPU, and an end. */
static int check_devices(const struct topology *t, struct err *err) {
    for (uint32_t i = 0; i < t->n_pci; i++) {
        uint32_t depth = 0;
        for (uint32_t p = i; p != TOPO_NONE && depth <= t->n_pci; p = parent_of(t, p))
            depth++;
        if (depth > t->n_pci)
            return err_set(err, -EINVAL, "the PCI bridges above %s form a circle",
                           pci_addr_text(t->pci[i].at).text);
    }
    for (uint32_t i = 0; i < t->n_gpus; i++)
        for (uint32_t k = i + 1; k < t->n_gpus; k++)
            if (t->gpus[i].pci < t->n_pci && t->gpus[i].pci == t->gpus[k].pci && takes_gpu(t, i) &&
                takes_gpu(t, k))
                return err_set(err, -EINVAL, "GPUs %u and %u are the same PCI device", (unsigned)i,
                               (unsigned)k);
    return 0;
}

static int check_counts(const struct nccl_graph *g, struct err *err) {
    uint32_t n[NCCL_NODE_KINDS] = {0};
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (n[g->nodes[i].kind]++ == NCCL_NODES_MAX)
            return err_set(err, -E2BIG,
                           "more than %d CPUs, PCI devices or GPUs of a kind, which is "
                           "NCCL's limit",
                           NCCL_NODES_MAX);
    return 0;
}

int nccl_graph_build_tree(struct nccl_graph *g, struct err *err) {
    const struct topology *t = g->t;
    int r = choose_nets(g, err);
    if (r == 0)
        r = check_devices(t, err);
    if (r < 0)
        return r;
    g->gpus = xcalloc(t->n_gpus, sizeof *g->gpus);
    g->gpu_place = xcalloc(t->n_gpus, sizeof *g->gpu_place);
    for (uint32_t i = 0; i < t->n_gpus; i++)
        g->gpu_place[i] = TOPO_NONE;
    if (t->source == TOPO_NCCL_XML) { /* the NETs' order is the file's */
        add_file_places(g);
        add_gpus(g, 0, t->n_gpus);
        return check_counts(g, err);
    }
    uint32_t rank0 = 0;
    while (rank0 < t->n_gpus && !takes_gpu(t, rank0))
        rank0++;
    rank0 = MIN2(rank0 + 1, t->n_gpus);
    add_gpus(g, 0, rank0);
    for (uint32_t i = 0; i < g->n_nets; i++)
        add_net_place(g, i);
    add_gpus(g, rank0, t->n_gpus);
    add_virtual_places(g);
    order_as_xml(g);
    return check_counts(g, err);
}

/* Links between the nodes: PCI, NVLink, C2C, CPU to CPU, NIC to NET (src/graph/topo.cc). */

/* GB/s of one NVLink (src/graph/topo.h, SM*_NVLINK_BW). */
static double nccl_nvlink_gbs(uint32_t sm) {
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

/* GB/s between two NUMA nodes (src/graph/topo.h, *_QPI_BW and the like). */
static double cpu_link_gbs(const struct topology *t) {
    if (text_begins(t->arch, "ppc64"))
        return 32;
    if (text_begins(t->arch, "aarch64") || text_begins(t->arch, "arm64"))
        return 6;
    if (t->arch[0] != '\0' && !text_begins(t->arch, "x86_64"))
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
    _cleanup_(freep) uint32_t *inner = xcalloc(g->n_nodes, sizeof *inner);
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

/* Adds a link in one direction. Several links of a pair add up. */
static void add_link(struct nccl_graph *g, uint32_t from, uint32_t to, enum nccl_path kind,
                     double bandwidth) {
    struct nccl_node *n = &g->nodes[from];
    uint32_t i = 0;
    while (i < n->n_links && (n->links[i].to != to || n->links[i].kind != kind))
        i++;
    if (i == n->n_links) {
        n->links = xgrow(n->links, n->n_links, sizeof *n->links);
        n->links[n->n_links++] = (struct nccl_link){.kind = kind, .to = to};
    }
    n->links[i].bandwidth += bandwidth;
}

static void add_both(struct nccl_graph *g, uint32_t a, uint32_t b, enum nccl_path kind,
                     double bandwidth) {
    add_link(g, a, b, kind, bandwidth);
    add_link(g, b, a, kind, bandwidth);
}

static void link_nvlink(struct nccl_graph *g, const struct topo_nvlink *l, uint32_t *nvs) {
    const struct topology *t = g->t;
    if (l->gpu >= t->n_gpus || g->gpu_place[l->gpu] == TOPO_NONE)
        return;
    uint32_t gpu = g->gpus[g->gpu_place[l->gpu]];
    double gbs = bundle_gbs(t, l);
    if (!(gbs > 0))
        return;
    switch (l->end) {
    case TOPO_NVLINK_GPU:
        /* One direction: the other GPU lists its own. */
        if (l->peer < t->n_gpus && g->gpu_place[l->peer] != TOPO_NONE)
            add_link(g, gpu, g->gpus[g->gpu_place[l->peer]], NCCL_PATH_NVL, gbs);
        return;
    case TOPO_NVLINK_CPU:
        add_both(g, gpu, cpu_of(g, gpu), l->c2c ? NCCL_PATH_C2C : NCCL_PATH_NVL, gbs);
        return;
    case TOPO_NVLINK_SWITCH:
        if (*nvs == TOPO_NONE) /* one node for all switches */
            *nvs = add_node(g, NCCL_NODE_NVS, TOPO_NONE);
        add_both(g, gpu, *nvs, NCCL_PATH_NVL, gbs);
        return;
    }
}

static void link_nets(struct nccl_graph *g) {
    for (uint32_t i = 0; i < g->n_nets; i++) {
        struct nccl_net *n = &g->nets[i];
        n->node = add_node(g, NCCL_NODE_NET, TOPO_NONE);
        g->nodes[n->node].index = i;
        double gbs = n->mbps == 0 ? NCCL_LOCAL_GBS : (double)n->mbps / 8000.0;
        for (uint32_t p = 0; p < g->n_places; p++)
            if (g->places[p].net == i)
                add_both(g, g->places[p].nic_node, n->node, NCCL_PATH_NET, gbs);
    }
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

void nccl_graph_link(struct nccl_graph *g) {
    const struct topology *t = g->t;
    uint32_t nvs = TOPO_NONE, n_tree = g->n_nodes;
    flatten_broadcom(g);
    for (uint32_t i = 0; i < n_tree; i++)
        if (g->nodes[i].parent != TOPO_NONE)
            add_both(g, i, g->nodes[i].parent, NCCL_PATH_PIX, g->nodes[i].bandwidth);
    link_nets(g);
    for (int c2c = 0; c2c <= 1; c2c++) /* C2C after all NVLinks, in NCCL's order */
        for (uint32_t i = 0; i < t->n_nvlinks; i++)
            if (t->nvlinks[i].c2c == (c2c != 0))
                link_nvlink(g, &t->nvlinks[i], &nvs);
    link_cpus(g);
    for (uint32_t i = 0; i < n_tree; i++)
        put_up_last(g, i);
}
