#include "topology/render/render_plan.h"

#include <stdio.h>
#include <string.h>

#include "topology/model/distance.h"

#define SWITCHES_MAX 8 /* nested; deeper devices are shown in the last one */
#define DEPTH_MAX 256  /* of bridges */

static uint32_t add(struct render_plan *p, uint32_t parent, enum render_kind kind, uint32_t index,
                    struct pci_addr root) {
    p->shapes = xgrow(p->shapes, p->n, sizeof *p->shapes);
    uint32_t i = p->n++;
    p->shapes[i] = (struct render_shape){.kind = kind,
                                         .index = index,
                                         .root = root,
                                         .count = 1,
                                         .parent = parent,
                                         .first = TOPO_NONE,
                                         .last = TOPO_NONE,
                                         .next = TOPO_NONE};
    if (parent == TOPO_NONE)
        return i;
    struct render_shape *above = &p->shapes[parent];
    if (above->last == TOPO_NONE)
        above->first = i;
    else
        p->shapes[above->last].next = i;
    above->last = i;
    above->children++;
    return i;
}

static uint32_t find_or_add(struct render_plan *p, uint32_t parent, enum render_kind kind,
                            uint32_t index, struct pci_addr root) {
    for (uint32_t i = p->shapes[parent].first; i != TOPO_NONE; i = p->shapes[i].next) {
        const struct render_shape *s = &p->shapes[i];
        if (s->kind == kind && s->index == index && pci_addr_compare(s->root, root) == 0)
            return i;
    }
    return add(p, parent, kind, index, root);
}

static const struct pci_addr nowhere;

static void add_numa(struct render_plan *p) {
    for (uint32_t i = 0; i < p->t->n_numa; i++) {
        int32_t package = p->t->numa[i].package;
        uint32_t parent =
            package < 0 ? 0 : find_or_add(p, 0, RENDER_PACKAGE, (uint32_t)package, nowhere);
        (void)add(p, parent, RENDER_NUMA, i, nowhere);
    }
}

static uint32_t numa_shape(struct render_plan *p, int32_t numa) {
    for (uint32_t i = 0; i < p->n; i++) {
        const struct render_shape *s = &p->shapes[i];
        if (s->kind == RENDER_NUMA && numa >= 0 && s->index != TOPO_NONE &&
            p->t->numa[s->index].index == numa)
            return i;
    }
    /* If it is not known, the place is the whole machine: its only node, or none. */
    for (uint32_t i = 0; i < p->n && p->t->n_numa == 1; i++)
        if (p->shapes[i].kind == RENDER_NUMA)
            return i;
    return p->t->n_numa == 0 ? 0 : find_or_add(p, 0, RENDER_NUMA, TOPO_NONE, nowhere);
}

/* The bridges above a device, outermost first. */
static uint32_t bridges_above(const struct topology *t, uint32_t pci, uint32_t chain[DEPTH_MAX]) {
    uint32_t n = 0;
    for (uint32_t i = t->pci[pci].parent; i < t->n_pci && n < DEPTH_MAX; i = t->pci[i].parent)
        chain[n++] = i;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t x = chain[i];
        chain[i] = chain[n - 1 - i];
        chain[n - 1 - i] = x;
    }
    return n;
}

/* A complete tree is root port, upstream port, downstream port, upstream port, … Upstream ports
 * represent the switches. An NCCL file has only these. */
static bool is_switch(const struct topology *t, const uint32_t *chain, uint32_t i) {
    const struct topo_pci *top = &t->pci[chain[0]];
    bool whole = top->at.domain == top->root.domain && top->at.bus == top->root.bus;
    if (t->source == TOPO_NCCL_XML)
        whole = false;
    return !whole || i % 2 == 1;
}

static uint32_t place_below(struct render_plan *p, uint32_t pci, int32_t numa) {
    const struct topology *t = p->t;
    uint32_t parent = numa_shape(p, numa);
    if (pci >= t->n_pci)
        return parent;
    uint32_t chain[DEPTH_MAX], n = bridges_above(t, pci, chain), depth = 0;
    struct pci_addr root = t->pci[pci].root;
    if (t->source != TOPO_NCCL_XML)
        parent = find_or_add(p, parent, RENDER_HOST, 0, root);
    for (uint32_t i = 0; i < n && depth < SWITCHES_MAX; i++)
        if (is_switch(t, chain, i)) {
            parent = find_or_add(p, parent, RENDER_SWITCH, chain[i], nowhere);
            depth++;
        }
    return parent;
}

