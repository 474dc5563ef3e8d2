/* The best path between two GPUs of a graph: kind and GB/s. */
#pragma once

#include "topology/nccl/nccl_graph_priv.h"

static inline struct nccl_route nccl_between(const struct nccl_graph *g, uint32_t a, uint32_t b) {
    if (a >= g->t->n_gpus || b >= g->t->n_gpus || g->gpu_place[a] == TOPO_NONE || g->gpu_place[b] == TOPO_NONE)
        return (struct nccl_route){.kind = NCCL_PATH_DIS};
    uint32_t from = g->nodes[g->gpus[g->gpu_place[a]]].end, to = g->nodes[g->gpus[g->gpu_place[b]]].end;
    return g->routes[(size_t)from * g->n_ends + to];
}
