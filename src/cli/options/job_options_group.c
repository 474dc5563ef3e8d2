#include <errno.h>
#include <string.h>

#include "base/text/parse.h"
#include "cli/options/job_options_priv.h"

#define TOPOLOGY_MAX 127 /* bytes; RDZV_HOST_MAX with its NUL */

static int check_unit(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (rdzv_settings_unit_fits(&spec->rdzv))
        return 0;
    if (spec->rdzv.min_nodes == spec->rdzv.max_nodes)
        return err_set(j->err, -EINVAL, "--node-unit=%u: %u node%s no multiple of it; change one",
                       spec->rdzv.node_unit, spec->rdzv.max_nodes,
                       spec->rdzv.max_nodes == 1 ? " is" : "s are");
    return err_set(j->err, -EINVAL, "--node-unit=%u: no multiple of it lies in %u:%u nodes",
                   spec->rdzv.node_unit, spec->rdzv.min_nodes, spec->rdzv.max_nodes);
}

/* Reads the place of this node in the network, as Slurm's topology plugin describes it: switches
 * and node, from the top, separated by dots. srun(1), SLURM_TOPOLOGY_ADDR */
void job_read_topology(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *text = spec->place.topology != NULL ? spec->place.topology : "";
    bool fits = strlen(text) <= TOPOLOGY_MAX;
    free(spec->topology);
    spec->topology = xstrdup(fits ? text : "");
    const char *file = job_text(j, RUN_TOPOLOGY_FILE);
    if (file != NULL && spec->topology[0] == '\0') {
        free(spec->topology_file);
        spec->topology_file = xstrdup(file);
    }
    if (spec->rdzv.rank_order != RANK_ORDER_TOPOLOGY || spec->topology[0] != '\0' ||
        spec->topology_file != NULL)
        return;
    if (fits)
        strbuf_add(j->warnings, "--rank-order=topology: SLURM_TOPOLOGY_ADDR is not set; this node "
                                "is ordered by its host name\n");
    else
        strbuf_printf(j->warnings,
                      "--rank-order=topology: SLURM_TOPOLOGY_ADDR is longer than %d bytes; this "
                      "node is ordered by its host name\n",
                      TOPOLOGY_MAX);
}

static int read_arbiter_lease(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    spec->rdzv.arbiter_lease_ns = MAX2(spec->rdzv.arbiter_lease_ns, 2 * spec->rdzv.lease_ns);
    const char *text = job_text(j, RUN_ARBITER_LEASE);
    if (text == NULL)
        return 0;
    if (parse_python_seconds_ns(text, &spec->rdzv.arbiter_lease_ns) < 0)
        return job_bad_value(j, RUN_ARBITER_LEASE, "a number of seconds, 0 or more");
    if (spec->rdzv.arbiter_lease_ns <= spec->rdzv.lease_ns)
        return err_set(j->err, -EINVAL,
                       "--arbiter-lease=%g is too short: it must be longer than a node's "
                       "lease (%g s)",
                       (double)spec->rdzv.arbiter_lease_ns / 1e9,
                       (double)spec->rdzv.lease_ns / 1e9);
    return 0;
}

int job_read_group(struct job_reading *j) {
    int r = check_unit(j);
    if (r == 0)
        r = read_arbiter_lease(j);
    if (r == 0)
        job_read_topology(j);
    return r;
}

/* ---- Slurm ---- */

#define STEP_FOLDER ".muster" /* in the working folder, for nodes that meet there */

/* Whether the user names a directory or etcd where the nodes meet. */
static bool says_elsewhere(const struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    if (job_given(j, RUN_RDZV_BACKEND)) {
        enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
        return backend != 0 && job_backends[backend].any_node_leads;
    }
    return rdzv_place_parse(job_text(j, RUN_RDZV_ENDPOINT), &place, NULL) == 0 &&
           job_backends[place.backend].any_node_leads;
}

/* Whether the user says at which node, or how, the nodes meet. With c10d, a master port is only of
 * the workers' store. */
static bool says_where(const struct job_reading *j) {
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    if (endpoint[strspn(endpoint, " \t")] != '\0')
        return true;
    if (job_given(j, RUN_RDZV_BACKEND))
        return job_backend_of(job_text(j, RUN_RDZV_BACKEND)) != JOB_BACKEND_C10D;
    return job_given(j, RUN_MASTER_ADDR) || job_given(j, RUN_MASTER_PORT);
}

static void take_nodes(struct job_reading *j) {
    struct rdzv_settings *s = &j->spec->rdzv;
    const struct place *p = &j->spec->place;
    s->min_nodes = s->max_nodes = p->n_nodes;
    if (p->n_nodes > 1)
        job_derived(j,
                    "nnodes: %u, from %s; --nnodes=MIN:%u for a job that may continue with fewer",
                    p->n_nodes, p->from.n_nodes, p->n_nodes);
    else
        job_derived(j, "nnodes: 1, from %s", p->from.n_nodes);
}