/* There can be dozens of virtual functions. They are shown as one, except those that are used. */
static bool nic_goes_with(const struct render_plan *p, uint32_t before, uint32_t i) {
    const struct topo_nic *a = &p->t->nics[before], *b = &p->t->nics[i];
    return a->virtual_function && b->virtual_function && !p->nic_chosen[before] &&
           !p->nic_chosen[i] && topo_nic_state(a) == topo_nic_state(b);
}

static bool netif_goes_with(const struct render_plan *p, uint32_t before, uint32_t i) {
    const struct topo_netif *a = &p->t->netifs[before], *b = &p->t->netifs[i];
    return !p->netif_chosen[before] && !p->netif_chosen[i] && !a->running && !b->running;
}

static void add_device(struct render_plan *p, enum render_kind kind, uint32_t i, uint32_t pci,
                       int32_t numa) {
    uint32_t parent = place_below(p, pci, numa), last = p->shapes[parent].last;
    struct render_shape *s = last == TOPO_NONE ? NULL : &p->shapes[last];
    if (s != NULL && s->kind == kind && s->index + s->count == i &&
        ((kind == RENDER_NIC && nic_goes_with(p, i - 1, i)) ||
         (kind == RENDER_NETIF && netif_goes_with(p, i - 1, i))))
        s->count++;
    else
        (void)add(p, parent, kind, i, nowhere);
}

/* Interfaces of cards that are not RDMA devices, and those that NCCL would use. */
static bool shows_netif(const struct render_plan *p, uint32_t i) {
    const struct topo_netif *n = &p->t->netifs[i];
    return p->netif_chosen[i] ||
           (n->kind == TOPO_NETIF_PHYSICAL && n->pci < p->t->n_pci && n->nic[0] == '\0');
}

/* Adds devices in the order of PCI addresses, so devices below one switch keep their order;
 * TOPO_NONE (no PCI device) comes last. */
static void add_devices_of(struct render_plan *p, uint32_t pci) {
    const struct topology *t = p->t;
    bool last = pci == t->n_pci;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].pci == pci || (last && t->gpus[i].pci > pci))
            add_device(p, RENDER_GPU, i, t->gpus[i].pci, t->gpus[i].numa);
    for (uint32_t i = 0; i < t->n_nics; i++)
        if (t->nics[i].pci == pci || (last && t->nics[i].pci > pci))
            add_device(p, RENDER_NIC, i, t->nics[i].pci, t->nics[i].numa);
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if ((t->netifs[i].pci == pci || (last && t->netifs[i].pci > pci)) && shows_netif(p, i))
            add_device(p, RENDER_NETIF, i, t->netifs[i].pci, t->netifs[i].numa);
}

/* A host bridge with one child is not informative: the child takes its place. */
static void drop_lone_hosts(struct render_plan *p) {
    for (uint32_t i = 0; i < p->n; i++) {
        struct render_shape *above = &p->shapes[i];
        uint32_t *link = &above->first;
        for (; *link != TOPO_NONE; link = &p->shapes[*link].next) {
            struct render_shape *host = &p->shapes[*link];
            if (host->kind != RENDER_HOST || host->children != 1)
                continue;
            struct render_shape *child = &p->shapes[host->first];
            child->parent = i;
            child->next = host->next;
            if (above->last == *link)
                above->last = host->first;
            *link = host->first;
        }
    }
}

static void choose_part(struct render_plan *p, const char *name) {
    uint32_t nic = topology_find_nic(p->t, name), netif = topology_find_netif(p->t, name);
    if (nic != TOPO_NONE)
        p->nic_chosen[nic] = true;
    else if (netif != TOPO_NONE)
        p->netif_chosen[netif] = true;
}

