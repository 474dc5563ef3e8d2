#include "topology/nccl/nccl_graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "topology/nccl/nccl_graph_priv.h"

const char *nccl_path_name(enum nccl_path p) {
    static const char *const names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                        "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
    return (size_t)p < ARRAY_SIZE(names) ? names[p] : "?";
}

void nccl_graph_free(struct nccl_graph *g) {
    if (g == NULL)
        return;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        free(g->nodes[i].links);
    free(g->nodes);
    free(g->nets);
    free(g->places);
    free(g->gpus);
    free(g->cpus);
    free(g->gpu_place);
    free(g->routes);
    free(g->direct);
    free(g->choices);
    free(g->left);
    free(g);
}

/* src/graph/paths.cc, ncclTopoComputePaths; ncclTopoGetLocalNet and -Gpu of topo.cc. */

static struct nccl_route *route_at(const struct nccl_graph *g, uint32_t from_node,
                                   uint32_t to_node) {
    return &g->routes[(size_t)g->nodes[from_node].end * g->n_ends + g->nodes[to_node].end];
}

struct walk {
    struct nccl_route *routes; /* [n_nodes] from each node to the base */
    /* [n_nodes]; stamps: the round in which a node was put into next */
    uint32_t *now, *next, *stamps;
};

static bool has_way_back(const struct nccl_graph *g, uint32_t from, uint32_t to,
                         enum nccl_path kind) {
    const struct nccl_node *n = &g->nodes[from];
    for (uint32_t i = 0; i < n->n_links; i++)
        if (n->links[i].to == to && n->links[i].kind == kind)
            return true;
    return false;
}

/* No path goes through a GPU, except for one hop of NVLink (NVB), and none goes through a NET. */
static bool may_pass(const struct nccl_graph *g, uint32_t base, uint32_t at,
                     const struct nccl_link *l, uint32_t hops) {
    if (at == base)
        return true;
    if (g->nodes[at].kind == NCCL_NODE_NET)
        return false;
    return g->nodes[at].kind != NCCL_NODE_GPU ||
           (l->kind == NCCL_PATH_NVL && g->nodes[l->to].kind == NCCL_NODE_GPU && hops <= 1);
}

static enum nccl_path kind_after(const struct nccl_graph *g, const struct nccl_route *path,
                                 uint32_t at, const struct nccl_link *l) {
    enum nccl_node_kind a = g->nodes[at].kind, b = g->nodes[l->to].kind;
    enum nccl_path kind = l->kind == NCCL_PATH_NET ? NCCL_PATH_LOC : l->kind;
    if (a == NCCL_NODE_PCI && b == NCCL_NODE_PCI)
        kind = NCCL_PATH_PXB;
    if (l->kind == NCCL_PATH_PIX && (a == NCCL_NODE_CPU || b == NCCL_NODE_CPU))
        kind = NCCL_PATH_PHB;
    if (a == NCCL_NODE_GPU && path->kind == NCCL_PATH_NVL && kind == NCCL_PATH_NVL &&
        path->hops >= 1)
        kind = NCCL_PATH_NVB;
    return MAX2(path->kind, kind);
}

static int no_way_back(const struct nccl_graph *g, uint32_t a, uint32_t b, struct err *err) {
    return err_set(err, -EINVAL,
                   "GPU %u has NVLinks to GPU %u, which has none back: NCCL fails on "
                   "this; look at nvidia-smi nvlink --status",
                   (unsigned)g->nodes[a].index, (unsigned)g->nodes[b].index);
}

static int step(const struct nccl_graph *g, uint32_t base, uint32_t at, struct walk *w,
                uint32_t *n_next, struct err *err) {
    const struct nccl_route *path = &w->routes[at];
    uint32_t round = path->hops + 1;
    for (uint32_t i = 0; i < g->nodes[at].n_links; i++) {
        const struct nccl_link *l = &g->nodes[at].links[i];
        struct nccl_route *to = &w->routes[l->to];
        double gbs = MIN2(path->bandwidth, l->bandwidth);
        if (!may_pass(g, base, at, l, path->hops))
            continue;
        /* A path replaces the existing one if it has more bandwidth and no more hops; kinds are not
         * compared. */
        if ((to->bandwidth > 0 && to->hops <= path->hops) || to->bandwidth >= gbs)
            continue;
        if (l->kind == NCCL_PATH_NVL && !has_way_back(g, l->to, at, NCCL_PATH_NVL))
            return no_way_back(g, at, l->to, err);
        *to = (struct nccl_route){gbs, round, kind_after(g, path, at, l), TOPO_NONE};
        if (w->stamps[l->to] != round) {
            w->stamps[l->to] = round;
            w->next[(*n_next)++] = l->to;
        }
    }
    return 0;
}

