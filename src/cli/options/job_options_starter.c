/* What starts the agents of a job: the user, or muster itself, by a step of Slurm; and what follows
 * where srun has started several. */
#include <string.h>

#include "cli/options/job_options_priv.h"
#include "launcher/srun/requeue.h"
#include "launcher/srun/srun_command.h"

int job_read_starter(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    uint32_t nodes = 0;
    if (job_wants_ssh(j))
        return job_read_hosts(j);
    job_warn_of_no_hosts(j);
    if (spec->starter > JOB_STARTER_NONE && !place_has_starter(&spec->place)) {
        spec->start_nodes = spec->rdzv.max_nodes;
        job_name_run(j);
        if (!j->given.meets && !j->given.elsewhere) { /* its agents get where they meet from it */
            job_fill_in(j, RUN_RDZV_BACKEND, "c10d");
            job_fill_in(j, RUN_RDZV_ENDPOINT, "127.0.0.1");
        }
        return 0;
    }
    int r = srun_choose(place_has_starter(&j->spec->place) ? JOB_STARTER_NONE : spec->starter,
                        &spec->place, &j->given, &nodes, j->err);
    if (r < 0)
        return r;
    if (r == SRUN_STEP) {
        spec->start_nodes = nodes;
        job_derived(j, "start_nodes: %u, from %s", nodes,
                    j->given.nnodes ? "--nnodes and SLURM_JOB_NUM_NODES" : "SLURM_JOB_NUM_NODES");
    }
    bool serves =
        place_has_one_agent(spec->nodes) && spec->place.local_id == 0 && spec->place.node_tasks > 1;
    if (serves && j->probes->serve_node != NULL)
        j->probes->serve_node(j->probes->arg, &spec->place);
    return 0;
}

int job_read_requeue(struct job_reading *j) {
    const char *text = job_text(j, RUN_REQUEUE);
    if (text[0] == '\0') {
        if (job_value(j, RUN_MAX_REQUEUES)->times > 0)
            strbuf_add(j->warnings, "--max-requeues has no effect without --requeue\n");
        return 0;
    }
    if (requeue_parse(text, &j->spec->requeue) < 0)
        return job_bad_value(j, RUN_REQUEUE, "one or more of preempt, node-fail, timeout");
    bool is_ssh = j->spec->hosts.list.n > 0;
    if (j->spec->place.slurm == PLACE_SLURM_NONE || is_ssh) {
        strbuf_printf(j->warnings, "--requeue: %s, so it has no effect\n",
                      is_ssh ? "over ssh muster is not a job of Slurm"
                             : "this is not a job of Slurm");
        j->spec->requeue = 0;
    }
    return 0;
}

bool job_counts_elsewhere(const struct job_reading *j) {
    return j->spec->nproc_by != JOB_NPROC_NUMBER && j->spec->start_nodes > 0;
}

void job_share_output(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const bool has_own =
        job_given(j, RUN_TEE) || job_given(j, RUN_REDIRECTS) || spec->place.srun_labels;
    if ((spec->nodes == PLACE_NODES_STEP || place_has_starter(&spec->place)) &&
        spec->rdzv.max_nodes > 1)
        spec->output = has_own ? JOB_OUTPUT_SHARED : JOB_OUTPUT_PREFIXED;
}
