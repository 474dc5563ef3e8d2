#include "watchdog/act/hang_group.h"

#include <string.h>

#include "watchdog/judge/hang.h"

void hang_group_fini(struct hang_group *g) {
    free(g->nodes);
    free(g->node_of);
    *g = (struct hang_group){0};
}

void hang_group_copy(const struct hang_group *from, struct hang_group *ret) {
    *ret = *from;
    ret->nodes = xcalloc(from->n_nodes + (size_t)1, sizeof *ret->nodes);
    ret->node_of = xcalloc(from->world_size + (size_t)1, sizeof *ret->node_of);
    if (from->n_nodes > 0)
        memcpy(ret->nodes, from->nodes, from->n_nodes * sizeof *ret->nodes);
    if (from->world_size > 0)
        memcpy(ret->node_of, from->node_of, from->world_size * sizeof *ret->node_of);
}

bool hang_group_make(struct generation generation, const struct hang_node *nodes, size_t n,
                     struct hang_group *ret) {
    struct hang_group g = {.generation = generation, .n_nodes = (uint32_t)n};
    *ret = (struct hang_group){0};
    g.nodes = xcalloc(n, sizeof *g.nodes);
    for (size_t i = 0; i < n; i++) {
        g.nodes[i] = nodes[i];
        g.nodes[i].first_rank = g.world_size;
        if (nodes[i].nproc > HANG_RANKS_MAX - g.world_size) {
            hang_group_fini(&g);
            return false;
        }
        g.world_size += nodes[i].nproc;
    }
    g.node_of = xcalloc(g.world_size, sizeof *g.node_of);
    for (uint32_t i = 0; i < g.n_nodes; i++)
        for (uint32_t k = 0; k < g.nodes[i].nproc; k++)
            g.node_of[g.nodes[i].first_rank + k] = i;
    if (g.world_size == 0) {
        hang_group_fini(&g);
        return false;
    }
    *ret = g;
    return true;
}

bool hang_group_read(const struct group *group, struct hang_group *ret) {
    size_t n = group_members(group, NULL, 0);
    _cleanup_(freep) uint64_t *members = xcalloc(n, sizeof *members);
    n = MIN2(group_members(group, members, n), n);
    _cleanup_(freep) struct hang_node *nodes = xcalloc(n, sizeof *nodes);
    for (size_t i = 0; i < n; i++) {
        const struct node_info *info = group_node_info(group, members[i]);
        nodes[i].incarnation = members[i];
        nodes[i].nproc = info == NULL ? 0 : info->nproc;
        group_node_name(group, members[i], nodes[i].name);
    }
    return hang_group_make(group_generation(group), nodes, n, ret);
}

uint32_t hang_group_find(const struct hang_group *g, uint64_t incarnation) {
    uint32_t i = 0;
    while (i < g->n_nodes && g->nodes[i].incarnation != incarnation)
        i++;
    return i;
}
