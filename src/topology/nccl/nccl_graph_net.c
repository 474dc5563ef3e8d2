/* Which NETs NCCL would use: RDMA ports, else interfaces of its socket transport.
 * src/transport/net_ib, net_socket.cc, src/misc/socket.cc, utils.cc (2.30.7). */
#include "topology/nccl/nccl_graph_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"

/* ---- lists of names: NCCL_IB_HCA, NCCL_SOCKET_IFNAME ---- */

struct name_list {
    const char *items; /* the text after the marks "^" and "=" */
    bool exclude, exact;
};

static struct name_list name_list_of(const char *text) {
    struct name_list l = {.items = text};
    if (*l.items == '^') {
        l.exclude = true;
        l.items++;
    }
    if (*l.items == '=') {
        l.exact = true;
        l.items++;
    }
    return l;
}

/* One item "name[:port[:rail[:plane]]]". port TOPO_NONE: any port. */
static bool item_matches(const char *item, size_t len, const char *name, uint32_t port,
                         bool exact) {
    const char *colon = memchr(item, ':', len);
    size_t n = colon != NULL ? (size_t)(colon - item) : len;
    if (strncmp(name, item, n) != 0 || (exact && strlen(name) != n))
        return false;
    uint32_t wanted = 0;
    bool any = colon == NULL || port == TOPO_NONE;
    if (!any) {
        const char *p = colon + 1, *end = item + len;
        any = p == end || *p < '0' || *p > '9'; /* such as "-1": every port */
        for (; p < end && *p >= '0' && *p <= '9' && wanted < UINT32_MAX / 16; p++)
            wanted = wanted * 10 + (uint32_t)(*p - '0');
    }
    return any || wanted == port;
}

/* An empty list matches everything (matchIfList). */
static bool list_takes(const struct name_list *l, const char *name, uint32_t port) {
    bool found = false, empty = true;
    for (const char *p = l->items; *p != '\0';) {
        size_t len = strcspn(p, ",");
        if (len > 0) {
            empty = false;
            found = found || item_matches(p, len, name, port, l->exact);
        }
        p += len + (p[len] == ',' ? 1 : 0);
    }
    return (empty || found) != l->exclude;
}

/* ---- adding ---- */

static struct nccl_net *add_net(struct nccl_graph *g, const char *name, uint64_t mbps) {
    if ((g->n_nets & (g->n_nets - 1)) == 0)
        g->nets = xrealloc(g->nets, (g->n_nets == 0 ? 1 : (size_t)g->n_nets * 2) * sizeof *g->nets);
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

static void leave_out(struct nccl_graph *g, uint32_t nic, uint32_t port, enum nccl_left_why why) {
    if ((g->n_left & (g->n_left - 1)) == 0)
        g->left = xrealloc(g->left, (g->n_left == 0 ? 1 : (size_t)g->n_left * 2) * sizeof *g->left);
    g->left[g->n_left++] = (struct nccl_left){nic, port, why};
}

/* ---- from an NCCL file ---- */

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
    n->every_cpu = n->pci == TOPO_NONE;
}

static void choose_rdma(struct nccl_graph *g) {
    const struct topology *t = g->t;
    struct name_list hca = name_list_of(g->options.ib_hca != NULL ? g->options.ib_hca : "");
    uint32_t n_ib = 0;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        bool ib = nic->kind == TOPO_NIC_RDMA;
        for (uint32_t p = 0; p < MAX2(nic->n_ports, 1) && p < TOPO_PORTS_MAX; p++) {
            const struct topo_port *port = &nic->ports[p]; /* all zero if it is not known */
            uint32_t number = port->number != 0 ? port->number : 1;
            if (!port_counts(t, nic, port->state)) {
                leave_out(g, i, p, NCCL_LEFT_STATE);
            } else if (ib && !list_takes(&hca, nic->name, number)) {
                leave_out(g, i, p, NCCL_LEFT_FILTER);
            } else if (ib && n_ib == NCCL_IB_DEVICES_MAX) {
                leave_out(g, i, p, NCCL_LEFT_MANY);
            } else {
                n_ib += ib ? 1 : 0;
                take_port(g, i, port->rate_mbps);
            }
        }
    }
}

/* ---- sockets ---- */

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

static void take_netifs(struct nccl_graph *g, const char *text) {
    const struct topology *t = g->t;
    struct name_list list = name_list_of(text);
    bool known = false;
    for (uint32_t i = 0; i < t->n_netifs && !known; i++)
        known = t->netifs[i].n_addrs > 0;
    for (uint32_t i = 0; i < t->n_netifs && g->n_nets < NCCL_SOCKETS_MAX; i++) {
        const struct topo_netif *f = &t->netifs[i];
        if (!netif_counts(f, known) || !list_takes(&list, f->name, TOPO_NONE))
            continue;
        struct nccl_net *n =
            add_net(g, f->name, f->speed_mbps > 0 ? (uint64_t)f->speed_mbps : 10000);
        n->netif = i;
        n->pci = f->pci < t->n_pci ? f->pci : TOPO_NONE;
        n->every_cpu = n->pci == TOPO_NONE;
    }
}

/* ncclFindInterfaces: uses the first rule that finds an interface. The subnet of NCCL_COMM_ID,
 * which NCCL tries after ib*, is not known here. */
static void choose_sockets(struct nccl_graph *g) {
    static const char *const defaults[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
    g->sockets = true;
    const char *own = g->options.socket_ifname;
    if (own != NULL && strlen(own) > 1)
        take_netifs(g, own);
    else
        for (size_t i = 0; g->n_nets == 0 && i < ARRAY_SIZE(defaults); i++)
            take_netifs(g, defaults[i]);
}

int nccl_graph_choose_nets(struct nccl_graph *g, struct err *err) {
    if (g->t->source == TOPO_NCCL_XML)
        choose_from_file(g);
    else
        choose_rdma(g);
    if (g->t->source != TOPO_NCCL_XML && g->n_nets == 0)
        choose_sockets(g);
    return g->n_nets <= NCCL_NODES_MAX
               ? 0
               : err_set(err, -E2BIG, "more than %d network devices, which is NCCL's limit",
                         NCCL_NODES_MAX);
}