int job_read_slurm(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const bool alone = job_value(j, RUN_STANDALONE)->times > 0, elsewhere = says_elsewhere(j);
    j->given = (struct place_given){
        .nnodes = job_given(j, RUN_NNODES),
        .min_nodes = spec->rdzv.min_nodes,
        .max_nodes = spec->rdzv.max_nodes,
        .nproc = job_given(j, RUN_NPROC_PER_NODE),
        .node_rank = job_given(j, RUN_NODE_RANK),
        .meets = alone || (!elsewhere && says_where(j)),
        .elsewhere = elsewhere,
        .alone = alone,
    };
    if (spec->place.slurm == PLACE_SLURM_NONE)
        return 0;
    if (j->place_code < 0) /* what the user arranges needs no variables */
        return j->given.meets || j->given.nnodes
                   ? 0
                   : err_set(j->err, j->place_code, "%s", j->place_err.text);
    int r = place_fill(&spec->place, &j->given, &j->fill, j->err);
    if (r < 0)
        return r;
    spec->nodes = j->fill.nodes;
    if (j->fill.nnodes)
        take_nodes(j);
    return 0;
}

int job_count_workers_by_slurm(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    const uint32_t each = p->nproc_is_gpus ? MAX2(spec->gpus_per_worker, UINT32_C(1)) : 1;
    if (p->nproc < each)
        return err_set(j->err, -ENODEV,
                       "--gpus-per-worker=%u: %s leaves %u GPU%s here, too few for one worker",
                       each, p->from.nproc, p->nproc, p->nproc == 1 ? "" : "s");
    spec->nproc = MIN2(p->nproc / each, (uint32_t)JOB_WORKERS_MAX);
    if (p->from.nproc != NULL)
        job_derived(j, "nproc_per_node: %u, from %s", spec->nproc, p->from.nproc);
    return 0;
}

/* The folder where nodes can meet, because all of them see it; NULL: there is none. malloc'ed */
static char *shared_folder(const struct job_reading *j, const char **ret_name) {
    bool own_store = j->share_off_env != NULL && strcmp(j->share_off_env, "1") == 0;
    if (job_given(j, RUN_RDZV_BACKEND) || own_store || j->probes->shared_folder == NULL)
        return NULL;
    _cleanup_(freep) char *cwd = j->probes->cwd(j->probes->arg);
    if (cwd == NULL || strlen(cwd) + sizeof STEP_FOLDER >= RDZV_PATH_MAX)
        return NULL;
    _cleanup_(freep) char *folder =
        xasprintf("%s%s" STEP_FOLDER, cwd, cwd[strlen(cwd) - 1] == '/' ? "" : "/");
    *ret_name = j->probes->shared_folder(j->probes->arg, folder);
    return *ret_name != NULL ? TAKE_PTR(folder) : NULL;
}

void job_meet_in_step(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    const char *name;
    spec->backend = JOB_BACKEND_C10D;
    spec->run_id_given = spec->rdzv.max_nodes > 1;
    if (spec->rdzv.max_nodes == 1)
        return;
    spec->arbiter_dir = shared_folder(j, &name);
    if (spec->arbiter_dir == NULL) {
        spec->endpoint_host = xstrdup(p->first_host);
        return;
    }
    spec->backend = JOB_BACKEND_DIR;
    job_derived(j, "rdzv_endpoint: dir:%s, because the working folder is on %s, which nodes share",
                spec->arbiter_dir, name);
}

/* By the step's own name, and not by --rdzv-id: jobs that are given one name don't meet. */
void job_choose_ports(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    bool range = spec->port_low > 0;
    static_assert(PLACE_PORTS_MAX <= JOB_ENDPOINT_PORTS_MAX, "all fit");
    if (spec->nodes != PLACE_NODES_STEP || spec->endpoint_host == NULL)
        return;
    spec->n_endpoint_ports =
        (unsigned)place_ports(p->run_id, range ? spec->port_low : PLACE_PORT_LOW,
                              range ? spec->port_high : PLACE_PORT_HIGH, spec->endpoint_ports);
    spec->endpoint_port = spec->endpoint_ports[0];
    if (spec->n_endpoint_ports == 1)
        spec->n_endpoint_ports = 0;
    job_derived(j,
                "rdzv_endpoint: %s:%u (or one of %u further ports), from %s and the step's "
                "name",
                spec->endpoint_host, spec->endpoint_port, MAX2(spec->n_endpoint_ports, 1u) - 1,
                p->from.first_host);
}
