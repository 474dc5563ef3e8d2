#include "launcher/agent/agent_life.h"

#include <signal.h>

/* How long an agent that was interrupted twice takes to leave in order. A third ^C ends that. */
#define LEAVE_PATIENCE_NS (2 * NS_PER_S)

#define BIT(s) (1u << (s))
static const struct {
    const char *name;
    unsigned next;
} states[LIFE_STATE_COUNT] = {
    [LIFE_JOINING] = {"joining", BIT(LIFE_IN_GROUP) | BIT(LIFE_STOPPING) | BIT(LIFE_LINGERING)},
    [LIFE_IN_GROUP] = {"in the group",
                       BIT(LIFE_JOINING) | BIT(LIFE_STOPPING) | BIT(LIFE_LINGERING)},
    [LIFE_STOPPING] = {"stopping", BIT(LIFE_LINGERING)},
    [LIFE_LINGERING] = {"lingering", BIT(LIFE_OVER)},
    [LIFE_OVER] = {"over", 0},
};

const char *life_state_name(enum life_state s) { return states[s].name; }

bool life_may_move(enum life_state from, enum life_state to) {
    return (states[from].next & BIT(to)) != 0;
}

void agent_life_init(struct agent_life *l) {
    *l = (struct agent_life){
        .state = LIFE_JOINING,
        .awaits = LIFE_PROCESSES | LIFE_SERVES | LIFE_COMPARES | LIFE_ASKS,
        .deadline_ns = TIME_NEVER,
    };
}

static void move(struct agent_life *l, enum life_state to) {
    assert(life_may_move(l->state, to));
    l->state = to;
}

static void emit(struct life_update *u, enum life_effect effect) {
    assert(u->n_effects < LIFE_EFFECTS_MAX);
    u->effects[u->n_effects++] = effect;
}

static bool has(const struct life_event *e, unsigned facts) { return (e->facts & facts) == facts; }

static void follow_leader(struct agent_life *l, const struct life_event *e) {
    if (l->state == LIFE_JOINING && has(e, LIFE_HAS_LEADER))
        move(l, LIFE_IN_GROUP);
    else if (l->state == LIFE_IN_GROUP && !has(e, LIFE_HAS_LEADER))
        move(l, LIFE_JOINING);
}

/* ---- towards the end ---- */

/* Other nodes are informed of the end as before. */
static void linger(struct agent_life *l) {
    if (l->state < LIFE_LINGERING)
        move(l, LIFE_LINGERING);
}

static void linger_alone(struct agent_life *l) {
    l->awaits &= ~(unsigned)LIFE_SERVES;
    l->deadline_ns = TIME_NEVER;
    linger(l);
}

static void leave(struct agent_life *l, const struct life_event *e, struct life_update *u) {
    emit(u, LIFE_EFFECT_LEAVE);
    if (!has(e, LIFE_HAS_MEMBER))
        linger_alone(l);
}

/* The user who presses ^C does not want another attempt. */
static bool should_requeue(const struct agent_life *l, const struct life_event *e) {
    bool failed = l->end != MEMBER_END_SUCCESS && !agent_life_failed(l) &&
                  l->cause != LIFE_CAUSE_OPERATOR && l->signo != SIGINT;
    return failed && has(e, LIFE_MAY_REQUEUE);
}

static void end_if_possible(struct agent_life *l, const struct life_event *e,
                            struct life_update *u) {
    if (l->state != LIFE_LINGERING || (e->facts & l->awaits) != 0)
        return;
    if (should_requeue(l, e)) {
        emit(u, LIFE_EFFECT_REQUEUE); /* the answer is awaited as LIFE_ASKS */
        return;
    }
    move(l, LIFE_OVER);
    emit(u, LIFE_EFFECT_QUIT);
}

/* ---- signals ---- */

/* How the job ends is decided, and only what workers left is waited for. */
static bool awaits_leftovers(const struct agent_life *l, const struct life_event *e) {
    return (l->state >= LIFE_LINGERING || has(e, LIFE_JOB_CLOSES)) && !has(e, LIFE_WORKERS_RUN) &&
           has(e, LIFE_PROCESSES);
}

static void signal_for_leftovers(const struct agent_life *l, const struct life_event *e,
                                 struct life_update *u) {
    if (e->signo == SIGINT) {
        emit(u, LIFE_EFFECT_LOG_KILLS_LEFT);
        emit(u, LIFE_EFFECT_KILL);
        return;
    }
    if (l->signo == 0)
        emit(u, LIFE_EFFECT_LOG_AWAITS_LEFT);
    if (!has(e, LIFE_JOB_SUCCEEDS)) /* else it would end what --leave=detached keeps */
        emit(u, LIFE_EFFECT_PASS_ON);
}

static void on_first_signal(struct agent_life *l, const struct life_event *e,
                            struct life_update *u) {
    l->signo = e->signo;
    l->awaits &= ~(unsigned)LIFE_COMPARES;
    emit(u, LIFE_EFFECT_BEGIN);
    if (l->end == MEMBER_END_SUCCESS) {
        emit(u, LIFE_EFFECT_LOG_SUCCEEDED);
    } else {
        bool alone = has(e, LIFE_LEADS) && !has(e, LIFE_HAS_ARBITER); /* no other node can lead */
        l->cause = LIFE_CAUSE_SIGNAL;
        if (!agent_life_ends(l))
            move(l, LIFE_STOPPING);
        emit(u, LIFE_EFFECT_LOG_STOPS);
        if (alone)
            emit(u, LIFE_EFFECT_STOP_JOB);
        if (!alone || !has(e, LIFE_HAS_LEADER)) /* a leader whose node has not joined yet */
            leave(l, e, u);
    }
    if (e->signo == SIGINT && !has(e, LIFE_WORKERS_RUN))
        emit(u, LIFE_EFFECT_KILL); /* what workers left, if anything */
}

