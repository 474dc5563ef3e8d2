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
static void read_topology(struct job_reading *j) {
    struct job_spec *spec = j->spec;
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
                       "an arbiter lease of %g s is too short: it must be longer than a node's "
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
        read_topology(j);
    return r;
}