static int walk_from(struct nccl_graph *g, uint32_t base, struct walk *w, struct err *err) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        w->routes[i] = (struct nccl_route){.kind = NCCL_PATH_DIS, .via = TOPO_NONE};
        w->stamps[i] = 0;
    }
    w->routes[base] = (struct nccl_route){NCCL_LOCAL_GBS, 0, NCCL_PATH_LOC, TOPO_NONE};
    w->now[0] = base;
    for (uint32_t n_now = 1; n_now > 0;) {
        uint32_t n_next = 0;
        for (uint32_t i = 0; i < n_now; i++) {
            int r = step(g, base, w->now[i], w, &n_next, err);
            if (r < 0)
                return r;
        }
        uint32_t *now = w->now;
        w->now = w->next;
        w->next = now;
        n_now = n_next;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].end != TOPO_NONE)
            *route_at(g, i, base) = w->routes[i];
    return 0;
}

static int walk_all(struct nccl_graph *g, struct err *err) {
    struct walk w = {.routes = xcalloc(g->n_nodes + 1u, sizeof *w.routes),
                     .now = xcalloc(g->n_nodes + 1u, sizeof *w.now),
                     .next = xcalloc(g->n_nodes + 1u, sizeof *w.next),
                     .stamps = xcalloc(g->n_nodes + 1u, sizeof *w.stamps)};
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < g->n_nodes; i++)
        if (g->nodes[i].end != TOPO_NONE)
            r = walk_from(g, i, &w, err);
    free(w.routes);
    free(w.now);
    free(w.next);
    free(w.stamps);
    return r;
}

static uint32_t near_cpu(const struct nccl_graph *g, uint32_t gpu_node) {
    uint32_t best = TOPO_NONE, hops = 0;
    for (uint32_t i = 0; i < g->n_cpus; i++) {
        uint32_t n = route_at(g, gpu_node, g->cpus[i])->hops;
        if (n > 0 && (best == TOPO_NONE || n < hops)) {
            best = g->cpus[i];
            hops = n;
        }
    }
    return best;
}

static enum nccl_path merged_kind(enum nccl_path a, enum nccl_path b) {
    enum nccl_path far = MAX2(a, b), near = MIN2(a, b);
    return far == NCCL_PATH_PHB && near == NCCL_PATH_C2C ? NCCL_PATH_P2C : far;
}

static void go_over(struct nccl_graph *g, uint32_t over, uint32_t from, uint32_t to) {
    struct nccl_route *path = route_at(g, from, to);
    const struct nccl_route *a = route_at(g, from, over), *b = route_at(g, over, to);
    bool pxn = g->nodes[over].kind == NCCL_NODE_GPU;
    *path = (struct nccl_route){.bandwidth = MIN2(a->bandwidth, b->bandwidth),
                                .hops = a->hops + b->hops,
                                .kind = pxn ? NCCL_PATH_PXN : merged_kind(a->kind, b->kind),
                                .via = pxn ? g->gpu_place[g->nodes[over].index] : TOPO_NONE};
}

/* A path between GPUs beyond PXB goes through the CPU. (NCCL allows more for a pair of
 * GPUs on an AMD machine; but paths beyond PXB go through the CPU anyway.) */
static void divert_p2p(struct nccl_graph *g) {
    for (uint32_t to = 0; to < g->n_gpus; to++) {
        uint32_t cpu = near_cpu(g, g->gpus[to]);
        for (uint32_t from = 0; cpu != TOPO_NONE && from < g->n_gpus; from++)
            if (route_at(g, g->gpus[from], g->gpus[to])->kind > NCCL_PATH_PXB)
                go_over(g, cpu, g->gpus[from], g->gpus[to]);
    }
}

/* ncclTopoGetLocal: the NETs, or GPUs, that a node reaches with the most bandwidth, and among these
 * over the nearest kind of path. */
