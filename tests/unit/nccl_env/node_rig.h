/* Made-up nodes for the tests of the rules. */
#pragma once

#include "nccl_env/rules/resolve.h"

#define RIG_TEXTS_MAX 8

struct rig {
    struct topology t;
    struct nccl_graph *graph;
    struct nccl_facts facts;
    struct netif_choice netif;
    struct env_input in;
    struct env_result result;
    char text[1024], *env[RIG_TEXTS_MAX + 1], *set[RIG_TEXTS_MAX + 1]; /* of the words */
};

/* A job of two nodes with eight workers each; the node has no device, no file, an empty environment. The words say what
 * is different, in their order, as in "nodes:1 gpus:2 nccl:22005 env:NCCL_DEBUG=INFO": "~" is a blank, "|" a newline. r
 * is zeroed, or was made before. */
void rig_make(struct rig *r, const char *words);
void rig_fini(struct rig *r);
/* n GPUs of NVIDIA, each with its own NIC mlx5_I below one switch. */
void rig_gpus(struct rig *r, uint32_t n, enum topo_link_layer layer, uint32_t rate_gbps);
/* A NIC on a root bus of its own. */
struct topo_nic *rig_nic(struct rig *r, const char *name, enum topo_link_layer layer, uint32_t rate_gbps);
/* type of the GID at `index` of each port; v4 or an ULA. */
void rig_gid(struct topo_nic *n, uint32_t index, enum topo_gid_type type, const char *kind);
struct topo_netif *rig_netif(struct rig *r, const char *name, const char *addr);
/* Applies the rules anew. */
void rig_resolve(struct rig *r);
/* The choice of this name; NULL: it is not listed. */
const struct env_choice *rig_find(struct rig *r, const char *name);
/* The value that muster sets for the worker; NULL: none. */
const char *rig_set(struct rig *r, const char *name);
bool rig_warns(struct rig *r, const char *part);
