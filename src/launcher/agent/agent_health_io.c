/* Whether this node is fit. Its checks run before it joins, and after one of its workers failed or
 * was blamed for a hang: then the report that all workers are gone waits for them, so the leader
 * knows the verdict when it forms the next group. A group that runs is never stopped for it.
 *
 * Of the GPUs a child receives Xids while workers run, and NVML is asked when one of them has
 * failed. Nothing happens if the child ends or hangs. */
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
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

/* Sends what waited for the checks. */
static void continue_with(struct agent *a) {
    enum agent_health_state was = a->health.state;
    a->health.state = AGENT_HEALTH_RESTS;
    if (was == AGENT_HEALTH_HOLDS_JOIN && a->life.state < LIFE_LINGERING)
        agent_begin_to_join(a);
    if (was != AGENT_HEALTH_GONE)
        return;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    agent_check(a);
}

/* A source begins to check: then it must report what it found. */
static void await_verdict(struct agent *a, enum health_source source) {
    a->health.awaited |= 1u << source;
}

/* NULL: it found nothing out, and its last verdict remains. It may also come unasked. */
static void found(struct agent *a, enum health_source source,
                  const struct health_verdict *verdict) {
    a->health.awaited &= ~(1u << source);
    if (verdict != NULL)
        a->health.verdicts[source] = *verdict;
    if (a->client != NULL)
        agent_health_report(a);
    if (a->health.awaited == 0 && a->health.state != AGENT_HEALTH_BLAMED)
        continue_with(a);
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
    log_line(gpu_health_add(&a->gpus.health, x) ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
             "Xid %u on %s%s", x->xid, name, meanings[xid_class(x->xid)]);
}

static void on_xids(void *arg, const char *data, size_t len) {
    struct agent *a = arg;
    struct nvml_xid x;
    for (; len - a->gpus.taken >= sizeof x; a->gpus.taken += sizeof x) {
        memcpy(&x, data + a->gpus.taken, sizeof x);
        take_xid(a, &x);
    }
}

static void on_watch_ended(void *arg, const struct helper_answer *answer) {
    struct agent *a = arg;
    a->gpus.watch = NULL;
    log_debug("no more Xids are received");
}

/* ---- the GPUs after a failure ---- */

static void on_gpus_checked(void *arg) {
    struct agent *a = arg;
    struct node_discovery *check = TAKE_PTR(a->gpus.check);
    const struct discovery_nvml *nvml = check != NULL ? node_discovery_nvml(check) : NULL;
    struct health_verdict v;
    gpu_health_judge(&a->gpus.health, nvml != NULL ? &nvml->report : NULL, visible_gpus(a), &v);
    node_discovery_free(check);
    found(a, HEALTH_OF_GPUS, &v);
}

static void ask_gpus(void *arg) {
    struct agent *a = arg;
    struct node_discovery_config config = {
        .what = DISCOVER_NVML, .nvml = true, .in_background = true};
    loop_timer_set(a->gpus.timer, TIME_NEVER);
    if (a->gpus.check != NULL)
        return;
    a->gpus.health.asked_ns = clock_now_ns();
    if (node_discovery_new(a->loop, &config, &a->gpus.check, NULL) == 0)
        node_discovery_wait(a->gpus.check, on_gpus_checked, a);
    else
        on_gpus_checked(a);
}

static void gpus_failed(struct agent *a) {
    struct gpu_health *h = &a->gpus.health;
    if (a->gpus.timer == NULL)
        return;
    h->failed_ns = clock_now_ns();
    if (gpu_health_has_newer(h, 0))
        ask_gpus(a);
    else
        loop_timer_set(a->gpus.timer, h->failed_ns + ASK_AFTER_NS);
}

/* Without such an Xid the next group does not wait for NVML: its answer can still come. It waits if
 * an earlier verdict would be wrong about this failure. */
static void gpus_stopped(struct agent *a) {
    const struct gpu_health *h = &a->gpus.health;
    bool was_sick = a->health.verdicts[HEALTH_OF_GPUS].sick[0] != '\0';
    bool asked = h->asked_ns >= h->failed_ns;
    if (a->gpus.timer == NULL)
        return;
    if (gpu_health_has_newer(h, h->asked_ns) || (was_sick && !asked))
        ask_gpus(a);
    if (a->gpus.check != NULL && (gpu_health_has_newer(h, 0) || was_sick))
        await_verdict(a, HEALTH_OF_GPUS);
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
    a->gpus.timer = loop_timer_new(a->loop, ask_gpus, a);
    if (helper_call_new(a->loop, &config, on_watch_ended, a, &a->gpus.watch) < 0)
        log_info("no Xids are received: no process could be started");
}

/* ---- --health-check ---- */

static void on_checked(void *arg, enum health_result result, const char *text) {
    struct agent *a = arg;
    struct health_verdict v = {.gpu = -1};
    a->health.check = NULL;
    switch (result) {
    case HEALTH_FIT: break;
    case HEALTH_NOT_FIT:
        (void)snprintf(v.sick, sizeof v.sick, "%s", text);
        log_warning("--health-check: this node is not fit: %s", text);
        break;
    case HEALTH_NOT_KNOWN:
        log_line((a->logged & AGENT_LOGGED_HEALTH) != 0 ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
                 "--health-check: %s; whether this node is fit is not known, so %s", text,
                 a->health.verdicts[HEALTH_OF_CHECK].sick[0] == '\0' ? "it takes part"
                                                                     : "the last result counts");
        a->logged |= AGENT_LOGGED_HEALTH;
        found(a, HEALTH_OF_CHECK, NULL);
        return;
    }
    found(a, HEALTH_OF_CHECK, &v);
}

static void start_check(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct health_check_config config = {.command = spec->health_check,
                                         .envp = a->config.envp,
                                         .after_failure = a->health.state != AGENT_HEALTH_JOINS,
                                         .timeout_ns = spec->health_timeout_ns,
                                         .nofile_soft = a->nofile_soft};
    struct err err = {0};
    if (spec->health_check == NULL || a->health.check != NULL)
        return;
    await_verdict(a, HEALTH_OF_CHECK);
    if (health_check_new(a->loop, a->reaper, &config, on_checked, a, &a->health.check, &err) < 0)
        on_checked(a, HEALTH_NOT_KNOWN, err.text);
}

/* ---- when ---- */

void agent_health_begin(struct agent *a) {
    a->health.state = AGENT_HEALTH_JOINS;
    start_check(a);
    if (a->health.awaited == 0)
        a->health.state = AGENT_HEALTH_RESTS;
}

bool agent_health_holds_join(struct agent *a) {
    if (a->health.state == AGENT_HEALTH_JOINS)
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
        a->health.state = AGENT_HEALTH_GONE;
        start_check(a);
    }
    if (a->health.state == AGENT_HEALTH_GONE && awaited && a->health.awaited != 0)
        return true;
    a->health.state = AGENT_HEALTH_RESTS;
    return false;
}

void agent_health_free(struct agent *a) {
    health_check_free(TAKE_PTR(a->health.check));
    loop_timer_free(a->gpus.timer);
    helper_call_free(TAKE_PTR(a->gpus.watch));
    node_discovery_free(TAKE_PTR(a->gpus.check));
}