static uint32_t find_local(const struct nccl_graph *g, uint32_t from, bool nets, uint32_t *ret) {
    const struct nccl_route *best = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < (nets ? g->n_nets : g->n_gpus); i++) {
        const struct nccl_route *path = route_at(g, from, nets ? g->nets[i].node : g->gpus[i]);
        bool more = path->bandwidth > (best == NULL ? 0 : best->bandwidth);
        if (!more && (best == NULL || path->bandwidth < best->bandwidth || path->kind > best->kind))
            continue;
        if (more || path->kind < best->kind)
            n = 0;
        best = path;
        ret[n++] = i;
    }
    return n;
}

/* Reverses the bits of `value` below the power of two. */
static uint32_t mirror_bits(uint32_t value, uint32_t power) {
    uint32_t mirrored = 0;
    for (uint32_t bit = 1, to = power >> 1; bit < power; bit <<= 1, to >>= 1)
        mirrored |= (value & bit) != 0 ? to : 0;
    return mirrored;
}

static const struct nccl_choice *choice_of(struct nccl_graph *g, uint32_t gpu) {
    struct nccl_choice *c = &g->choices[gpu];
    uint32_t local[TOPO_GPUS_MAX];
    if (c->valid)
        return c;
    c->n = find_local(g, g->gpus[gpu], true, c->nets);
    if (c->n > 0) {
        uint32_t gpus = find_local(g, g->nets[c->nets[0]].node, false, local);
        gpus = MAX2(gpus, 1);
        c->start = g->t->gpus[g->nodes[g->gpus[gpu]].index].index % gpus;
        if ((c->n & (c->n - 1)) == 0)
            c->start = mirror_bits(c->start, c->n);
        c->per_gpu = (c->n + gpus - 1) / gpus;
    }
    c->valid = true;
    return c;
}

/* The first channel on which the GPU uses this NET; TOPO_NONE: none. */
static uint32_t channel_of(const struct nccl_choice *c, uint32_t net) {
    for (uint32_t i = 0; i < c->n; i++)
        if (c->nets[i] == net) {
            uint32_t channel = (i + c->n - c->start % c->n) % c->n;
            return channel < MIN2(c->per_gpu, NCCL_CHANNELS_MAX) ? channel : TOPO_NONE;
        }
    return TOPO_NONE;
}

static uint32_t net_of(const struct nccl_graph *g, uint32_t gpu, uint32_t channel) {
    const struct nccl_choice *c = &g->choices[gpu];
    return c->n == 0 ? TOPO_NONE : c->nets[(c->start + channel % c->per_gpu) % c->n];
}

/* ncclTopoGetLocalGpu: among the GPUs local to a NET the first that uses it, channel by channel. */
static uint32_t local_gpu(struct nccl_graph *g, uint32_t net) {
    uint32_t gpus[TOPO_GPUS_MAX], n = find_local(g, g->nets[net].node, false, gpus);
    uint32_t best = TOPO_NONE, first = TOPO_NONE;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = channel_of(choice_of(g, gpus[i]), net);
        if (c < first) {
            first = c;
            best = gpus[i];
        }
    }
    return best;
}

/* ncclTopoCheckGdr. Before Ampere without NVLink it does not use GPUDirect for reads. That does not
 * matter here: only PXN reads, and it has NVLink. */
static bool gdr_works(const struct nccl_graph *g, uint32_t gpu, uint32_t net) {
    if (!g->nets[net].gdr || g->t->gpus[g->nodes[g->gpus[gpu]].index].gdr == 0)
        return false;
    const struct nccl_route *path = route_at(g, g->gpus[gpu], g->nets[net].node);
    if (path->kind == NCCL_PATH_PXN && path->via != TOPO_NONE)
        path = route_at(g, g->gpus[path->via], g->nets[net].node);
    return path->kind <= NCCL_PATH_P2C;
}

static void forget_choices_of(struct nccl_graph *g, uint32_t net) {
    for (uint32_t i = 0; i < g->n_gpus; i++)
        if (g->choices[i].valid && g->choices[i].n > 0 && g->choices[i].nets[0] == net)
            g->choices[i].valid = false;
}

/* A path of C2C to the CPU and PHB from there is P2C. This is for the NETs that are nearest
 * anyway. */
