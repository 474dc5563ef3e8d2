#include "launcher/place/fill.h"

#include <errno.h>

/* The nodes meet by themselves, unless the user arranges that. One node asked for in a step of
 * several is a job of its own on each, as with torchrun. */
static bool is_group(const struct place *p, const struct place_given *given) {
    if (given->meets || (given->nnodes && given->max_nodes == 1))
        return false;
    /* of several steps; or static, on one machine: each task is a node, and says which */
    bool too_few = given->nnodes && given->min_nodes > p->n_nodes;
    return !(too_few && (given->node_rank || given->elsewhere));
}

/* --ntasks-per-node is often the number of GPUs, as for programs without a launcher. */
static bool is_one_agent(const struct place *p, const struct place_given *given) {
    return given->meets && !given->alone && given->nnodes && p->n_nodes > 1 && p->most_tasks > 1 &&
           given->max_nodes == p->n_nodes;
}

/* srun gave each task GPUs of its own, but one agent starts all workers of a node. (Who may use
 * none wants none; UINT32_MAX: it is not known.) */
static int check_gpus(const struct place *p, struct err *err) {
    if (p->node_tasks == 1 || p->visible_gpus == 0 || p->visible_gpus >= p->gpus_on_node)
        return 0;
    bool uniform =
        (uint64_t)p->n_nodes * p->most_tasks == p->n_tasks; /* so task 0 is refused, too */
    return err_set(
        err, uniform && p->proc_id > 0 ? -EALREADY : -EINVAL,
        "this task sees %u of this node's %u GPUs, but one muster starts all workers of a "
        "node; write: srun --ntasks-per-node=1 --gpus-per-node=%u muster run ... (in "
        "place of --gpus-per-task, --ntasks-per-gpu or --gpu-bind)",
        p->visible_gpus, p->gpus_on_node, p->gpus_on_node);
}

static int too_many(const struct place *p, const struct place_given *given, struct err *err) {
    char where[PLACE_TEXT_MAX];
    place_text(p, where);
    if (p->launcher != NULL)
        return err_set(err, -EINVAL,
                       "%u nodes are asked for, but %s has %u (%s); leave --nnodes out, or start "
                       "the job on more nodes",
                       given->min_nodes, where, p->n_nodes, p->from.n_nodes);
    return err_set(err, -EINVAL,
                   "%u nodes are asked for, but %s has %u; leave --nnodes out, "
                   "or start the step on more nodes: srun -N%u",
                   given->min_nodes, where, p->n_nodes, given->min_nodes);
}

static int fill_step(const struct place *p, const struct place_given *given, struct place_fill *ret,
                     struct err *err) {
    const bool group = is_group(p, given);
    struct place_fill f = {.nodes = group                    ? PLACE_NODES_STEP
                                    : is_one_agent(p, given) ? PLACE_NODES_WHOLE
                                                             : PLACE_NODES_OF_USER};
    const bool one_agent = place_has_one_agent(f.nodes);
    bool one_each = p->most_tasks == 1; /* each task of the step is a node */
    f.nnodes = !given->nnodes && !given->alone && (group || one_each);
    f.nproc =
        !given->nproc && (one_agent || p->node_tasks == 1) && (p->launcher == NULL || p->nproc > 0);
    if (group && given->nnodes && given->min_nodes > p->n_nodes)
        return too_many(p, given, err);
    int r = one_agent ? check_gpus(p, err) : 0;
    if (r == 0)
        *ret = f;
    return r;
}

int place_fill(const struct place *place, const struct place_given *given, struct place_fill *ret,
               struct err *err) {
    *ret = (struct place_fill){0};
    if (place->launcher != NULL)
        return place_is_group(place) ? fill_step(place, given, ret, err) : 0;
    switch (place->slurm) {
    case PLACE_SLURM_STEP: return fill_step(place, given, ret, err);
    case PLACE_SLURM_BATCH:
    case PLACE_SLURM_INTERACTIVE: ret->nproc = !given->nproc; return 0;
    case PLACE_SLURM_NONE:
    case PLACE_SLURM_ALLOC: return 0;
    }
    assert_not_reached();
}
