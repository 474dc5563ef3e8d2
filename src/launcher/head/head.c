#include "launcher/head/head.h"

#include <signal.h>

#define SIGNAL_STATUS 128 /* as in a shell: 128 and the signal's number */

void head_init(struct head *h, const struct head_config *config) {
    *h = (struct head){.config = *config, .state = HEAD_STARTING, .deadline_ns = TIME_NEVER};
}

const char *head_state_name(enum head_state s) {
    switch (s) {
    case HEAD_STARTING: return "starting";
    case HEAD_RUNNING: return "running";
    case HEAD_STOPPING: return "stopping";
    case HEAD_DECIDED: return "decided";
    case HEAD_OVER: return "over";
    }
    assert_not_reached();
}

static struct head_effect *add(struct head_update *u, enum head_effect_kind kind) {
    assert(u->n_effects < HEAD_EFFECTS_MAX);
    struct head_effect *e = &u->effects[u->n_effects++];
    *e = (struct head_effect){.kind = kind};
    return e;
}

/* ---- the end ---- */

static int exit_status(const struct head *h) {
    if (h->has_verdict)
        return h->signo != 0 && h->verdict.status != 0 ? SIGNAL_STATUS + h->signo
                                                       : (int)h->verdict.status;
    if (h->signo != 0)
        return SIGNAL_STATUS + h->signo;
    if (h->has_led || !h->srun_ended)
        return HEAD_EXIT_LOST;
    return h->srun_signalled ? SIGNAL_STATUS + h->srun_code : h->srun_code;
}

/* Nothing is asked for a job that has succeeded, or that its user has ended. */
static void ask_to_requeue(struct head *h, struct head_update *u) {
    int status = exit_status(h);
    if (!h->config.requeues || h->requeue != HEAD_UNASKED || !h->has_led || status == 0 ||
        h->signo == SIGINT)
        return;
    h->requeue = HEAD_ASKING;
    add(u, HEAD_EFFECT_REQUEUE)->status = status;
}

static void end(struct head *h, struct head_update *u) {
    h->deadline_ns = TIME_NEVER;
    ask_to_requeue(h, u);
    h->end_waits = h->requeue == HEAD_ASKING;
    if (h->end_waits)
        return;
    h->state = HEAD_OVER;
    add(u, HEAD_EFFECT_END)->status = h->requeue == HEAD_ASKED ? h->asked_status : exit_status(h);
}

/* ---- stopping ---- */

static void tell_leader(const struct head *h, struct head_update *u) {
    struct head_effect *e = add(u, HEAD_EFFECT_STOP);
    e->link = h->link;
    e->signo = h->signo != 0 ? h->signo : SIGTERM;
}

/* With --disable-status srun passes one SIGINT on to every task, whose agents end the job in order.
 * On SIGTERM, SIGHUP and SIGQUIT it kills the step at once (seen with Slurm 22.05; srun(1), -X). */
static void terminate(struct head *h, struct head_update *u) {
    h->pressure = HEAD_TERMINATED;
    if (!h->srun_ended)
        add(u, HEAD_EFFECT_SIGNAL)->signo = SIGINT;
}

static void kill_step(struct head *h, uint64_t now_ns, struct head_update *u) {
    h->pressure = HEAD_KILLED;
    h->deadline_ns = now_ns + HEAD_KILLED_NS;
    add(u, HEAD_EFFECT_KILL_STEP);
}

static void stop(struct head *h, uint64_t now_ns, struct head_update *u) {
    h->state = HEAD_STOPPING;
    h->deadline_ns = now_ns + h->config.grace_ns + HEAD_MORE_NS;
    if (h->link != 0)
        tell_leader(h, u);
    else
        terminate(h, u);
}

/* ---- events ---- */