/* The next name of "mlx5_0+mlx5_1". */
static bool next_part(const char **net, char out[TOPO_NAME_MAX]) {
    size_t n = strcspn(*net, "+");
    if (n == 0)
        return false;
    (void)snprintf(out, TOPO_NAME_MAX, "%.*s", (int)n, *net);
    *net += n + ((*net)[n] == '+');
    return true;
}

static void predict(struct render_plan *p, const struct nccl_graph *g) {
    const struct topology *t = p->t;
    p->nic_chosen = xcalloc((size_t)t->n_nics + 1, sizeof *p->nic_chosen);
    p->netif_chosen = xcalloc((size_t)t->n_netifs + 1, sizeof *p->netif_chosen);
    if (g == NULL)
        return;
    char part[TOPO_NAME_MAX];
    p->predictions = xcalloc((size_t)t->n_gpus + 1, sizeof *p->predictions);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        struct nccl_prediction *x = &p->predictions[i];
        nccl_graph_predict(g, i, x);
        p->any_net = p->any_net || x->n_nets > 0;
        for (uint32_t n = 0; n < x->n_nets; n++)
            for (const char *net = x->nets[n]; next_part(&net, part);)
                choose_part(p, part);
    }
}

static uint32_t find_near(const struct topology *t, const char *name, int32_t numa) {
    for (uint32_t i = 0; i < t->n_nics; i++)
        if (t->nics[i].numa == numa && strcmp(t->nics[i].name, name) == 0)
            return i;
    return topology_find_nic(t, name);
}

void render_plan_each_net(const struct render_plan *p, uint32_t gpu, const char *net,
                          void (*on_shape)(void *arg, uint32_t shape), void *arg) {
    char part[TOPO_NAME_MAX];
    while (next_part(&net, part)) {
        uint32_t nic = find_near(p->t, part, p->t->gpus[gpu].numa);
        uint32_t netif = topology_find_netif(p->t, part);
        for (uint32_t i = 0; i < p->n; i++) {
            const struct render_shape *s = &p->shapes[i];
            uint32_t wanted = s->kind == RENDER_NIC                         ? nic
                              : s->kind == RENDER_NETIF && nic == TOPO_NONE ? netif
                                                                            : TOPO_NONE;
            if (wanted != TOPO_NONE && wanted >= s->index && wanted < s->index + s->count) {
                on_shape(arg, i);
                break;
            }
        }
    }
}

uint32_t render_nvlinks(const struct topology *t, uint32_t a, uint32_t b) {
    struct topo_link link;
    distance_between(t, (struct topo_endpoint){true, a}, (struct topo_endpoint){true, b}, &link);
    return link.path == TOPO_PATH_NV ? link.nvlinks : 0;
}

static void sum_nvlinks(const struct topology *t, struct render_nvlinks *s) {
    *s = (struct render_nvlinks){.least = UINT32_MAX};
    for (uint32_t a = 0; a < t->n_gpus; a++)
        for (uint32_t b = a + 1; b < t->n_gpus; b++) {
            uint32_t n = render_nvlinks(t, a, b);
            s->pairs++;
            s->joined += n > 0;
            s->least = n > 0 ? MIN2(s->least, n) : s->least;
            s->most = MAX2(s->most, n);
        }
}

void render_plan_init(const struct topology *t, const struct nccl_graph *g,
                      struct render_plan *ret) {
    *ret = (struct render_plan){.t = t};
    predict(ret, g);
    sum_nvlinks(t, &ret->nvlinks);
    (void)add(ret, TOPO_NONE, RENDER_MACHINE, 0, nowhere);
    add_numa(ret);
    for (uint32_t i = 0; i <= t->n_pci; i++)
        add_devices_of(ret, i);
    drop_lone_hosts(ret);
}

void render_plan_fini(struct render_plan *p) {
    free(p->shapes);
    free(p->predictions);
    free(p->nic_chosen);
    free(p->netif_chosen);
    *p = (struct render_plan){0};
}

uint32_t render_plan_next(const struct render_plan *p, uint32_t i) {
    if (p->shapes[i].first != TOPO_NONE)
        return p->shapes[i].first;
    while (i != TOPO_NONE && p->shapes[i].next == TOPO_NONE)
        i = p->shapes[i].parent;
    return i == TOPO_NONE ? TOPO_NONE : p->shapes[i].next;
}
