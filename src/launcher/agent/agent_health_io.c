/* Whether this node is fit: checks before it joins, and after one of its workers failed or was
 * blamed for a hang. Then the report that all workers are gone waits for them, so the leader knows
 * the verdict when it forms the next group. A running group is never stopped for it. */
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "launcher/agent/agent_priv.h"
#include "topology/discover/nvml/nvml_io.h"

/* If there was no Xid, NVML is asked so much later: then a quick restart is over. */
#define ASK_AFTER_NS (100 * NS_PER_MS)
#define XIDS_MAX_BYTES ((size_t)1 << 20) /* 40,000 Xids; then no more are received */

static_assert(HEALTH_TEXT_MAX == RDZV_SICK_MAX, "the reason fits into the report");

/* ---- the verdict ---- */

void agent_health_report(struct agent *a) {
    const struct health_verdict *v = a->health.verdicts;
    while (v < &a->health.verdicts[HEALTH_SOURCES - 1] && v->sick[0] == '\0')
        v++;
    const struct report *report = member_report(rdzv_client_member(a->client));
    bool sick = v->sick[0] != '\0';
    if (!sick && report->sick[0] == '\0')
        return;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_HEALTH,
                                                        .sick = v->sick,
                                                        .xid = sick ? v->xid : 0,
                                                        .gpu = sick ? v->gpu : -1});
}

static bool is_checking(const struct agent *a) {
    return a->health.check != NULL || (a->health.awaits_gpus && a->health.ask != NULL);
}

/* A check has ended: reports the verdict, and does what waited for it. */
static void go_on(struct agent *a) {
    enum agent_health_state was = a->health.state;
    if (a->client != NULL)
        agent_health_report(a);
    if (is_checking(a) || was == AGENT_HEALTH_BLAMED)
        return;
    a->health.state = AGENT_HEALTH_RESTS;
    if (was == AGENT_HEALTH_HOLDS_JOIN && a->life.state < LIFE_LINGERING)
        agent_begin_to_join(a);
    if (was != AGENT_HEALTH_GONE)
        return;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    agent_check(a);
}

/* ---- the GPUs: Xids ---- */

static const char *visible_gpus(const struct agent *a) {
    return job_worker_value(a->config.spec, a->config.envp, "CUDA_VISIBLE_DEVICES");
}

static void take_xid(struct agent *a, const struct nvml_xid *x) {
    static const char *const meanings[] = {
        [XID_NOTHING] = "",
        [XID_PROGRAM] = ": an error of the program that runs on it",
        [XID_SUSPECT] = ": perhaps a fault of the GPU",
        [XID_FATAL] = ": the GPU needs a reset, or the node a reboot"};
    char name[GPU_NAME_MAX];
    gpu_name(x->gpu, x->at, name);
    log_line(gpu_health_add(&a->health.gpus, x) ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
             "Xid %u on %s%s", x->xid, name, meanings[xid_class(x->xid)]);
}

static void on_xids(void *arg, const char *data, size_t len) {
    struct agent *a = arg;
    struct nvml_xid x;
    for (; len - a->health.taken >= sizeof x; a->health.taken += sizeof x) {
        memcpy(&x, data + a->health.taken, sizeof x);
        take_xid(a, &x);
    }
}

static void on_watch_ended(void *arg, const struct helper_answer *answer) {
    struct agent *a = arg;
    a->health.xids = NULL;
}

/* ---- the GPUs after a failure ---- */

static void on_gpus_checked(void *arg) {
    struct agent *a = arg;
    struct node_discovery *check = TAKE_PTR(a->health.ask);
    const struct discovery_nvml *nvml = node_discovery_found(check)->nvml;
    gpu_health_judge(&a->health.gpus, nvml != NULL ? &nvml->report : NULL, visible_gpus(a),
                     &a->health.verdicts[HEALTH_OF_GPUS]);
    node_discovery_free(check);
    go_on(a);
}

static void ask_gpus(void *arg) {
    struct agent *a = arg;
    struct node_discovery_config config = {
        .what = DISCOVER_NVML, .nvml = true, .in_background = true};
    loop_timer_set(a->health.timer, TIME_NEVER);
    if (a->health.ask != NULL)
        return;
    a->health.gpus.asked_ns = clock_now_ns();
    if (node_discovery_new(a->loop, &config, &a->health.ask, NULL) == 0)
        node_discovery_wait(a->health.ask, on_gpus_checked, a);
    else
        on_gpus_checked(a);
}

static void gpus_failed(struct agent *a) {
    struct gpu_health *h = &a->health.gpus;
    if (a->health.timer == NULL)
        return;
    h->failed_ns = clock_now_ns();
    if (gpu_health_has_newer(h, 0))
        ask_gpus(a);
    else
        loop_timer_set(a->health.timer, h->failed_ns + ASK_AFTER_NS);
}