static void on_signal(struct head *h, const struct head_event *e, struct head_update *u) {
    if (!e->ends) {
        if (!h->srun_ended && h->state != HEAD_DECIDED)
            add(u, HEAD_EFFECT_SIGNAL)->signo = e->signo;
        return;
    }
    if (h->signo != 0) { /* as the agent: a repeated SIGTERM means the same, a second ^C more */
        if (e->signo == SIGINT && h->pressure != HEAD_KILLED)
            kill_step(h, e->now_ns, u);
        return;
    }
    h->signo = e->signo;
    if (h->state == HEAD_STARTING || h->state == HEAD_RUNNING)
        stop(h, e->now_ns, u);
}

static void on_leader(struct head *h, const struct head_event *e, struct head_update *u) {
    h->link = e->link;
    h->has_led = true;
    if (h->state == HEAD_STARTING)
        h->state = HEAD_RUNNING;
    else if (h->state == HEAD_STOPPING)
        tell_leader(h, u);
}

static void on_leader_gone(struct head *h, const struct head_event *e, struct head_update *u) {
    if (e->link != h->link)
        return;
    h->link = 0;
    if (h->srun_ended)
        end(h, u);
    else if (h->state == HEAD_STOPPING && h->pressure == HEAD_CALM)
        terminate(h, u);
}

static void on_verdict(struct head *h, const struct head_event *e, struct head_update *u) {
    add(u, HEAD_EFFECT_ACK)->link = e->link;
    if (h->has_verdict)
        return;
    h->has_verdict = true;
    h->verdict = e->verdict;
    h->safe = h->safe || e->verdict.safe;
    h->state = HEAD_DECIDED;
    if (h->pressure != HEAD_KILLED)
        h->deadline_ns =
            h->verdict.lost > 0 || h->signo != 0 ? e->now_ns + HEAD_LINGER_NS : TIME_NEVER;
    if (h->srun_ended)
        end(h, u);
    else
        ask_to_requeue(h, u);
}

static void on_requeued(struct head *h, const struct head_event *e, struct head_update *u) {
    if (h->requeue != HEAD_ASKING)
        return;
    h->requeue = HEAD_ASKED;
    h->asked_status = e->code;
    if (h->end_waits)
        end(h, u);
}

/* srun ends after all tasks have ended, and so after the verdict; or somebody has killed it. Then
 * nothing but the connection leads to the agents. */
static void on_srun_ended(struct head *h, const struct head_event *e, struct head_update *u) {
    h->srun_ended = true;
    h->srun_signalled = e->signalled;
    h->srun_code = e->code;
    if (h->has_verdict || h->link == 0)
        end(h, u);
    else if (h->state != HEAD_STOPPING)
        stop(h, e->now_ns, u);
}

static void on_time(struct head *h, const struct head_event *e, struct head_update *u) {
    if (e->now_ns < h->deadline_ns)
        return;
    if (h->pressure == HEAD_KILLED) {
        end(h, u);
    } else if (h->state == HEAD_DECIDED && h->pressure == HEAD_CALM) {
        terminate(h, u);
        h->deadline_ns = e->now_ns + HEAD_LINGER_NS;
    } else {
        kill_step(h, e->now_ns, u);
    }
}

void head_step(struct head *h, const struct head_event *e, struct head_update *ret) {
    ret->n_effects = 0;
    if (h->state != HEAD_OVER) {
        switch (e->kind) {
        case HEAD_EVENT_LEADER: on_leader(h, e, ret); break;
        case HEAD_EVENT_LEADER_GONE: on_leader_gone(h, e, ret); break;
        case HEAD_EVENT_VERDICT: on_verdict(h, e, ret); break;
        case HEAD_EVENT_SIGNAL: on_signal(h, e, ret); break;
        case HEAD_EVENT_SRUN_ENDED: on_srun_ended(h, e, ret); break;
        case HEAD_EVENT_SAFE: h->safe = true; break;
        case HEAD_EVENT_REQUEUED: on_requeued(h, e, ret); break;
        case HEAD_EVENT_TIME: on_time(h, e, ret); break;
        }
    }
    ret->deadline_ns = h->deadline_ns;
}
