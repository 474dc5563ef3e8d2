#include "topology/nccl/nccl_graph.h"

#include <stdio.h>

#include "topology/nccl/nccl_graph_priv.h"

const char *nccl_path_name(enum nccl_path p) {
    static const char *const names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                        "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
    return (size_t)p < ARRAY_SIZE(names) ? names[p] : "?";
}

void nccl_graph_free(struct nccl_graph *g) {
    if (g == NULL)
        return;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        free(g->nodes[i].links);
    for (uint32_t i = 0; g->choices != NULL && i < g->n_gpus; i++)
        free(g->choices[i].nets);
    free(g->nodes);
    free(g->nets);
    free(g->places);
    free(g->gpus);
    free(g->cpus);
    free(g->gpu_place);
    free(g->routes);
    free(g->direct);
    free(g->choices);
    free(g->left);
    free(g);
}

static void graph_freep(struct nccl_graph **g) { nccl_graph_free(*g); }

static int new_tree(const struct topology *t, const struct nccl_options *options,
                    struct nccl_graph **ret, struct err *err) {
    _cleanup_(graph_freep) struct nccl_graph *g = xcalloc(1, sizeof *g);
    g->t = t;
    if (options != NULL)
        g->options = *options;
    int r = nccl_graph_choose_nets(g, err);
    r = r < 0 ? r : nccl_graph_build_tree(g, err);
    if (r == 0)
        *ret = TAKE_PTR(g);
    return r;
}

int nccl_graph_new_tree(const struct topology *t, struct nccl_graph **ret, struct err *err) {
    return new_tree(t, NULL, ret, err);
}

int nccl_graph_new(const struct topology *t, const struct nccl_options *options,
                   struct nccl_graph **ret, struct err *err) {
    _cleanup_(graph_freep) struct nccl_graph *g = NULL;
    int r = new_tree(t, options, &g, err);
    r = r < 0 ? r : nccl_graph_link(g, err);
    r = r < 0 ? r : nccl_graph_find_paths(g, err);
    if (r == 0)
        *ret = TAKE_PTR(g);
    return r;
}

/* The NET that is nearest by kind of path; among equals the one that NCCL takes, else the
 * fastest. */
static void find_own(const struct nccl_graph *g, uint32_t gpu, uint32_t taken,
                     struct nccl_prediction *ret) {
    uint32_t own = TOPO_NONE;
    const struct nccl_route *direct = &g->direct[(size_t)gpu * g->n_nets];
    for (uint32_t i = 0; i < g->n_nets; i++) {
        if (direct[i].bandwidth <= 0)
            continue;
        bool nearer = own == TOPO_NONE || direct[i].kind < direct[own].kind;
        bool equal = own != TOPO_NONE && direct[i].kind == direct[own].kind;
        if (nearer ||
            (equal && own != taken && (i == taken || direct[i].bandwidth > direct[own].bandwidth)))
            own = i;
    }
    if (own == TOPO_NONE)
        return;
    ret->own_path = direct[own].kind;
    ret->own_bandwidth = direct[own].bandwidth;
    (void)snprintf(ret->own, sizeof ret->own, "%s", g->nets[own].name);
}

void nccl_graph_predict(const struct nccl_graph *g, uint32_t gpu, struct nccl_prediction *ret) {
    *ret = (struct nccl_prediction){
        .path = NCCL_PATH_DIS, .own_path = NCCL_PATH_DIS, .nic = TOPO_NONE, .netif = TOPO_NONE};
    if (gpu >= g->t->n_gpus || g->gpu_place[gpu] == TOPO_NONE || g->n_nets == 0)
        return;
    uint32_t place = g->gpu_place[gpu], first = nccl_graph_net_of(g, place, 0);
    find_own(g, place, first, ret);
    if (first == TOPO_NONE)
        return;
    const struct nccl_route *path = nccl_route_at(g, g->gpus[place], g->nets[first].node);
    ret->path = path->kind;
    ret->bandwidth = path->bandwidth;
    ret->nic = g->nets[first].nic;
    ret->netif = g->nets[first].netif;
    for (uint32_t c = 0; c < NCCL_CHANNELS_MAX && ret->n_nets < NCCL_NETS_MAX; c++) {
        uint32_t net = nccl_graph_net_of(g, place, c);
        if (c > 0 && net == first)
            break;
        (void)snprintf(ret->nets[ret->n_nets], NCCL_NET_NAME_MAX, "%s", g->nets[net].name);
        ret->n_nets++;
    }
}

void nccl_graph_between(const struct nccl_graph *g, uint32_t a, uint32_t b, enum nccl_path *ret,
                        double *ret_gbs) {
    *ret = NCCL_PATH_DIS;
    *ret_gbs = 0;
    if (a >= g->t->n_gpus || b >= g->t->n_gpus || g->gpu_place[a] == TOPO_NONE ||
        g->gpu_place[b] == TOPO_NONE)
        return;
    const struct nccl_route *path =
        nccl_route_at(g, g->gpus[g->gpu_place[a]], g->gpus[g->gpu_place[b]]);
    *ret = path->kind;
    *ret_gbs = path->bandwidth;
}

uint32_t nccl_graph_nets(const struct nccl_graph *g) { return g->n_nets; }
const char *nccl_graph_net_name(const struct nccl_graph *g, uint32_t i) {
    return i < g->n_nets ? g->nets[i].name : "";
}
