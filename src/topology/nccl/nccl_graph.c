#include "topology/nccl/nccl_graph.h"

#include <inttypes.h>
#include <stdarg.h>
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
    for (uint32_t i = 0; g->choices != NULL && i < g->n_gpus; i++)
        free(g->choices[i].nets);
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

static void graph_freep(struct nccl_graph **g) { nccl_graph_free(*g); }

static int new_tree(const struct topology *t, const struct nccl_options *options,
                    struct nccl_graph **ret, struct err *err) {
    _cleanup_(graph_freep) struct nccl_graph *g = xcalloc(1, sizeof *g);
    g->t = t;
    if (options != NULL)
        g->options = *options;
    int r = nccl_graph_choose_nets(g, err);
    r = r < 0 ? r : nccl_graph_build_tree(g, err);
    if (r == 0)
        *ret = TAKE_PTR(g);
    return r;
}

int nccl_graph_new_tree(const struct topology *t, struct nccl_graph **ret, struct err *err) {
    return new_tree(t, NULL, ret, err);
}

int nccl_graph_new(const struct topology *t, const struct nccl_options *options,
                   struct nccl_graph **ret, struct err *err) {
    _cleanup_(graph_freep) struct nccl_graph *g = NULL;
    int r = new_tree(t, options, &g, err);
    if (r < 0)
        return r;
    nccl_graph_link(g);
    r = nccl_graph_find_paths(g, err);
    if (r == 0)
        *ret = TAKE_PTR(g);
    return r;
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
        .path = NCCL_PATH_DIS, .own_path = NCCL_PATH_DIS, .nic = TOPO_NONE, .netif = TOPO_NONE};
    if (gpu >= g->t->n_gpus || g->gpu_place[gpu] == TOPO_NONE || g->n_nets == 0)
        return;
    uint32_t place = g->gpu_place[gpu], first = nccl_graph_net_of(g, place, 0);
    find_own(g, place, first, ret);
    if (first == TOPO_NONE)
        return;
    const struct nccl_route *path = nccl_route_at(g, g->gpus[place], g->nets[first].node);
    ret->path = path->kind;
    ret->bandwidth = path->bandwidth;
    ret->nic = g->nets[first].nic;
    ret->netif = g->nets[first].netif;
    for (uint32_t c = 0; c < NCCL_CHANNELS_MAX && ret->n_nets < NCCL_NETS_MAX; c++) {
        uint32_t net = nccl_graph_net_of(g, place, c);
        if (c > 0 && net == first)
            break;
        (void)snprintf(ret->nets[ret->n_nets], NCCL_NET_NAME_MAX, "%s", g->nets[net].name);
        ret->n_nets++;
    }
}

void nccl_graph_between(const struct nccl_graph *g, uint32_t a, uint32_t b, enum nccl_path *ret,
                        double *ret_gbs) {
    *ret = NCCL_PATH_DIS;
    *ret_gbs = 0;
    if (a >= g->t->n_gpus || b >= g->t->n_gpus || g->gpu_place[a] == TOPO_NONE ||
        g->gpu_place[b] == TOPO_NONE)
        return;
    const struct nccl_route *path =
        nccl_route_at(g, g->gpus[g->gpu_place[a]], g->gpus[g->gpu_place[b]]);
    *ret = path->kind;
    *ret_gbs = path->bandwidth;
}

uint32_t nccl_graph_nets(const struct nccl_graph *g) { return g->n_nets; }
const char *nccl_graph_net_name(const struct nccl_graph *g, uint32_t i) {
    return i < g->n_nets ? g->nets[i].name : "";
}

/* Warnings about NCCL's choice. */

struct warning_sink {
    void (*fn)(void *arg, const char *text);
    void *arg;
};

static void _printf_(2, 3) warn(const struct warning_sink *s, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    s->fn(s->arg, text);
}

static void warn_left_out(const struct nccl_graph *g, const struct warning_sink *s) {
    const struct topology *t = g->t;
    const char *first = NULL, *last = NULL;
    uint32_t many = 0;
    for (uint32_t i = 0; i < g->n_left; i++) {
        const struct topo_nic *nic = &t->nics[g->left[i].nic];
        const struct topo_port *port = &nic->ports[g->left[i].port];
        unsigned number = port->number != 0 ? port->number : 1;
        switch (g->left[i].why) {
        case NCCL_LEFT_STATE:
            if (port->state == TOPO_PORT_UNKNOWN)
                warn(s, "%s is left out: the state of port %u is not known", nic->name, number);
            else
                warn(s, "%s is left out: port %u is %s, not ACTIVE", nic->name, number,
                     topo_port_state_names[port->state]);
            break;
        case NCCL_LEFT_FILTER:
            warn(s, "%s is left out by NCCL_IB_HCA=%s", nic->name, g->options.ib_hca);
            break;
        case NCCL_LEFT_MANY: /* one sentence for all */
            many += last == NULL || strcmp(last, nic->name) != 0;
            last = nic->name;
            first = first == NULL ? last : first;
            break;
        }
    }
    if (many > 0)
        warn(s, "%s%s%s%s left out: NCCL takes %d RDMA ports at most", first,
             many > 2   ? " to "
             : many > 1 ? " and "
                        : "",
             many > 1 ? last : "", many > 1 ? " are" : " is", NCCL_IB_DEVICES_MAX);
}

