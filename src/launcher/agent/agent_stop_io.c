/* How this node's workers are stopped: at once, or after what they do was looked at, because one
 * has failed while others waited, and the leader has asked for that (rdzv_ask.holds). Of a
 * job that hangs, the suspects get SIGABRT first: a Python program writes all its stacks then. */
#include <signal.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/agent/agent_priv.h"

/* Python needs about 0.1 s for its stacks. A worker that handles SIGABRT itself, or that can't be
 * ended now, costs this time. */
#define ENDS_MAX_NS (5 * NS_PER_S)
#define ENDS_LOOK_NS (10 * NS_PER_MS)

/* ---- the store ---- */

/* The store of a leader is at its own door, which must lead to no port of this agent. */
void agent_open_door(struct agent *a, const struct form *form) {
    struct addr store;
    bool elsewhere = !agent_leads(a) || a->config.spec->workers_store;
    bool known = form != NULL && elsewhere &&
                 addr_from_literal(form->store_host, form->store_port, &store) == 0;
    store_door_pass(a->door, known ? &store : NULL,
                    agent_is_authenticated(a) && a->config.spec->store_check != STORE_CHECK_NONE);
}

/* ---- the wait ---- */

/* Not if this node was told to end. (The leader may not be sure of the failure yet.) */
static bool must_wait(const struct agent *a, const struct desired *cause) {
    return !agent_life_ends(&a->life) && cause != NULL && cause->kind == DESIRED_STOP &&
           local_workers_has_workers(a->local_workers) &&
           (a->stop.end_ns != 0 || hang_watch_holds(a->hang) || hang_watch_suspects(a->hang) > 0);
}

/* Who ends meanwhile counts as stopped: it lost the rank that has failed. */
static void begin_to_wait(struct agent *a) {
    if (a->stop.end_ns != 0)
        return;
    a->stop.end_ns = TIME_NEVER;
    local_workers_hold(a->local_workers, SIGABRT); /* also what C++ ends with */
    local_workers_hold(a->local_workers, SIGTERM);
    if (!hang_watch_holds(a->hang))
        agent_stop_gathered(a);
}

bool agent_stop_wait_no_more(struct agent *a) {
    bool waited = a->stop.end_ns != 0;
    a->stop.end_ns = 0;
    loop_timer_set(a->stop.timer, TIME_NEVER);
    if (waited)
        local_workers_release(a->local_workers, 0);
    return waited;
}

void agent_stop_on(struct agent *a) {
    int signo = a->life.signo;
    local_workers_stop(a->local_workers, signo != 0 ? signo : SIGTERM, a->stop.grace_ns);
}

static void on_timer(void *arg) {
    struct agent *a = arg;
    uint64_t now = clock_now_ns();
    hang_watch_end_suspects(a->hang);
    if (hang_watch_suspects(a->hang) > 0 && now < a->stop.end_ns)
        loop_timer_set(a->stop.timer, now + ENDS_LOOK_NS);
    else if (agent_stop_wait_no_more(a))
        agent_stop_on(a);
}

void agent_stop_gathered(void *arg) {
    struct agent *a = arg;
    if (a->stop.end_ns == 0)
        return;
    a->stop.end_ns = clock_now_ns() + ENDS_MAX_NS;
    on_timer(a);
}

void agent_hold(void *arg) {
    struct agent *a = arg;
    guardian_hold(a->config.link);
    loop_timer_set(a->stop.hold_timer, clock_now_ns() + GUARDIAN_REPEAT_NS);
}

void agent_stop_begin(struct agent *a) {
    a->stop.timer = loop_timer_new(a->loop, on_timer, a);
    a->stop.hold_timer = loop_timer_new(a->loop, agent_hold, a);
}

void agent_stop_free(struct agent *a) {
    loop_timer_free(a->stop.timer);
    loop_timer_free(a->stop.hold_timer);
}

/* ---- requests of the rendezvous ---- */

/* Then there is nothing to stop: what workers have left is ended anyway, or it is to live on. */
static bool has_succeeded(const struct agent *a, const struct desired *cause) {
    return cause != NULL && cause->kind == DESIRED_CLOSED && cause->outcome == OUTCOME_SUCCESS &&
           local_workers_workers_alive(a->local_workers) == 0;
}

static void all_gone(struct agent *a) {
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    agent_check(a);
}

void agent_stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause) {
    struct agent *a = arg;
    bool has_workers = local_workers_has_workers(a->local_workers);
    hang_watch_stop(a->hang);
    agent_open_door(a, NULL);
    preflight_cancel(a->preflight);
    agent_show_stop(a, reason, cause);
    a->stop.grace_ns = grace_ns;
    if (must_wait(a, cause)) {
        begin_to_wait(a);
        return;
    }
    (void)agent_stop_wait_no_more(a);
    if (a->life.signo == 0 && cause != NULL && !cause->has_failure && !has_succeeded(a, cause))
        agent_ends_await_own(a, cause->will_restart);
    if (!has_succeeded(a, cause))
        agent_stop_on(a);
    if (!has_workers)
        all_gone(a);
}

void agent_resume(void *arg, uint64_t paused_ns) {
    struct agent *a = arg;
    agent_hold_no_more(a);
    guardian_resume(a->config.link);
    log_notice("this node was paused for %.1f s; its workers continue",
               (double)paused_ns / (double)NS_PER_S);
}

void agent_hold_no_more(struct agent *a) { loop_timer_set(a->stop.hold_timer, TIME_NEVER); }

void agent_fence(void *arg) {
    struct agent *a = arg;
    agent_hold_no_more(a);
    hang_watch_stop(a->hang);
    agent_open_door(a, NULL);
    preflight_cancel(a->preflight);
    log_warning("no message from the leader within the lease: the workers of this node are killed");
    bool has_workers = local_workers_has_workers(a->local_workers);
    (void)agent_stop_wait_no_more(a);
    local_workers_kill(a->local_workers);
    if (!has_workers)
        all_gone(a);
}