/* Slurm and systemd repeat SIGTERM, but mean the same. Only a user's second ^C means more. */
static void on_repeated_signal(struct agent_life *l, const struct life_event *e,
                               struct life_update *u) {
    if (e->signo != SIGINT)
        return;
    if (++l->interrupts == 1)
        emit(u, LIFE_EFFECT_LOG_KILLS);
    emit(u, LIFE_EFFECT_KILL);
    if (l->interrupts == 1 && has(e, LIFE_HAS_ARBITER | LIFE_HAS_MEMBER))
        /* the arbiter still learns that nothing runs here, if it answers */
        l->deadline_ns = e->now_ns + LEAVE_PATIENCE_NS;
    else
        linger_alone(l);
}

/* Workers were ended before. A repeated SIGTERM means the same, but a second ^C means more. If no
 * signal came before, SIGTERM has only the output to end. */
static void on_output_signal(struct agent_life *l, const struct life_event *e,
                             struct life_update *u) {
    bool again = l->signo == SIGINT || l->interrupts > 0;
    if (e->signo == SIGINT && !again) {
        l->interrupts++;
        emit(u, LIFE_EFFECT_LOG_OUTPUT);
    } else if (e->signo == SIGINT || l->signo == 0) {
        emit(u, LIFE_EFFECT_LEAVE_OUTPUT);
    }
}

static void on_signal(struct agent_life *l, const struct life_event *e, struct life_update *u) {
    if (l->state == LIFE_OVER)
        on_output_signal(l, e, u);
    else if (l->signo == 0 && l->end == MEMBER_END_SUCCESS && e->signo != SIGINT)
        l->interrupts++; /* too late to end the job: only its output is left */
    else if (awaits_leftovers(l, e))
        signal_for_leftovers(l, e, u);
    else if (l->signo == 0)
        on_first_signal(l, e, u);
    else
        on_repeated_signal(l, e, u);
}

/* ---- other events ---- */

/* The whole job ends, no matter which node could lead it: as if an operator had stopped it. */
static void on_order(struct agent_life *l, const struct life_event *e, struct life_update *u) {
    if (!has(e, LIFE_LEADS))
        return;
    if (l->state >= LIFE_LINGERING) {
        emit(u, LIFE_EFFECT_LET_GO);
    } else if (l->cause != LIFE_CAUSE_SIGNAL) {
        emit(u, LIFE_EFFECT_END_OUTPUT);
        emit(u, LIFE_EFFECT_STOP_JOB);
        if (!has(e, LIFE_HAS_MEMBER))
            leave(l, e, u);
    }
}

static void on_drain(struct agent_life *l, const struct life_event *e, struct life_update *u) {
    if (agent_life_ends(l))
        return;
    l->cause = LIFE_CAUSE_OPERATOR;
    move(l, LIFE_STOPPING);
    leave(l, e, u);
}

/* If the leader is gone, or this node has left, a server here need not wait for the ends of other
 * nodes. With an arbiter it hands over, unless there is nothing to wait for. */
static void on_end(struct agent_life *l, const struct life_event *e, struct life_update *u) {
    bool left = e->end == MEMBER_END_LEFT;
    l->end = e->end;
    if (!agent_life_failed(l) &&
        (e->end == MEMBER_END_SUCCESS ||
         (l->cause != LIFE_CAUSE_SIGNAL && !(l->cause == LIFE_CAUSE_OPERATOR && left))))
        l->cause = LIFE_CAUSE_JOB;
    if (left && has(e, LIFE_LEADS | LIFE_HAS_ARBITER)) {
        emit(u, LIFE_EFFECT_RESIGN);
        linger(l);
    } else if (left || e->end == MEMBER_END_LEADER_LOST) {
        linger_alone(l);
    } else {
        linger(l);
    }
}

/* The agent ends when its workers are gone. If it lived on, its member would report their end as a
 * failure, which is charged, and the next group would start workers here. */
static void on_failure(struct agent_life *l, enum life_cause cause, struct life_update *u) {
    l->awaits &= ~(unsigned)LIFE_COMPARES;
    if (l->cause != LIFE_CAUSE_SIGNAL && !agent_life_failed(l))
        l->cause = cause;
    emit(u, LIFE_EFFECT_KILL);
    linger_alone(l);
}

void agent_life_step(struct agent_life *l, const struct life_event *e, struct life_update *ret) {
    ret->n_effects = 0;
    follow_leader(l, e);
    switch (e->kind) {
    case LIFE_EVENT_CHECK:
        if (e->now_ns >= l->deadline_ns)
            linger_alone(l);
        end_if_possible(l, e, ret);
        break;
    case LIFE_EVENT_SIGNAL: on_signal(l, e, ret); break;
    case LIFE_EVENT_ORDER: on_order(l, e, ret); break;
    case LIFE_EVENT_DRAIN: on_drain(l, e, ret); break;
    case LIFE_EVENT_END: on_end(l, e, ret); break;
    case LIFE_EVENT_FAILURE: on_failure(l, LIFE_CAUSE_FAILURE, ret); break;
    case LIFE_EVENT_USAGE: on_failure(l, LIFE_CAUSE_USAGE, ret); break;
    case LIFE_EVENT_COUNT: assert_not_reached();
    }
}
