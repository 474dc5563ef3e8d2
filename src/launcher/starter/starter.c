#include "launcher/starter/starter.h"

#include <signal.h>

#define SIGNAL_STATUS 128 /* as in a shell: 128 and the signal's number */

void starter_init(struct starter *h, const struct starter_config *config) {
    *h = (struct starter){.config = *config, .state = STARTER_STARTING, .deadline_ns = TIME_NEVER};
}

static struct starter_effect *add(struct starter_update *u, enum starter_effect_kind kind) {
    assert(u->n_effects < STARTER_EFFECTS_MAX);
    struct starter_effect *e = &u->effects[u->n_effects++];
    *e = (struct starter_effect){.kind = kind};
    return e;
}

/* ---- the end ---- */

static int exit_status(const struct starter *h) {
    if (h->has_verdict)
        return h->signo != 0 && h->verdict.status != 0 ? SIGNAL_STATUS + h->signo
                                                       : (int)h->verdict.status;
    if (h->signo != 0)
        return SIGNAL_STATUS + h->signo;
    if (h->has_led || !h->ended)
        return STARTER_EXIT_LOST;
    return h->end_signalled ? SIGNAL_STATUS + h->end_code : h->end_code;
}

/* Nothing is asked for a job that has succeeded, or that its user has ended. */
static void ask_to_requeue(struct starter *h, struct starter_update *u) {
    int status = exit_status(h);
    if (!h->config.requeues || h->requeue != STARTER_UNASKED || !h->has_led || status == 0 ||
        h->signo == SIGINT)
        return;
    h->requeue = STARTER_ASKING;
    add(u, STARTER_EFFECT_REQUEUE)->status = status;
}

static void end(struct starter *h, struct starter_update *u) {
    h->deadline_ns = TIME_NEVER;
    ask_to_requeue(h, u);
    h->end_waits = h->requeue == STARTER_ASKING;
    if (h->end_waits)
        return;
    h->state = STARTER_OVER;
    add(u, STARTER_EFFECT_END)->status =
        h->requeue == STARTER_ASKED ? h->asked_status : exit_status(h);
}

/* ---- stopping ---- */

/* link 0: all agents. */
static void send_stop(const struct starter *h, uint64_t link, struct starter_update *u) {
    struct starter_effect *e = add(u, STARTER_EFFECT_STOP);
    e->link = link;
    e->signo = h->signo != 0 ? h->signo : SIGTERM;
}

static void terminate(struct starter *h, struct starter_update *u) {
    h->pressure = STARTER_TERMINATED;
    if (!h->ended)
        send_stop(h, 0, u);
}

static void kill_all(struct starter *h, uint64_t now_ns, struct starter_update *u) {
    h->pressure = STARTER_KILLED;
    h->deadline_ns = now_ns + STARTER_KILLED_NS;
    add(u, STARTER_EFFECT_KILL);
}

static void stop(struct starter *h, uint64_t now_ns, struct starter_update *u) {
    h->state = STARTER_STOPPING;
    h->deadline_ns = now_ns + h->config.grace_ns + STARTER_MORE_NS;
    if (h->link != 0)
        send_stop(h, h->link, u);
    else
        terminate(h, u);
}

/* ---- events ---- */

static void on_signal(struct starter *h, const struct starter_event *e, struct starter_update *u) {
    if (!e->ends) {
        if (!h->ended && h->state != STARTER_DECIDED)
            add(u, STARTER_EFFECT_SIGNAL)->signo = e->signo;
        return;
    }
    if (h->signo != 0) { /* as the agent: a repeated SIGTERM means the same, a second ^C more */
        if (e->signo == SIGINT && h->pressure != STARTER_KILLED)
            kill_all(h, e->now_ns, u);
        return;
    }
    h->signo = e->signo;
    if (h->state == STARTER_STARTING || h->state == STARTER_RUNNING)
        stop(h, e->now_ns, u);
}

static void on_leader(struct starter *h, const struct starter_event *e, struct starter_update *u) {
    h->link = e->link;
    h->has_led = true;
    if (h->state == STARTER_STARTING)
        h->state = STARTER_RUNNING;
    else if (h->state == STARTER_STOPPING)
        send_stop(h, h->link, u);
}

static void on_leader_gone(struct starter *h, const struct starter_event *e,
                           struct starter_update *u) {
    if (e->link != h->link)
        return;
    h->link = 0;
    if (h->ended)
        end(h, u);
    else if (h->state == STARTER_STOPPING && h->pressure == STARTER_CALM)
        terminate(h, u);
}

static void on_verdict(struct starter *h, const struct starter_event *e, struct starter_update *u) {
    add(u, STARTER_EFFECT_ACK)->link = e->link;
    if (h->has_verdict)
        return;
    h->has_verdict = true;
    h->verdict = e->verdict;
    h->safe = h->safe || e->verdict.safe;
    h->state = STARTER_DECIDED;
    if (h->pressure != STARTER_KILLED)
        h->deadline_ns =
            h->verdict.lost > 0 || h->signo != 0 ? e->now_ns + STARTER_LINGER_NS : TIME_NEVER;
    if (h->ended)
        end(h, u);
    else
        ask_to_requeue(h, u);
}

static void on_requeued(struct starter *h, const struct starter_event *e,
                        struct starter_update *u) {
    if (h->requeue != STARTER_ASKING)
        return;
    h->requeue = STARTER_ASKED;
    h->asked_status = e->code;
    if (h->end_waits)
        end(h, u);
}

/* What starts the agents ends after the verdict, or was killed: then only the link is left. */
static void on_all_ended(struct starter *h, const struct starter_event *e,
                         struct starter_update *u) {
    h->ended = true;
    h->end_signalled = e->signalled;
    h->end_code = e->code;
    if (h->has_verdict || h->link == 0)
        end(h, u);
    else if (h->state != STARTER_STOPPING)
        stop(h, e->now_ns, u);
}

static void on_time(struct starter *h, const struct starter_event *e, struct starter_update *u) {
    if (e->now_ns < h->deadline_ns)
        return;
    if (h->pressure == STARTER_KILLED) {
        end(h, u);
    } else if (h->state == STARTER_DECIDED && h->pressure == STARTER_CALM) {
        terminate(h, u);
        h->deadline_ns = e->now_ns + STARTER_LINGER_NS;
    } else {
        kill_all(h, e->now_ns, u);
    }
}

void starter_step(struct starter *h, const struct starter_event *e, struct starter_update *ret) {
    ret->n_effects = 0;
    if (h->state != STARTER_OVER) {
        switch (e->kind) {
        case STARTER_EVENT_LEADER: on_leader(h, e, ret); break;
        case STARTER_EVENT_LEADER_GONE: on_leader_gone(h, e, ret); break;
        case STARTER_EVENT_VERDICT: on_verdict(h, e, ret); break;
        case STARTER_EVENT_SIGNAL: on_signal(h, e, ret); break;
        case STARTER_EVENT_ENDED: on_all_ended(h, e, ret); break;
        case STARTER_EVENT_SAFE: h->safe = true; break;
        case STARTER_EVENT_REQUEUED: on_requeued(h, e, ret); break;
        case STARTER_EVENT_TIME: on_time(h, e, ret); break;
        }
    }
    ret->deadline_ns = h->deadline_ns;
}
