#include <errno.h>
#include <string.h>

#include "base/text/parse.h"
#include "cli/options/job_options_priv.h"

#define TOPOLOGY_MAX 127 /* bytes; RDZV_HOST_MAX with its NUL */

int job_read_seconds(struct job_reading *j, enum run_option row, uint64_t *ret_ns) {
    if (parse_seconds_ns(job_text(j, row), ret_ns) < 0)
        return job_bad_value(j, row, "a number of seconds, 0 or more");
    return 0;
}

/* A number of nodes or of failures; `none` when it was not given and has no default. */
static int read_count(struct job_reading *j, enum run_option row, uint32_t none, uint32_t *ret) {
    const char *text = job_text(j, row);
    *ret = none;
    if (text != NULL && (parse_u32(text, ret) < 0 || *ret > INT32_MAX))
        return job_bad_value(j, row, "a number, 0 or more");
    return 0;
}

static int read_unit(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *text = job_text(j, RUN_NODE_UNIT);
    if (parse_u32(text, &spec->rdzv.node_unit) < 0 || spec->rdzv.node_unit == 0)
        return job_bad_value(j, RUN_NODE_UNIT, "a number of nodes, 1 or more");
    if (rdzv_settings_unit_fits(&spec->rdzv))
        return 0;
    if (spec->rdzv.min_nodes == spec->rdzv.max_nodes)
        return err_set(j->err, -EINVAL, "--node-unit=%u: %u node%s no multiple of it; change one",
                       spec->rdzv.node_unit, spec->rdzv.max_nodes,
                       spec->rdzv.max_nodes == 1 ? " is" : "s are");
    return err_set(j->err, -EINVAL, "--node-unit=%u: no multiple of it lies in %u:%u nodes",
                   spec->rdzv.node_unit, spec->rdzv.min_nodes, spec->rdzv.max_nodes);
}

/* The address of this node in the network, as Slurm's topology plugin has it: switches and node,
 * from the top, with dots. srun(1), SLURM_TOPOLOGY_ADDR */
static void read_topology(struct job_reading *j) {
    static const char *const names[] = {"host", "join", "topology"};
    struct job_spec *spec = j->spec;
    spec->rdzv.rank_order =
        (enum rdzv_rank_order)job_choice(j, RUN_RANK_ORDER, names, ARRAY_SIZE(names));
    const char *text = j->topology_env != NULL ? j->topology_env : "";
    bool fits = strlen(text) <= TOPOLOGY_MAX;
    spec->topology = xstrdup(fits ? text : "");
    const char *file = job_text(j, RUN_TOPOLOGY_FILE);
    if (file != NULL && spec->topology[0] == '\0')
        spec->topology_file = xstrdup(file);
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

static void read_preflight(struct job_reading *j) {
    static const char *const names[] = {"off", "warn", "strict"};
    j->spec->preflight = (enum job_preflight)job_choice(j, RUN_PREFLIGHT, names, ARRAY_SIZE(names));
}

static int read_changes(struct job_reading *j) {
    static const char *const names[] = {"boundary", "now", "never"};
    struct job_spec *spec = j->spec;
    spec->rdzv.grow = (enum rdzv_grow)job_choice(j, RUN_GROW, names, ARRAY_SIZE(names));
    int r = read_count(j, RUN_SPARES, UINT32_MAX, &spec->rdzv.spares);
    if (r == 0)
        r = read_count(j, RUN_MAX_NODE_LOSSES, UINT32_MAX, &spec->rdzv.max_node_losses);
    if (r == 0)
        r = read_count(j, RUN_EXCLUDE_AFTER, 0, &spec->rdzv.exclude_after);
    if (r == 0)
        r = job_read_seconds(j, RUN_RESTART_BACKOFF, &spec->rdzv.restart_backoff_ns);
    if (r == 0)
        r = job_read_seconds(j, RUN_CRASH_LOOP, &spec->rdzv.crash_loop_ns);
    if (r == 0)
        r = job_read_seconds(j, RUN_HOLD, &spec->rdzv.hold_ns);
    if (r == 0 && job_text(j, RUN_REGROUP_WAIT) != NULL)
        r = job_read_seconds(j, RUN_REGROUP_WAIT, &spec->rdzv.regroup_wait_ns);
    return r;
}

static int read_arbiter_lease(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    spec->rdzv.arbiter_lease_ns = MAX2(spec->rdzv.arbiter_lease_ns, 2 * spec->rdzv.lease_ns);
    if (job_text(j, RUN_ARBITER_LEASE) == NULL)
        return 0;
    int r = job_read_seconds(j, RUN_ARBITER_LEASE, &spec->rdzv.arbiter_lease_ns);
    if (r == 0 && spec->rdzv.arbiter_lease_ns <= spec->rdzv.lease_ns)
        return err_set(j->err, -EINVAL,
                       "an arbiter lease of %g s is too short: it must be longer than a node's "
                       "lease (%g s)",
                       (double)spec->rdzv.arbiter_lease_ns / 1e9,
                       (double)spec->rdzv.lease_ns / 1e9);
    return r;
}

int job_read_group(struct job_reading *j) {
    int r = read_unit(j);
    if (r == 0)
        r = read_changes(j);
    if (r == 0)
        r = read_arbiter_lease(j);
    if (r == 0)
        read_topology(j);
    if (r == 0)
        read_preflight(j);
    return r;
}