static void find_p2c(struct nccl_graph *g) {
    for (uint32_t i = 0; i < g->n_gpus; i++) {
        uint32_t cpu = near_cpu(g, g->gpus[i]);
        if (cpu == TOPO_NONE)
            continue;
        const struct nccl_choice *c = choice_of(g, i);
        for (uint32_t k = 0; k < c->n; k++) {
            uint32_t net = g->nets[c->nets[k]].node;
            if (merged_kind(route_at(g, g->gpus[i], cpu)->kind, route_at(g, net, cpu)->kind) !=
                NCCL_PATH_P2C)
                continue;
            struct nccl_route *to = route_at(g, g->gpus[i], net);
            struct nccl_route *from = route_at(g, net, g->gpus[i]);
            to->kind = MIN2(to->kind, NCCL_PATH_P2C);
            from->kind = MIN2(from->kind, NCCL_PATH_P2C);
        }
    }
    for (uint32_t i = 0; i < g->n_gpus; i++)
        g->choices[i].valid = false;
}

/* Uses a path through a GPU near the NET, if that is faster or avoids the CPU. */
static void try_pxn(struct nccl_graph *g, uint32_t gpu, uint32_t net) {
    uint32_t peer = local_gpu(g, net), node = g->nets[net].node;
    if (peer == gpu || peer == TOPO_NONE)
        return;
    const struct nccl_route *theirs = route_at(g, g->gpus[peer], node);
    const struct nccl_route *ours = route_at(g, g->gpus[gpu], node);
    if (theirs->kind <= NCCL_PATH_P2C && gdr_works(g, peer, net) &&
        route_at(g, g->gpus[peer], g->gpus[gpu])->kind <= NCCL_PATH_NVL &&
        (theirs->bandwidth > ours->bandwidth || ours->kind > NCCL_PATH_PXN)) {
        go_over(g, g->gpus[peer], g->gpus[gpu], node);
        g->choices[gpu].valid = false;
    }
}

static void refine_nets(struct nccl_graph *g) {
    for (uint32_t net = 0; net < g->n_nets; net++)
        for (uint32_t gpu = 0; gpu < g->n_gpus; gpu++) {
            try_pxn(g, gpu, net);
            uint32_t node = g->nets[net].node, at = g->gpus[gpu];
            uint32_t cpu = near_cpu(g, at);
            if (route_at(g, at, node)->kind >= NCCL_PATH_PHB || gdr_works(g, gpu, net) ||
                cpu == TOPO_NONE)
                continue;
            go_over(g, cpu, node, at);
            go_over(g, cpu, at, node);
            g->choices[gpu].valid = false;
            forget_choices_of(g, net);
        }
}

static void keep_direct(struct nccl_graph *g) {
    g->direct = xcalloc((size_t)g->n_gpus * g->n_nets, sizeof *g->direct);
    for (uint32_t i = 0; i < g->n_gpus; i++)
        for (uint32_t k = 0; k < g->n_nets; k++)
            g->direct[(size_t)i * g->n_nets + k] = *route_at(g, g->gpus[i], g->nets[k].node);
}

static int find_paths(struct nccl_graph *g, struct err *err) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        enum nccl_node_kind k = g->nodes[i].kind;
        if (k == NCCL_NODE_CPU || k == NCCL_NODE_GPU || k == NCCL_NODE_NET)
            g->nodes[i].end = g->n_ends++;
    }
    g->routes = xcalloc((size_t)g->n_ends * g->n_ends, sizeof *g->routes);
    int r = walk_all(g, err);
    if (r < 0)
        return r;
    g->choices = xcalloc(g->n_gpus, sizeof *g->choices);
    divert_p2p(g);
    find_p2c(g);
    keep_direct(g);
    refine_nets(g);
    for (uint32_t i = 0; i < g->n_gpus; i++)
        (void)choice_of(g, i);
    return 0;
}

static int new_graph(const struct topology *t, bool paths, struct nccl_graph **ret,
                     struct err *err) {
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = xcalloc(1, sizeof *g);
    g->t = t;
    int r = nccl_graph_build_tree(g, err);
    if (r == 0 && paths) {
        nccl_graph_link(g);
        r = find_paths(g, err);
    }
    if (r == 0)
        *ret = TAKE_PTR(g);
    return r;
}

int nccl_graph_new_tree(const struct topology *t, struct nccl_graph **ret, struct err *err) {
    return new_graph(t, false, ret, err);
}

int nccl_graph_new(const struct topology *t, struct nccl_graph **ret, struct err *err) {
    return new_graph(t, true, ret, err);
}

/* The NET that is nearest by kind of path; among equals the one that NCCL takes, else the
 * fastest. */