/* The next group waits for NVML only after such an Xid, or if an old verdict may be wrong now. */
static void gpus_stopped(struct agent *a) {
    const struct gpu_health *h = &a->health.gpus;
    a->health.awaits_gpus =
        a->health.timer != NULL &&
        (a->health.verdicts[HEALTH_OF_GPUS].sick[0] != '\0' || gpu_health_has_newer(h, 0));
    if (a->health.awaits_gpus &&
        (h->asked_ns < h->failed_ns || gpu_health_has_newer(h, h->asked_ns)))
        ask_gpus(a);
}

void agent_gpus_begin(struct agent *a) {
    const char *visible = visible_gpus(a);
    struct helper_call_config config = {.name = "muster-xid",
                                        .run = nvml_send_xids,
                                        .arg = &visible,
                                        .timeout_ns = TIME_NEVER / 2,
                                        .max_bytes = XIDS_MAX_BYTES,
                                        .on_more = on_xids};
    if (a->config.spec->preflight == JOB_PREFLIGHT_OFF || !nvml_may_answer())
        return;
    a->health.timer = loop_timer_new(a->loop, ask_gpus, a);
    if (helper_call_new(a->loop, &config, on_watch_ended, a, &a->health.xids) < 0)
        log_info("no Xids are received: no process could be started");
}

/* ---- --health-check ---- */

static void on_checked(void *arg, enum health_result result, const char *text) {
    struct agent *a = arg;
    struct health_verdict *v = &a->health.verdicts[HEALTH_OF_CHECK];
    a->health.check = NULL;
    if (result != HEALTH_NOT_KNOWN)
        *v = (struct health_verdict){.gpu = -1};
    switch (result) {
    case HEALTH_FIT: break;
    case HEALTH_NOT_FIT:
        (void)snprintf(v->sick, sizeof v->sick, "%s", text);
        log_warning("--health-check: this node is not fit: %s", text);
        break;
    case HEALTH_NOT_KNOWN:
        log_line((a->logged & AGENT_LOGGED_HEALTH) != 0 ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
                 "--health-check: %s; whether this node is fit is not known, so %s", text,
                 v->sick[0] == '\0' ? "it takes part" : "the last result counts");
        a->logged |= AGENT_LOGGED_HEALTH;
        break;
    }
    go_on(a);
}

void agent_health_begin(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct health_check_config config = {.command = spec->health_check,
                                         .envp = a->config.envp,
                                         .after_failure = a->client != NULL,
                                         .timeout_ns = spec->health_timeout_ns,
                                         .nofile_soft = a->nofile_soft};
    struct err err = {0};
    if (spec->health_check == NULL || a->health.check != NULL)
        return;
    if (health_check_new(a->loop, a->reaper, &config, on_checked, a, &a->health.check, &err) < 0)
        on_checked(a, HEALTH_NOT_KNOWN, err.text);
}

/* ---- when ---- */

bool agent_health_holds_join(struct agent *a) {
    if (is_checking(a))
        a->health.state = AGENT_HEALTH_HOLDS_JOIN;
    return a->health.state == AGENT_HEALTH_HOLDS_JOIN;
}

void agent_health_blame(struct agent *a) {
    if (a->health.state != AGENT_HEALTH_RESTS || !member_has_workers(rdzv_client_member(a->client)))
        return;
    a->health.state = AGENT_HEALTH_BLAMED;
    gpus_failed(a);
}

/* A leader waits for this node's report, and may start the job again. */
static bool is_awaited(const struct agent *a) {
    const struct member *m = rdzv_client_member(a->client);
    const struct desired *stop = member_stop_cause(m);
    struct rdzv_peer leader;
    uint32_t epoch;
    bool in_doubt = stop != NULL && !stop->has_failure && stop->reason[0] == '\0';
    return member_has_workers(m) && !agent_life_ends(&a->life) &&
           member_end(m)->kind == MEMBER_END_NONE && member_lease_end(m) > clock_now_ns() &&
           rdzv_client_leader(a->client, &epoch, &leader) &&
           (stop == NULL || stop->will_restart || in_doubt);
}

bool agent_health_holds_gone(struct agent *a) {
    bool awaited = is_awaited(a);
    if (a->health.state == AGENT_HEALTH_BLAMED && awaited) {
        gpus_stopped(a);
        agent_health_begin(a);
        a->health.state = AGENT_HEALTH_GONE;
    }
    if (a->health.state == AGENT_HEALTH_GONE && awaited && is_checking(a))
        return true;
    a->health.state = AGENT_HEALTH_RESTS;
    return false;
}

void agent_health_free(struct agent *a) {
    health_check_free(TAKE_PTR(a->health.check));
    loop_timer_free(a->health.timer);
    helper_call_free(TAKE_PTR(a->health.xids));
    node_discovery_free(TAKE_PTR(a->health.ask));
}
