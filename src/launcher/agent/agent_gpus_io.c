/* Whether the GPUs of this node are fit: a child receives Xids while workers run, and NVML is asked
 * when one of them has failed. Nothing happens if the child ends or hangs. */
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/agent/agent_priv.h"
#include "topology/discover/nvml/nvml_io.h"
#include "watchdog/look/xid.h"

/* If there was no Xid, NVML is asked so much later: then a quick restart is over. */
#define ASK_AFTER_NS (100 * NS_PER_MS)
#define XIDS_MAX_BYTES ((size_t)1 << 20) /* 40,000 Xids; then no more are received */

static const char *visible_gpus(const struct agent *a) {
    return job_worker_value(a->config.spec, a->config.envp, "CUDA_VISIBLE_DEVICES");
}

/* ---- Xids ---- */

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

/* ---- after a failure ---- */

static void on_checked(void *arg) {
    struct agent *a = arg;
    struct node_discovery *check = TAKE_PTR(a->gpus.check);
    const struct discovery_nvml *nvml = check != NULL ? node_discovery_nvml(check) : NULL;
    struct health_verdict v;
    gpu_health_judge(&a->gpus.health, nvml != NULL ? &nvml->report : NULL, visible_gpus(a), &v);
    node_discovery_free(check);
    agent_health_found(a, HEALTH_OF_GPUS, &v);
}

static void ask(void *arg) {
    struct agent *a = arg;
    struct node_discovery_config config = {
        .what = DISCOVER_NVML, .nvml = true, .in_background = true};
    loop_timer_set(a->gpus.timer, TIME_NEVER);
    if (a->gpus.check != NULL)
        return;
    a->gpus.health.asked_ns = clock_now_ns();
    if (node_discovery_new(a->loop, &config, &a->gpus.check, NULL) == 0)
        node_discovery_wait(a->gpus.check, on_checked, a);
    else
        on_checked(a);
}

void agent_gpus_failed(struct agent *a) {
    struct gpu_health *h = &a->gpus.health;
    if (a->gpus.timer == NULL)
        return;
    h->failed_ns = clock_now_ns();
    if (gpu_health_has_newer(h, 0))
        ask(a);
    else
        loop_timer_set(a->gpus.timer, h->failed_ns + ASK_AFTER_NS);
}

/* Without such an Xid the next group does not wait for NVML: its answer can still come. It waits if
 * an earlier verdict would be wrong about this failure. */
void agent_gpus_stopped(struct agent *a) {
    const struct gpu_health *h = &a->gpus.health;
    bool was_sick = a->health.verdicts[HEALTH_OF_GPUS].sick[0] != '\0';
    bool asked = h->asked_ns >= h->failed_ns;
    if (a->gpus.timer == NULL)
        return;
    if (gpu_health_has_newer(h, h->asked_ns) || (was_sick && !asked))
        ask(a);
    if (a->gpus.check != NULL && (gpu_health_has_newer(h, 0) || was_sick))
        agent_health_await(a, HEALTH_OF_GPUS);
}

/* ---- life ---- */

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
    a->gpus.timer = loop_timer_new(a->loop, ask, a);
    if (helper_call_new(a->loop, &config, on_watch_ended, a, &a->gpus.watch) < 0)
        log_info("no Xids are received: no process could be started");
}

void agent_gpus_free(struct agent *a) {
    loop_timer_free(a->gpus.timer);
    helper_call_free(TAKE_PTR(a->gpus.watch));
    node_discovery_free(TAKE_PTR(a->gpus.check));
}