static void find_own(const struct nccl_graph *g, uint32_t gpu, uint32_t taken,
                     struct nccl_prediction *ret) {
    uint32_t own = TOPO_NONE;
    const struct nccl_route *direct = &g->direct[(size_t)gpu * g->n_nets];
    for (uint32_t i = 0; i < g->n_nets; i++) {
        if (direct[i].bandwidth <= 0)
            continue;
        bool nearer = own == TOPO_NONE || direct[i].kind < direct[own].kind;
        bool equal = own != TOPO_NONE && direct[i].kind == direct[own].kind;
        if (nearer ||
            (equal && own != taken && (i == taken || direct[i].bandwidth > direct[own].bandwidth)))
            own = i;
    }
    if (own == TOPO_NONE)
        return;
    ret->own_path = direct[own].kind;
    ret->own_bandwidth = direct[own].bandwidth;
    (void)snprintf(ret->own, sizeof ret->own, "%s", g->nets[own].name);
}

void nccl_graph_predict(const struct nccl_graph *g, uint32_t gpu, struct nccl_prediction *ret) {
    *ret = (struct nccl_prediction){
        .path = NCCL_PATH_DIS, .own_path = NCCL_PATH_DIS, .nic = TOPO_NONE};
    if (gpu >= g->t->n_gpus || g->gpu_place[gpu] == TOPO_NONE || g->n_nets == 0)
        return;
    uint32_t place = g->gpu_place[gpu], first = net_of(g, place, 0);
    find_own(g, place, first, ret);
    if (first == TOPO_NONE)
        return;
    const struct nccl_route *path = route_at(g, g->gpus[place], g->nets[first].node);
    ret->path = path->kind;
    ret->bandwidth = path->bandwidth;
    ret->nic = g->nets[first].nic;
    for (uint32_t c = 0; c < NCCL_CHANNELS_MAX && ret->n_nets < NCCL_NETS_MAX; c++) {
        uint32_t net = net_of(g, place, c);
        if (c > 0 && net == first)
            break;
        (void)snprintf(ret->nets[ret->n_nets], NCCL_NET_NAME_MAX, "%s", g->nets[net].name);
        ret->n_nets++;
    }
}

static void warn_left_out(const struct nccl_graph *g, struct words *to) {
    const struct topology *t = g->t;
    const char *first = NULL, *last = NULL;
    uint32_t many = 0;
    for (uint32_t i = 0; i < g->n_left; i++) {
        const struct topo_nic *nic = &t->nics[g->left[i].nic];
        const struct topo_port *port = &nic->ports[g->left[i].port];
        unsigned number = port->number != 0 ? port->number : 1;
        if (g->left[i].many) { /* one sentence for all */
            many += last == NULL || strcmp(last, nic->name) != 0;
            last = nic->name;
            first = first == NULL ? last : first;
        } else if (port->state == TOPO_PORT_UNKNOWN) {
            words_printf(to, "%s is left out: the state of port %u is not known", nic->name,
                         number);
        } else {
            words_printf(to, "%s is left out: port %u is %s, not ACTIVE", nic->name, number,
                         topo_port_state_names[port->state]);
        }
    }
    if (many > 0)
        words_printf(to, "%s%s%s%s left out: NCCL takes %d RDMA ports at most", first,
                     many > 2   ? " to "
                     : many > 1 ? " and "
                                : "",
                     many > 1 ? last : "", many > 1 ? " are" : " is", NCCL_IB_DEVICES_MAX);
}

/* Links whose speed is not known: NCCL then assumes 16 lanes of generation 3. */
static void warn_links(const struct nccl_graph *g, struct words *to) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct nccl_node *n = &g->nodes[i];
        if ((n->kind != NCCL_NODE_GPU && n->kind != NCCL_NODE_NIC) || n->pci == TOPO_NONE)
            continue;
        struct pci_addr_text at = pci_addr_text(g->t->pci[n->pci].at);
        char speed[32];
        uint32_t width;
        nccl_pci_link(g->t, n->pci, speed, &width);
        bool no_speed = !nccl_pci_speed_known(speed);
        if (n->host_bridge) {
            words_printf(
                to,
                "NIC %s is on a root bus: NCCL takes the host bridge for it, and counts %.4g "
                "GB/s; a topology file (NCCL_TOPO_FILE) can have more",
                at.text, n->bandwidth);
            continue;
        }
        if (!no_speed && width != 0)
            continue;
        words_printf(to, "the PCI %s of %s %s is not known: NCCL counts %.4g GB/s for it",
                     no_speed && width == 0 ? "speed and width"
                     : no_speed             ? "speed"
                                            : "width",
                     n->kind == NCCL_NODE_GPU ? "GPU" : "NIC", at.text, n->bandwidth);
    }
}

