/* Private to nccl_graph: a tree as NCCL's XML would show it (CPUs, PCI devices, GPUs, NICs), the
 * NETs with their places in it, then links and the best paths over them.
 *
 * nccl_graph_tree.c chooses the NETs and builds the tree, nccl_graph.c finds the paths, answers and
 * warns. nccl_xml.c writes the tree. */
#pragma once

#include "topology/nccl/nccl_graph.h"

#define NCCL_NODES_MAX 640     /* of one kind: NCCL_TOPO_MAX_NODES */
#define NCCL_LOCAL_GBS 5000.0  /* LOC_BW */
#define NCCL_CHANNELS_MAX 64   /* MAXCHANNELS */
#define NCCL_IB_DEVICES_MAX 32 /* MAX_IB_DEVS */
#define NCCL_SOCKETS_MAX 16    /* MAX_IFS */
#define NCCL_FUSED_MAX 4       /* NCCL_NET_MAX_DEVS_PER_NIC */

enum nccl_node_kind {
    NCCL_NODE_CPU = 1,
    NCCL_NODE_PCI,
    NCCL_NODE_GPU,
    NCCL_NODE_NIC,
    NCCL_NODE_NET,
    NCCL_NODE_NVS,
    NCCL_NODE_KINDS,
};

struct nccl_link {
    enum nccl_path kind; /* NVL, C2C, PIX (all of PCI), SYS, NET; as NCCL's LINK_* */
    uint32_t to;         /* index in nodes[] */
    double bandwidth;
};

struct nccl_node {
    enum nccl_node_kind kind;
    uint32_t index;                     /* in gpus[] of the topology; of a NET in nets[] */
    uint32_t pci;                       /* in pci[] of the topology; TOPO_NONE: none */
    int32_t numa;                       /* CPU */
    uint32_t parent, first_child, next; /* of the tree, in nodes[]; TOPO_NONE: none */
    double bandwidth;                   /* GB/s of the PCI link to the parent */
    bool host_bridge;                   /* NIC: NCCL uses it as the host bridge of its root bus */
    struct nccl_link *links;            /* owned */
    uint32_t n_links;
    uint32_t end; /* index in the table of paths; TOPO_NONE: no end of one */
};

struct nccl_net {
    char name[NCCL_NET_NAME_MAX];
    uint64_t mbps; /* 0: not known, then only PCI bounds it */
    bool gdr;
    uint32_t dev;        /* of an NCCL file; else its number in NCCL's order */
    uint32_t nic, netif; /* the first; TOPO_NONE: none */
    uint32_t pci;        /* of its card; TOPO_NONE: none, it is at the CPU of every GPU */
    uint32_t n_fused;
    uint32_t node; /* in nodes[] */
};

/* A NET and one of the NIC nodes that it is attached to. */
struct nccl_place {
    uint32_t net, nic_node;
};

struct nccl_route {
    double bandwidth; /* 0: none yet */
    uint32_t hops;
    enum nccl_path kind;
    uint32_t via; /* GPU (place in gpus[]) of a PXN route; else TOPO_NONE */
};

struct nccl_choice { /* ncclTopoGetLocalNet of one GPU, for all channels */
    bool valid;
    uint32_t n, start, per_gpu;
    uint32_t nets[NCCL_NODES_MAX]; /* local ones */
};

/* A device that is left out, for the warnings. */
struct nccl_left {
    uint32_t nic, port; /* port: index in ports[] */
    bool many;          /* there are more than NCCL takes; else its state is not ACTIVE */
};

struct nccl_graph {
    const struct topology *t;
    struct nccl_node *nodes;
    uint32_t n_nodes;
    struct nccl_net *nets;
    uint32_t n_nets;
    struct nccl_place *places;
    uint32_t n_places;
    uint32_t *gpus; /* nodes, in NCCL's order */
    uint32_t n_gpus;
    uint32_t *cpus;
    uint32_t n_cpus;
    uint32_t *gpu_place; /* [t->n_gpus] place in gpus[]; TOPO_NONE: not one of NCCL's */
    uint32_t n_ends;
    struct nccl_route *routes;   /* [n_ends * n_ends], from * n_ends + to */
    struct nccl_route *direct;   /* [n_gpus * n_nets] GPU to NET before PXN */
    struct nccl_choice *choices; /* [n_gpus] */
    struct nccl_left *left;
    uint32_t n_left;
};

/* The speed and width of a PCI device's link as NCCL would write them. speed: "" unknown; *width 0
 * unknown. */
void nccl_pci_link(const struct topology *t, uint32_t i, char speed[32], uint32_t *width);
/* True if src/graph/topo.cc, kvDictPciGen, has this form. Others count as 8 GT/s. */
bool nccl_pci_speed_known(const char *speed);
/* The largest number of NVLinks on one GPU. */
uint32_t nccl_nvlinks_max(uint32_t sm);

/* Fills nets[], left[], nodes[] (CPU, PCI, GPU, NIC), places[], gpus[], cpus[]; nets[] get NCCL's
 * order. */
_must_use_ int nccl_graph_build_tree(struct nccl_graph *g, struct err *err);
/* Merges each of Broadcom's two-level switches into one node; then adds links, NETs and NVSwitch as
 * nodes. */
void nccl_graph_link(struct nccl_graph *g);
/* The tree alone, for nccl_xml_write. */
_must_use_ int nccl_graph_new_tree(const struct topology *t, struct nccl_graph **ret,
                                   struct err *err);
