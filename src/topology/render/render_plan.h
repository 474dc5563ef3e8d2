/* What the tree and the picture show, and in which order: the machine as a tree of shapes. Only
 * switches are shapes among the bridges; shapes without information (a host bridge with one thing
 * below it) are left out. Pure; private to render. */
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
    uint32_t index;       /* NUMA: in numa[], TOPO_NONE: devices whose node is not known; switch:
                           * in pci[]; GPU, NIC, interface: in its array; package: its number */
    struct pci_addr root; /* host bridge: its bus */
    uint32_t count;       /* NICs, interfaces: number of equal ones in a row in the array */
    uint32_t parent;      /* TOPO_NONE: the machine */
    uint32_t first, last, next; /* children and siblings, in order; TOPO_NONE */
    uint32_t children;
};

/* How NVLink joins the pairs of GPUs: how many of how many pairs, with `least` to `most` links
 * each. */
struct render_nvlinks {
    uint32_t pairs, joined, least, most;
};

struct render_plan {
    const struct topology *t;
    struct render_nvlinks nvlinks;
    struct render_shape *shapes; /* [0] is the machine; parents come before their children */
    uint32_t n;
    struct nccl_prediction *predictions; /* [n_gpus]; NULL: no graph was given */
    bool any_net;                        /* some GPU has one */
    bool *nic_chosen, *netif_chosen;     /* some GPU's traffic goes through it */
};

void render_plan_init(const struct topology *t, const struct nccl_graph *g,
                      struct render_plan *ret);
void render_plan_fini(struct render_plan *p);
/* The shape after i, parents before their children; TOPO_NONE at the end. */
uint32_t render_plan_next(const struct render_plan *p, uint32_t i);
/* Finds the NIC (or interface) of each part of NCCL's "mlx5_0+mlx5_1", and calls it with its shape:
 * of one that a file repeats under several CPUs, that near the GPU. */
void render_plan_each_net(const struct render_plan *p, uint32_t gpu, const char *net,
                          void (*on_shape)(void *arg, uint32_t shape), void *arg);

uint32_t render_nvlinks(const struct topology *t, uint32_t a, uint32_t b);
static inline bool render_nvlinks_alike(const struct render_nvlinks *n) {
    return n->joined == 0 || (n->joined == n->pairs && n->least == n->most);
}

/* ---- words for people; text from files is made safe for a terminal ---- */

#define RENDER_TEXT_MAX 256
struct render_text {
    char text[RENDER_TEXT_MAX]; /* what is longer is cut */
};
struct render_text render_words(const char *fmt, ...) _printf_(1, 2);
/* Bytes that are not UTF-8, and control characters, become "?"; blanks too, on request. */
struct render_text render_clean(const char *in, bool blanks);
struct render_text render_gpu_label(const struct topology *t, uint32_t gpu);
/* "NVIDIA H200", or vendor and PCI device id. */
struct render_text render_gpu_name(const struct topology *t, uint32_t gpu);
/* Its PCI address; "" if it has none. */
struct render_text render_bus(const struct topology *t, uint32_t pci);
/* "400 Gb/s InfiniBand", as far as it is known. */
struct render_text render_nic_link(const struct topo_nic *nic);
/* Why it has no traffic, "port DOWN"; "" if it could be used. */
struct render_text render_nic_why_not(const struct topo_nic *nic);
/* "mlx5_0,mlx5_1"; if there are more than four, three and the number of the others:
 * "mlx5_0,mlx5_1,mlx5_2 +13". "" none. */
struct render_text render_nets(const struct nccl_prediction *p);
/* "PCIe 5.0 x16", "" unknown. */
struct render_text render_pci_link(const struct topo_pci *p);
/* "Broadcom switch", "switch" */
const char *render_switch_name(const struct topo_pci *p);
/* Describes a NUMA node that is a GPU's memory: "memory of GPU0", "memory of a GPU". */
struct render_text render_gpu_memory(const struct topology *t, int32_t numa);
/* A note on an NCCL file without GPUs and NICs, to which NCCL adds them when it starts; "" for
 * anything else. A sentence without its full stop. */
struct render_text render_no_devices(const struct topology *t);
/* "NVLink domain nvl-….32766: healthy, IMEX channel present, chassis 1821125000123, slot 5, tray
 * 3"; nothing for a node without one. */
void render_domain(const struct topology *t, struct strbuf *to);
/* Adds "2 GPUs" to a list with commas; nothing for 0. */
void render_count(struct strbuf *to, uint32_t n, const char *what);
/* "93.9 GiB" */
struct render_text render_bytes(uint64_t bytes);
/* "eth0", "eth0 … eth63 (64)" */
struct render_text render_range(const struct topology *t, const struct render_shape *s,
                                const char *dots);

/* ---- text in the picture; size: of its font ---- */

/* The text is at most this wide in the usual sans-serif fonts. */
int render_width(const char *text, int size, bool bold);
/* Bytes of the first line if the text does not fit: up to a blank or comma, or as many as fit. */
size_t render_break(const char *text, int size, bool bold, int max_w);
/* Cuts it to max_w, with an ellipsis. */
struct render_text render_fit(const char *text, int size, bool bold, int max_w);