/* Container interfaces and tunnels, by the kernel's type, or by the name if only that is known. */
static bool is_virtual(const struct nccl_graph *g, const struct nccl_net *n) {
    static const char *const beginnings[] = {"docker", "br-",     "virbr", "veth", "cali",
                                             "cni",    "flannel", "tunl",  "lxc",  "podman"};
    if (n->netif != TOPO_NONE) {
        enum topo_netif_kind k = g->t->netifs[n->netif].kind;
        if (k != TOPO_NETIF_PHYSICAL && k != TOPO_NETIF_VLAN && k != TOPO_NETIF_BOND)
            return true;
    }
    return text_begins_with_any(n->name, beginnings, ARRAY_SIZE(beginnings));
}

static void warn_nets(const struct nccl_graph *g, struct words *to) {
    const struct topology *t = g->t;
    if (g->n_nets > 0 && g->nets[0].netif != TOPO_NONE && t->n_nics > 0)
        words_printf(to, "no RDMA port can be used: NCCL goes over TCP");
    if (g->n_cpus > 1 && g->n_nets > 0 && t->arch[0] == '\0' && t->cpu_vendor[0] == '\0')
        words_printf(to,
                     "the processor is not known: the way between NUMA nodes counts as unlimited");
    for (uint32_t i = 0; i < g->n_nets; i++) {
        const struct nccl_net *n = &g->nets[i];
        if (n->mbps == 0)
            words_printf(to, "the speed of %s is not known: only its PCI link is counted", n->name);
        if (n->netif != TOPO_NONE && t->netifs[n->netif].speed_mbps <= 0)
            words_printf(to, "the speed of %s is not known: NCCL takes it for 10 Gb/s", n->name);
    }
}

static void warn_gpu(const struct nccl_graph *g, uint32_t gpu, const struct nccl_prediction *p,
                     struct words *to) {
    unsigned index = g->t->gpus[gpu].index;
    if (p->n_nets == 0) {
        if (g->n_nets > 0)
            words_printf(to, "GPU %u reaches no network device", index);
        return;
    }
    uint32_t place = g->gpu_place[gpu], taken = net_of(g, place, 0);
    enum nccl_path direct = g->direct[(size_t)place * g->n_nets + taken].kind;
    if (p->own_path < direct && p->own_path <= NCCL_PATH_PHB && strcmp(p->own, p->nets[0]) != 0)
        words_printf(
            to,
            "GPU %u's own NIC %s (%s, %.4g GB/s) loses to %s (%s, %.4g GB/s): NCCL looks at "
            "the bandwidth first",
            index, p->own, nccl_path_name(p->own_path), p->own_bandwidth, p->nets[0],
            nccl_path_name(p->path), p->bandwidth);
    if (is_virtual(g, &g->nets[taken]))
        words_printf(
            to, "GPU %u would use %s, which is not a physical interface: set NCCL_SOCKET_IFNAME",
            index, p->nets[0]);
}

static void warn_shared(const struct nccl_graph *g, struct words *to) {
    for (uint32_t net = 0; net < g->n_nets; net++) {
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        uint32_t n = 0;
        for (uint32_t i = 0; i < g->t->n_gpus; i++)
            if (g->gpu_place[i] != TOPO_NONE && net_of(g, g->gpu_place[i], 0) == net)
                strbuf_printf(&names, "%s%" PRIu32, n++ == 0 ? "" : ", ", g->t->gpus[i].index);
        if (n > 1)
            words_printf(to, "%" PRIu32 " GPUs share %s: %.600s", n, g->nets[net].name,
                         strbuf_text(&names));
    }
}

void nccl_graph_warnings(const struct nccl_graph *g, struct words *to) {
    warn_left_out(g, to);
    warn_nets(g, to);
    warn_links(g, to);
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    for (uint32_t i = 0; i < g->t->n_gpus; i++) {
        if (g->gpu_place[i] == TOPO_NONE)
            continue;
        nccl_graph_predict(g, i, p);
        warn_gpu(g, i, p, to);
    }
    warn_shared(g, to);
}
