/* The watchdog on this node: what it gets from the launcher, and its messages to the leader. */
#include "launcher/agent/agent_priv.h"
#include "launcher/supervise/spare_io.h"
#include "launcher/worker/notify.h"

static void on_signs(void *arg, const struct rdzv_signs *signs) {
    struct agent *a = arg;
    rdzv_client_signs(a->client, signs);
}

static uint64_t leader(void *arg) {
    const struct agent *a = arg;
    return rdzv_client_welcomes(a->client);
}

static bool on_evidence(void *arg, const struct rdzv_evidence *piece) {
    struct agent *a = arg;
    return rdzv_client_evidence(a->client, piece);
}

/* ---- what the watchdog gets from the launcher ---- */

static struct worker_announced announced(const struct local_workers *w, uint32_t local_rank,
                                         uint64_t now_ns) {
    const struct announced *a = local_workers_announced(w, local_rank);
    struct worker_announced ret = {.step = a->step, .alive_ns = a->alive_ns};
    if (!announced_limit(a, now_ns, &ret.limit_ns, &ret.since_ns))
        ret.limit_ns = 0;
    return ret;
}

struct hang_workers agent_hang_workers(const struct agent *a) {
    static const struct hang_workers_ops ops = {.pid = local_workers_pid,
                                                .any = local_workers_has_workers,
                                                .announced = announced,
                                                .is_held = local_workers_is_held,
                                                .env = local_workers_env,
                                                .log_path = local_workers_log_path,
                                                .store_port = local_workers_store_port,
                                                .node_dir = local_workers_node_dir,
                                                .hang_dir = worker_logs_hang_dir,
                                                .keep_files = worker_logs_keep,
                                                .spare = spare_add,
                                                .spared = spare_lives,
                                                .is_named = sweep_is_named};
    return (struct hang_workers){.ops = &ops,
                                 .of = a->local_workers,
                                 .files = local_workers_files(a->local_workers),
                                 .spare = guardian_spared(a->config.link)};
}

/* With --hang-action=auto and no restart left to give, a hang would end the job: it is only
 * reported then. */
static enum hang_action action_of(const struct job_spec *spec) {
    switch (spec->hang_action) {
    case JOB_HANG_AUTO:
        return spec->rdzv.max_restarts > 0 ? HANG_ACTION_RESTART : HANG_ACTION_REPORT;
    case JOB_HANG_RESTART: return HANG_ACTION_RESTART;
    case JOB_HANG_REPORT: return HANG_ACTION_REPORT;
    case JOB_HANG_OFF: return HANG_ACTION_OFF;
    }
    assert_not_reached();
}

struct hang_settings agent_hang_settings(const struct job_spec *spec) {
    return (struct hang_settings){.limits = {.action = action_of(spec),
                                             .still_ns = spec->hang_still_ns,
                                             .timeout_ns = spec->hang_timeout_ns,
                                             .report_ns = spec->hang_report_ns},
                                  .automatic = spec->hang_action == JOB_HANG_AUTO,
                                  .evidence_timeout_ns = spec->evidence_timeout_ns,
                                  .nproc = spec->nproc,
                                  .run_id = spec->run_id,
                                  .log_mode = spec->log_mode};
}

static const char *hides_prompt(const struct job_spec *spec, uint32_t local_rank) {
    if (spec->console_ranks != NULL && !spec->console_ranks[local_rank])
        return "--local-ranks-filter hides its prompt; add its local rank to the filter";
    if ((std_map_get(&spec->redirects, local_rank) & STD_OUT) != 0 &&
        (std_map_get(&spec->tee, local_rank) & STD_OUT) == 0)
        return "--redirects hides its prompt; use --tee instead";
    return NULL;
}

void agent_hang_begin(struct agent *a) {
    static const struct hang_watch_ops ops = {.signs = on_signs,
                                              .leader = leader,
                                              .evidence = on_evidence,
                                              .gathered = agent_stop_gathered};
    struct hang_watch_config config = {.settings = agent_hang_settings(a->config.spec),
                                       .host = a->host,
                                       .workers = agent_hang_workers(a),
                                       .hides_prompt = hides_prompt,
                                       .spec = a->config.spec};
    a->hang = hang_watch_new(a->loop, &config, &ops, a);
}

void agent_hang_start(struct agent *a, struct generation g) {
    hang_watch_start(a->hang, g, member_form(rdzv_client_member(a->client)));
}