/* Links whose speed is not known: NCCL then assumes 16 lanes of generation 3. */
static void warn_links(const struct nccl_graph *g, const struct warning_sink *s) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct nccl_node *n = &g->nodes[i];
        if ((n->kind != NCCL_NODE_GPU && n->kind != NCCL_NODE_NIC) || n->pci == TOPO_NONE)
            continue;
        char speed[32], at[TOPO_BUSID_MAX];
        uint32_t width;
        nccl_pci_link(g->t, n->pci, speed, &width);
        bool no_speed = !nccl_pci_speed_known(speed);
        if (n->host_bridge) {
            pci_addr_text(g->t->pci[n->pci].at, at);
            warn(s,
                 "NIC %s is on a root bus: NCCL takes the host bridge for it, and counts %.4g "
                 "GB/s; a topology file (NCCL_TOPO_FILE) can have more",
                 at, n->bandwidth);
            continue;
        }
        if (!no_speed && width != 0)
            continue;
        pci_addr_text(g->t->pci[n->pci].at, at);
        warn(s, "the PCI %s of %s %s is not known: NCCL counts %.4g GB/s for it",
             no_speed && width == 0 ? "speed and width"
             : no_speed             ? "speed"
                                    : "width",
             n->kind == NCCL_NODE_GPU ? "GPU" : "NIC", at, n->bandwidth);
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

static void warn_nets(const struct nccl_graph *g, const struct warning_sink *s) {
    const struct topology *t = g->t;
    if (g->sockets && g->n_nets > 0 && t->n_nics > 0)
        warn(s, "no RDMA port can be used: NCCL goes over TCP");
    if (g->n_cpus > 1 && g->n_nets > 0 && t->arch[0] == '\0' && t->cpu_vendor[0] == '\0')
        warn(s, "the processor is not known: the way between NUMA nodes counts as unlimited");
    for (uint32_t i = 0; i < g->n_nets; i++) {
        const struct nccl_net *n = &g->nets[i];
        if (n->mbps == 0)
            warn(s, "the speed of %s is not known: only its PCI link is counted", n->name);
        if (n->netif != TOPO_NONE && t->netifs[n->netif].speed_mbps <= 0)
            warn(s, "the speed of %s is not known: NCCL takes it for 10 Gb/s", n->name);
    }
}

static void warn_gpu(const struct nccl_graph *g, uint32_t gpu, const struct nccl_prediction *p,
                     const struct warning_sink *s) {
    unsigned index = g->t->gpus[gpu].index;
    if (p->n_nets == 0) {
        if (g->n_nets > 0)
            warn(s, "GPU %u reaches no network device", index);
        return;
    }
    uint32_t place = g->gpu_place[gpu], taken = nccl_graph_net_of(g, place, 0);
    enum nccl_path direct = g->direct[(size_t)place * g->n_nets + taken].kind;
    if (p->own_path < direct && p->own_path <= NCCL_PATH_PHB && strcmp(p->own, p->nets[0]) != 0)
        warn(s,
             "GPU %u's own NIC %s (%s, %.4g GB/s) loses to %s (%s, %.4g GB/s): NCCL looks at "
             "the bandwidth first",
             index, p->own, nccl_path_name(p->own_path), p->own_bandwidth, p->nets[0],
             nccl_path_name(p->path), p->bandwidth);
    if (is_virtual(g, &g->nets[taken]))
        warn(s, "GPU %u would use %s, which is not a physical interface: set NCCL_SOCKET_IFNAME",
             index, p->nets[0]);
}

/* Adds one sentence for each NET that is the first choice of several GPUs. */
static void warn_shared(const struct nccl_graph *g, const struct warning_sink *s) {
    for (uint32_t net = 0; net < g->n_nets; net++) {
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        uint32_t n = 0;
        for (uint32_t i = 0; i < g->t->n_gpus; i++)
            if (g->gpu_place[i] != TOPO_NONE && nccl_graph_net_of(g, g->gpu_place[i], 0) == net)
                strbuf_printf(&names, "%s%" PRIu32, n++ == 0 ? "" : ", ", g->t->gpus[i].index);
        if (n > 1)
            warn(s, "%" PRIu32 " GPUs share %s: %.600s", n, g->nets[net].name, strbuf_text(&names));
    }
}

void nccl_graph_warnings(const struct nccl_graph *g, void (*fn)(void *arg, const char *text),
                         void *arg) {
    struct warning_sink s = {fn, arg};
    warn_left_out(g, &s);
    warn_nets(g, &s);
    warn_links(g, &s);
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    for (uint32_t i = 0; i < g->t->n_gpus; i++) {
        if (g->gpu_place[i] == TOPO_NONE)
            continue;
        nccl_graph_predict(g, i, p);
        warn_gpu(g, i, p, &s);
    }
    warn_shared(g, &s);
}
