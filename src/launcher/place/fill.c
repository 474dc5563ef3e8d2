#include "launcher/place/fill.h"

#include <errno.h>
#include <string.h>

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
    if (place_is_group(place))
        return fill_step(place, given, ret, err);
    ret->nproc = place->launcher == NULL && place_is_first_of_job(place) && !given->nproc;
    return 0;
}

/* ==== doubts ==== */

#define LEAVE_OUT "--rdzv-endpoint, --master-addr and --node-rank"

/* sbatch's script, and what it does not start by srun, runs on one node. */
static void doubt_one_node(const struct place *p, struct strbuf *warnings) {
    char where[PLACE_TEXT_MAX];
    if (p->job_nodes < 2)
        return;
    place_text(p, where);
    strbuf_printf(warnings,
                  "this line runs in %s, on one of its %u nodes; if nothing else starts the "
                  "others, write srun before it, or leave out " LEAVE_OUT
                  ": then muster starts all nodes\n",
                  where, p->job_nodes);
}

/* Each task of the step is a node of the user's group, or each node is. A step of one node may be
 * one of several, each with a node of the group. */
static void doubt_nodes(const struct place *p, const struct doubt_line *line,
                        struct strbuf *warnings) {
    const uint32_t has = line->one_agent ? p->n_nodes : p->n_tasks;
    const char *noun = has == p->n_nodes ? "nodes" : "tasks, each of which is a node here";
    if (p->n_nodes < 2)
        return;
    if (line->min_nodes > has)
        strbuf_printf(warnings,
                      "--nnodes asks for %u nodes, but Slurm's step %s.%s has %u %s: the job waits "
                      "for others; leave out --nnodes, " LEAVE_OUT
                      ", or start the step on more nodes: srun -N%u\n",
                      line->min_nodes, p->job_id, p->step_id, has, noun, line->min_nodes);
    else if (line->max_nodes < has && line->min_nodes == line->max_nodes && !line->spares)
        strbuf_printf(warnings,
                      "--nnodes takes %u nodes, but Slurm's step %s.%s has %u %s: the others run "
                      "nothing, unless one of these is lost; leave out --nnodes, " LEAVE_OUT
                      ", or declare them as spares: --spares=%u\n",
                      line->max_nodes, p->job_id, p->step_id, has, noun, has - line->max_nodes);
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static void doubt_host(const struct place *p, const struct doubt_line *line,
                       struct strbuf *warnings) {
    if (line->host == NULL || p->n_nodes < 2)
        return;
    if (is_loopback(line->host))
        strbuf_printf(warnings,
                      "%s is another host on each node of Slurm's step %s.%s, so that no two meet "
                      "there; leave it out: muster then takes %s\n",
                      line->host, p->job_id, p->step_id, p->first_host);
    else if (line->srun_host != NULL && !line->from_batch &&
             strcmp(line->host, line->srun_host) == 0)
        strbuf_printf(warnings,
                      "%s (SLURM_LAUNCH_NODE_IPADDR) is where srun runs; if that is not a "
                      "node of Slurm's step %s.%s, no node leads the job; leave it out, "
                      "and muster takes %s\n",
                      line->host, p->job_id, p->step_id, p->first_host);
}

/* `hostname --ip-address` prints all addresses of a host: of "$ADDRESS:29500" the first word is
 * then the endpoint, and the next one what to run. */
static void doubt_script(const struct place *p, const struct doubt_line *line,
                         struct strbuf *warnings) {
    static const char address[] = "0123456789.:", v6[] = "0123456789abcdef:";
    const char *s = line->script;
    bool is_address = s != NULL && strchr(s, ':') != NULL &&
                      (s[strspn(s, address)] == '\0' || s[strspn(s, v6)] == '\0');
    if (is_address)
        strbuf_printf(warnings,
                      "the program to run is %s, which looks like an address: a variable in the "
                      "line holds several (hostname --ip-address prints all); leave out " LEAVE_OUT
                      ": muster then takes %s\n",
                      s, p->first_host);
}

/* The shell of a batch script has SLURM_NODEID=0 and SLURM_PROCID=0. */
static void doubt_rank(const struct place *p, const struct place_given *given,
                       const struct doubt_line *line, struct strbuf *warnings) {
    if (p->most_tasks != 1 || !line->ranks_are_fixed || line->node_rank != 0)
        return;
    if (!given->node_rank)
        strbuf_printf(
            warnings,
            "no --node-rank is given, so each task of Slurm's step %s.%s wants to be node "
            "0; leave out --rdzv-endpoint and --master-addr, or add "
            "--rdzv-backend=c10d\n",
            p->job_id, p->step_id);
    else
        strbuf_printf(warnings,
                      "--node-rank=0 in the task with SLURM_PROCID=1 of Slurm's step %s.%s, too: a "
                      "batch script puts 0 in place of $SLURM_NODEID and $SLURM_PROCID before "
                      "srun runs; leave out --node-rank and --master-addr, or let each task do "
                      "it: srun bash -c 'exec ... --node-rank=$SLURM_PROCID ...'\n",
                      p->job_id, p->step_id);
}

void slurm_doubt(const struct place *place, const struct place_given *given,
                 const struct doubt_line *line, struct strbuf *warnings) {
    if (line->max_nodes < 2 || given->alone)
        return;
    if (place_is_first_of_job(place) && (given->meets || given->node_rank))
        doubt_one_node(place, warnings);
    if (!place_is_step(place) || !given->meets)
        return;
    if (place->proc_id == 0) {
        doubt_nodes(place, line, warnings);
        doubt_host(place, line, warnings);
        doubt_script(place, line, warnings);
    } else if (place->proc_id == 1) {
        doubt_rank(place, given, line, warnings);
    }
}
