#include "topology/model/distance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A bus number has eight bits, so no chain of bridges is longer. The limit also ends a cycle of
 * parents. */
#define BRIDGES_MAX 256

/* The bridges above a device, innermost first. */
struct chain {
    uint32_t n;
    uint32_t bridges[BRIDGES_MAX];
};

static void chain_of(const struct topology *t, uint32_t pci, struct chain *ret) {
    ret->n = 0;
    for (uint32_t i = t->pci[pci].parent; i < t->n_pci && ret->n < BRIDGES_MAX;
         i = t->pci[i].parent)
        ret->bridges[ret->n++] = i;
}

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
    struct chain x, y;
    chain_of(t, a, &x);
    chain_of(t, b, &y);
    if (x.n > 0 && y.n > 0) {
        if (x.bridges[0] == y.bridges[0] || of_one_switch(t, x.bridges[0], y.bridges[0]))
            return TOPO_PATH_PIX;
        if (x.bridges[x.n - 1] == y.bridges[y.n - 1])
            return TOPO_PATH_PXB;
    }
    const struct topo_pci *p = &t->pci[a], *q = &t->pci[b];
    if (p->root.domain == q->root.domain && p->root.bus == q->root.bus)
        return TOPO_PATH_PHB;
    return p->numa >= 0 && p->numa == q->numa ? TOPO_PATH_NODE : TOPO_PATH_SYS;
}

uint32_t distance_endpoints(const struct topology *t) { return t->n_gpus + t->n_nics; }

struct topo_endpoint distance_endpoint(const struct topology *t, uint32_t i) {
    assert(i < distance_endpoints(t));
    bool is_gpu = i < t->n_gpus;
    return (struct topo_endpoint){is_gpu, is_gpu ? i : i - t->n_gpus};
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

void distance_between(const struct topology *t, struct topo_endpoint a, struct topo_endpoint b,
                      struct topo_link *ret) {
    *ret = (struct topo_link){TOPO_PATH_SELF, 0};
    if (a.is_gpu == b.is_gpu && a.index == b.index)
        return;
    /* The link can be listed at either end. */
    if (a.is_gpu && b.is_gpu) {
        ret->nvlinks = nvlinks_between(t, a.index, b.index);
        if (ret->nvlinks == 0)
            ret->nvlinks = nvlinks_between(t, b.index, a.index);
        if (ret->nvlinks > 0) {
            ret->path = TOPO_PATH_NV;
            return;
        }
    }
    uint32_t p = a.is_gpu ? t->gpus[a.index].pci : t->nics[a.index].pci;
    uint32_t q = b.is_gpu ? t->gpus[b.index].pci : t->nics[b.index].pci;
    int32_t m = a.is_gpu ? t->gpus[a.index].numa : t->nics[a.index].numa;
    int32_t n = b.is_gpu ? t->gpus[b.index].numa : t->nics[b.index].numa;
    ret->path = distance_pci(t, p, q);
    /* These are two devices of one PCI function (an HCA that shows its ports as devices). */
    if (ret->path == TOPO_PATH_SELF)
        ret->path = TOPO_PATH_PIX;
    /* The node of the device can be known even if that of its PCI function is not. */
    if (ret->path == TOPO_PATH_SYS && m >= 0 && m == n)
        ret->path = TOPO_PATH_NODE;
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
