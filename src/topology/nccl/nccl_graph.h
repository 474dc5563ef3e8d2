/* NCCL 2.30.7's view of a node: its graph of GPUs, switches, CPUs and NETs, the best path
 * between them, and so which NET each GPU gets where no variable changes NCCL's choice. Pure. Rules
 * and figures: NCCL's src/graph/{xml,topo,paths,search}.cc (github.com/NVIDIA/nccl at 2.30.7).
 *
 *     struct nccl_graph *g; r = nccl_graph_new(&topology, &g, &err);
 *     struct nccl_prediction p; nccl_graph_predict(g, gpu, &p);
 *     nccl_graph_free(g);
 *
 * NETs of a live or recorded tree are the RDMA devices with an ACTIVE port. The ports of one card
 * (same PCI device, whatever the function) are one NET "mlx5_0+mlx5_1" with the sum of the speeds.
 * If there is none, the NETs are the network interfaces that NCCL's socket transport would use.
 * NETs of an NCCL file are its `net`s, unchanged; one that is repeated under several CPUs counts
 * once. NETs of an hwloc file are the devices whose Port1State is 4 or missing.
 *
 * At most 640 nodes of a kind. With G GPUs, N NETs, C CPUs and L links a graph costs about
 * (G + N + C) * L + G * N * (G + N) steps: 16 GPUs and 64 NICs take half a millisecond. */
#pragma once

#include "topology/model/topology.h"

enum nccl_path { /* PATH_* of NCCL, near to far */
                 NCCL_PATH_LOC = 0,
                 NCCL_PATH_NVL,
                 NCCL_PATH_NVB,
                 NCCL_PATH_C2C,
                 NCCL_PATH_PIX,
                 NCCL_PATH_PXB,
                 NCCL_PATH_P2C,
                 NCCL_PATH_PXN,
                 NCCL_PATH_PHB,
                 NCCL_PATH_SYS,
                 NCCL_PATH_NET,
                 NCCL_PATH_DIS,
};
const char *nccl_path_name(enum nccl_path p); /* "PIX" */

#define NCCL_NETS_MAX 32
#define NCCL_NET_NAME_MAX 256

struct nccl_prediction {
    uint32_t n_nets;                             /* 0: no NET serves it */
    char nets[NCCL_NETS_MAX][NCCL_NET_NAME_MAX]; /* in channel order, without repetition */
    enum nccl_path path;                         /* to the first of them */
    double bandwidth;                            /* GB/s to the first of them */
    uint32_t nic;                /* index in nics[] of (the first port of) the first; NONE */
    enum nccl_path own_path;     /* of the NET with the nearest kind of path */
    char own[NCCL_NET_NAME_MAX]; /* that NET; differs from nets[0] if the own NIC loses */
    double own_bandwidth;
};

struct nccl_graph;
/* The topology is borrowed and must outlive the graph. -EINVAL with a sentence: NCCL would fail on
 * it; -E2BIG: it exceeds NCCL's limits. */
_must_use_ int nccl_graph_new(const struct topology *t, struct nccl_graph **ret, struct err *err);
void nccl_graph_free(struct nccl_graph *g); /* NULL is fine */
static inline void nccl_graph_freep(struct nccl_graph **g) { nccl_graph_free(*g); }
void nccl_graph_predict(const struct nccl_graph *g, uint32_t gpu, struct nccl_prediction *ret);

/* Warnings for people: a GPU's own NIC loses, two GPUs share one, ports are left out because they
 * are not ACTIVE, speeds are not known, interfaces are virtual. */
void nccl_graph_warnings(const struct nccl_graph *g, struct words *to);
