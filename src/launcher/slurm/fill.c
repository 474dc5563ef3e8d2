#include "launcher/slurm/fill.h"

#include <errno.h>

/* The nodes meet by themselves, unless the user arranges that. One node asked for in a step of
 * several is a job of its own on each, as with torchrun. */
static bool is_group(const struct slurm_place *p, const struct slurm_said *said) {
    if (said->meets || (said->nnodes && said->max_nodes == 1))
        return false;
    /* of several steps; or static, on one machine: each task is a node, and says which */
    bool too_few = said->nnodes && said->min_nodes > p->n_nodes;
    return !(too_few && (said->node_rank || said->elsewhere));
}

/* --ntasks-per-node is often the number of GPUs, as for programs without a launcher. */
static bool is_one_agent(const struct slurm_place *p, const struct slurm_said *said) {
    return said->meets && !said->alone && said->nnodes && p->n_nodes > 1 && p->most_tasks > 1 &&
           said->max_nodes == p->n_nodes;
}

/* srun gave each task GPUs of its own, but one agent starts all workers of a node. (Who may use
 * none wants none; UINT32_MAX: it is not known.) */
static int check_gpus(const struct slurm_place *p, struct err *err) {
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

static int fill_step(const struct slurm_place *p, const struct slurm_said *said,
                     struct slurm_fill *ret, struct err *err) {
    struct slurm_fill f = {.group = is_group(p, said)};
    f.one_agent = f.group || is_one_agent(p, said);
    f.meet = f.group && !said->elsewhere;
    bool one_each = p->most_tasks == 1; /* each task of the step is a node */
    f.nnodes = !said->nnodes && !said->alone && (f.group || one_each);
    f.nproc = !said->nproc && (f.one_agent || p->node_tasks == 1);
    if (f.group && said->nnodes && said->min_nodes > p->n_nodes)
        return err_set(err, -EINVAL,
                       "%u nodes are asked for, but Slurm's step %s.%s has %u; leave --nnodes out, "
                       "or start the step on more nodes: srun -N%u",
                       said->min_nodes, p->job_id, p->step_id, p->n_nodes, said->min_nodes);
    int r = f.one_agent ? check_gpus(p, err) : 0;
    if (r == 0)
        *ret = f;
    return r;
}

int slurm_fill(const struct slurm_place *place, const struct slurm_said *said,
               struct slurm_fill *ret, struct err *err) {
    *ret = (struct slurm_fill){0};
    switch (place->kind) {
    case SLURM_PLACE_STEP: return fill_step(place, said, ret, err);
    case SLURM_PLACE_BATCH:
    case SLURM_PLACE_INTERACTIVE: ret->nproc = !said->nproc; return 0;
    case SLURM_PLACE_NONE:
    case SLURM_PLACE_ALLOC: return 0;
    }
    assert_not_reached();
}
