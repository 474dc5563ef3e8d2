#include "topology/model/distance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Whether these are two downstream ports of one switch: both are on the bus directly below its
 * upstream port. Upstream ports of two switches are on buses of their own; a root port is not a
 * switch. */
static bool of_one_switch(const struct topology *t, uint32_t a, uint32_t b) {
    const struct topo_pci *x = &t->pci[a], *y = &t->pci[b];
    return x->parent == y->parent && x->parent < t->n_pci && t->pci[x->parent].parent < t->n_pci &&
           x->at.domain == y->at.domain && x->at.bus == y->at.bus;
}

enum topo_path distance_pci(const struct topology *t, uint32_t a, uint32_t b) {
    if (a >= t->n_pci || b >= t->n_pci)
        return TOPO_PATH_SYS;
    if (a == b)
        return TOPO_PATH_SELF;
    uint32_t x[TOPO_CHAIN_MAX], y[TOPO_CHAIN_MAX];
    uint32_t n = topology_chain(t, a, x), m = topology_chain(t, b, y);
    if (n > 0 && m > 0) {
        if (x[0] == y[0] || of_one_switch(t, x[0], y[0]))
            return TOPO_PATH_PIX;
        if (x[n - 1] == y[m - 1])
            return TOPO_PATH_PXB;
    }
    const struct topo_pci *p = &t->pci[a], *q = &t->pci[b];
    if (p->root.domain == q->root.domain && p->root.bus == q->root.bus)
        return TOPO_PATH_PHB;
    return p->numa >= 0 && p->numa == q->numa ? TOPO_PATH_NODE : TOPO_PATH_SYS;
}

uint32_t distance_endpoints(const struct topology *t) { return t->n_gpus + t->n_nics; }

static uint32_t pci_of(const struct topology *t, uint32_t i) {
    return i < t->n_gpus ? t->gpus[i].pci : t->nics[i - t->n_gpus].pci;
}

int32_t distance_numa(const struct topology *t, uint32_t i) {
    return i < t->n_gpus ? t->gpus[i].numa : t->nics[i - t->n_gpus].numa;
}

/* NVLinks between two GPUs: the direct ones, else as many as both have to the switches. */
static uint32_t nvlinks_between(const struct topology *t, uint32_t a, uint32_t b) {
    uint32_t direct = 0, of_a = 0, of_b = 0;
    for (uint32_t i = 0; i < t->n_nvlinks; i++) {
        const struct topo_nvlink *l = &t->nvlinks[i];
        if (l->c2c)
            continue;
        if (l->end == TOPO_NVLINK_GPU && l->gpu == a && l->peer == b)
            direct += l->count;
        else if (l->end == TOPO_NVLINK_SWITCH && l->gpu == a)
            of_a += l->count;
        else if (l->end == TOPO_NVLINK_SWITCH && l->gpu == b)
            of_b += l->count;
    }
    return direct > 0 ? direct : MIN2(of_a, of_b);
}

struct topo_link distance_between(const struct topology *t, uint32_t a, uint32_t b) {
    struct topo_link link = {TOPO_PATH_SELF, 0};
    if (a == b)
        return link;
    /* The link can be listed at either end. */
    if (a < t->n_gpus && b < t->n_gpus) {
        link.nvlinks = nvlinks_between(t, a, b);
        if (link.nvlinks == 0)
            link.nvlinks = nvlinks_between(t, b, a);
    }
    int32_t numa = distance_numa(t, a);
    link.path = link.nvlinks > 0 ? TOPO_PATH_NV : distance_pci(t, pci_of(t, a), pci_of(t, b));
    /* These are two devices of one PCI function (an HCA that shows its ports as devices). */
    if (link.path == TOPO_PATH_SELF)
        link.path = TOPO_PATH_PIX;
    /* The node of the device can be known even if that of its PCI function is not. */
    if (link.path == TOPO_PATH_SYS && numa >= 0 && numa == distance_numa(t, b))
        link.path = TOPO_PATH_NODE;
    return link;
}

static const char *const path_names[] = {
    [TOPO_PATH_SELF] = "X",  [TOPO_PATH_NV] = "NV",   [TOPO_PATH_PIX] = "PIX",
    [TOPO_PATH_PXB] = "PXB", [TOPO_PATH_PHB] = "PHB", [TOPO_PATH_NODE] = "NODE",
    [TOPO_PATH_SYS] = "SYS",
};

void topo_link_text(struct topo_link link, char out[16]) {
    if (link.path == TOPO_PATH_NV)
        (void)snprintf(out, 16, "NV%" PRIu32, link.nvlinks);
    else
        (void)snprintf(out, 16, "%s", path_names[link.path]);
}
