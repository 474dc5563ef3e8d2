/* Whether this node is fit. Its checks run before it joins, and after one of its workers failed or
 * was blamed for a hang: then the report that all workers are gone waits for them, so the leader
 * knows the verdict when it forms the next group. A group that runs is never stopped for it. */
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/node/health_check_io.h"

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

void agent_health_await(struct agent *a, enum health_source source) {
    a->health.awaited |= 1u << source;
}

void agent_health_found(struct agent *a, enum health_source source,
                        const struct health_verdict *verdict) {
    a->health.awaited &= ~(1u << source);
    if (verdict != NULL)
        a->health.verdicts[source] = *verdict;
    if (a->client != NULL)
        agent_health_report(a);
    if (a->health.awaited == 0 && a->health.state != AGENT_HEALTH_BLAMED)
        continue_with(a);
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
        agent_health_found(a, HEALTH_OF_CHECK, NULL);
        return;
    }
    agent_health_found(a, HEALTH_OF_CHECK, &v);
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
    agent_health_await(a, HEALTH_OF_CHECK);
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
    agent_gpus_failed(a);
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
        agent_gpus_stopped(a);
        a->health.state = AGENT_HEALTH_GONE;
        start_check(a);
    }
    if (a->health.state == AGENT_HEALTH_GONE && awaited && a->health.awaited != 0)
        return true;
    a->health.state = AGENT_HEALTH_RESTS;
    return false;
}

void agent_health_free(struct agent *a) { health_check_free(TAKE_PTR(a->health.check)); }
