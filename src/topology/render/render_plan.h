/* What the tree and the picture show, and in which order: the machine as a tree of shapes. Of the
 * bridges only switches are shapes; shapes without information (a host bridge with one thing below
 * it) are left out. Pure; private to render. */
#pragma once

#include "topology/render/render.h"

enum render_kind {
    RENDER_MACHINE = 1,
    RENDER_PACKAGE,
    RENDER_NUMA,
    RENDER_HOST,
    RENDER_SWITCH,
    /* without anything below them: */
    RENDER_GPU,
    RENDER_NIC,
    RENDER_NETIF,
};

struct render_shape {
    enum render_kind kind;
    uint32_t index;       /* NUMA: in numa[], TOPO_NONE: devices whose node nobody knows; switch:
                           * in pci[]; GPU, NIC, interface: in its array; package: its number */
    struct pci_addr root; /* host bridge: its bus */
    uint32_t count;       /* NICs, interfaces: so many alike that follow each other in the array */
    uint32_t parent;      /* TOPO_NONE: the machine */
    uint32_t first, last, next; /* children and siblings, in order; TOPO_NONE */
    uint32_t children;
};

/* How the pairs of GPUs are joined by NVLink: of so many pairs so many, by `least` to `most` links
 * each. */
struct render_nvlinks {
    uint32_t pairs, joined, least, most;
};

struct render_plan {
    const struct topology *t;
    struct render_nvlinks nvlinks;
    struct render_shape *shapes; /* [0] is the machine; parents stand before their children */
    uint32_t n;
    struct nccl_prediction *predictions; /* [n_gpus]; NULL: no graph was given */
    bool any_net;                        /* some GPU has one */
    bool *nic_chosen, *netif_chosen;     /* some GPU's traffic goes through it */
};

void render_plan_init(const struct topology *t, const struct nccl_graph *g,
                      struct render_plan *ret);
void render_plan_fini(struct render_plan *p);
/* The one after i, parents before their children; TOPO_NONE at the end. depth counts with it. */
uint32_t render_plan_next(const struct render_plan *p, uint32_t i, uint32_t *depth);
/* NIC (or interface) by a name of NCCL's list, "mlx5_0+mlx5_1" part by part: calls it with the
 * shape of each. What a file repeats under several CPUs is meant where the GPU is. */
void render_plan_each_net(const struct render_plan *p, uint32_t gpu, const char *net,
                          void (*on_shape)(void *arg, uint32_t shape), void *arg);

/* Links between two GPUs. */
uint32_t render_nvlinks(const struct topology *t, uint32_t a, uint32_t b);
/* All GPUs' NVLinks are alike. */
static inline bool render_nvlinks_alike(const struct render_nvlinks *n) {
    return n->joined == 0 || (n->joined == n->pairs && n->least == n->most);
}

/* ---- words for people; what a file said is made harmless for a terminal ---- */

#define RENDER_TEXT_MAX 256
/* Bytes that are no UTF-8, and control characters, become "?"; blanks too where asked. */
void render_clean(char *out, size_t size, const char *in, bool blanks);
void render_gpu_label(const struct topology *t, uint32_t gpu, char out[RENDER_TEXT_MAX]);
/* "NVIDIA H200", or vendor and PCI device id. */
void render_gpu_name(const struct topology *t, uint32_t gpu, char out[RENDER_TEXT_MAX]);
/* Its PCI address; "" none. */
void render_bus(const struct topology *t, uint32_t pci, char out[TOPO_BUSID_MAX]);
/* "400 Gb/s InfiniBand", what of it is known. */
void render_nic_link(const struct topo_nic *nic, char out[RENDER_TEXT_MAX]);
/* Why nothing goes through it, "port DOWN"; "" it could be used. */
void render_nic_why_not(const struct topo_nic *nic, char out[RENDER_TEXT_MAX]);
/* "mlx5_0,mlx5_1"; of more than four three and the number of the others: "mlx5_0,mlx5_1,mlx5_2
 * +13". "" none. */
void render_nets(const struct nccl_prediction *p, char out[RENDER_TEXT_MAX]);
/* "PCIe 5.0 x16", "" unknown. */
void render_pci_link(const struct topo_pci *p, char out[RENDER_TEXT_MAX]);
/* "Broadcom switch", "switch" */
const char *render_switch_name(const struct topo_pci *p);
/* What a NUMA node is that is a GPU's memory: "memory of GPU0", "memory of a GPU". */
void render_gpu_memory(const struct topology *t, int32_t numa, char out[RENDER_TEXT_MAX]);
/* Of a file of NCCL's without GPUs and NICs, into which NCCL puts them when it starts; "" of
 * anything else. A sentence without its full stop. */
void render_no_devices(const struct topology *t, char out[RENDER_TEXT_MAX]);
/* "93.9 GiB" */
void render_bytes(uint64_t bytes, char out[RENDER_TEXT_MAX]);
/* "eth0", "eth0 … eth63 (64)" */
void render_range(const struct topology *t, const struct render_shape *s, const char *dots,
                  char out[RENDER_TEXT_MAX]);
