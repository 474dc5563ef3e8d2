/* Around an agent's life (launcher/agent/agent_life.h): its signals, what its end waits for, and what it must never
 * leave behind. */
#include <signal.h>
#include <string.h>

#include "world_priv.h"

#define ANSWER_NS NS_PER_S         /* the longest wait for Slurm, and for a comparison */
#define PATIENCE_NS (2 * NS_PER_S) /* after a second ^C */

/* So that worlds with the same seed stay the same: a part of the random number that names the agent. */
static bool draws(const struct world *w, const struct life *l, unsigned shift, unsigned of_16) {
    return w->p.lingers && (l->incarnation >> shift) % 16 < of_16;
}

/* ---- facts ---- */

static unsigned fact(bool holds, enum life_fact f) { return holds ? (unsigned)f : 0; }

static unsigned facts_of(const struct world *w, const struct life *l) {
    const struct desired *cause = member_stop_cause(l->member);
    bool closed = cause != NULL && cause->kind == DESIRED_CLOSED;
    bool serves = l->lead.group != NULL && !l->lead.done;
    unsigned facts = LIFE_HAS_MEMBER | fact(member_state(l->member) != MEMBER_SEARCHING, LIFE_HAS_LEADER) |
                     fact(!world_is_fixed(w) || w->p.mutant == MUTANT_LEADER_LEAVES, LIFE_HAS_ARBITER) |
                     fact(l->lead.group != NULL, LIFE_LEADS) |
                     fact(node_has_workers(l) && !l->unkillable && w->p.mutant != MUTANT_WORKERS_UNSEEN,
                          LIFE_WORKERS_RUN | LIFE_PROCESSES) |
                     fact(closed || (cause != NULL && cause->has_failure && !cause->will_restart), LIFE_JOB_CLOSES) |
                     fact(closed && cause->outcome == OUTCOME_SUCCESS, LIFE_JOB_SUCCEEDS) |
                     fact(!l->ending.requeued && draws(w, l, 8, 4), LIFE_MAY_REQUEUE) |
                     fact(serves && w->p.mutant != MUTANT_NODES_UNINFORMED, LIFE_SERVES) |
                     fact(l->ending.compares, LIFE_COMPARES) |
                     fact(l->ending.asks && w->p.mutant != MUTANT_ANSWER_UNAWAITED, LIFE_ASKS);
    return facts;
}

/* ---- effects ---- */

static void ask(struct world *w, struct life *l) {
    l->ending.asks = true;
    world_plan(w, ITEM_ANSWERED, l, 1 + l->incarnation % ANSWER_NS)->local = 0;
}

static void begin(struct world *w, struct life *l) {
    if (l->lead.group != NULL && draws(w, l, 12, 8) && !l->ending.asks)
        ask(w, l); /* why it is to end */
}

static void leave(struct world *w, struct life *l) {
    l->was_told_to_leave = true;
    if (w->p.mutant == MUTANT_VACATES_FIRST)
        leader_vacates(w, l);
    node_event(w, l,
               &(struct member_event){
                   .kind = MEMBER_EVENT_LEAVE, .reason = "told to stop by SIGTERM", .grace_ns = l->ending.grace_ns});
}

/* The user does not want to wait for other nodes. */
static bool is_hasty(const struct world *w, const struct life *l) {
    bool waited = world_is_fixed(w) || w->now_ns > l->ending.interrupted_ns + PATIENCE_NS / 50 * 49;
    return l->ending.n_interrupts >= 2 || (l->ending.n_interrupts == 1 && waited);
}

static enum life_cause true_cause(const struct life *l) {
    enum member_end_kind end = member_end(l->member)->kind;
    if (l->ending.gave_up && l->ending.n_signals == 0)
        return LIFE_CAUSE_FAILURE;
    if (end == MEMBER_END_SUCCESS)
        return LIFE_CAUSE_JOB;
    if (l->ending.n_signals > 0)
        return LIFE_CAUSE_SIGNAL;
    return l->ending.drained && end == MEMBER_END_LEFT ? LIFE_CAUSE_OPERATOR : LIFE_CAUSE_JOB;
}

/* The agent decides to end its process now. */
static void quits(struct world *w, struct life *l) {
    const struct agent_life *a = &l->ending.life;
    bool serves = l->lead.group != NULL && !l->lead.done;
    bool alone =
        l->ending.gave_up || a->end == MEMBER_END_LEADER_LOST || (a->end == MEMBER_END_LEFT && world_is_fixed(w));
    world_trace(w, "%u.%u is over (cause %d)", l->host, l->index, (int)a->cause);
    if (node_has_workers(l) && !l->unkillable)
        world_broken(w, "L1: agent %u.%u ends before its workers", l->host, l->index);
    if (serves && !alone && !is_hasty(w, l))
        world_broken(w, "L2: %u.%u leads, and ends before it has informed the other nodes", l->host, l->index);
    if (l->ending.asks || (l->ending.compares && l->ending.n_signals == 0 && !l->ending.gave_up))
        world_broken(w, "L3: %u.%u ends before an answer that it needs", l->host, l->index);
    if (world_is_fixed(w) && l->lead.group != NULL && l->ending.n_signals > 0 && a->end != MEMBER_END_SUCCESS &&
        !w->operator_stop)
        world_broken(w, "L6: %u.%u was stopped, and no other node can lead, but the job was not stopped", l->host,
                     l->index);
    if (a->cause != true_cause(l) && !(l->ending.gave_up && l->ending.n_signals > 0))
        world_broken(w, "L4: %u.%u ends with the cause %d, its member with %d", l->host, l->index, (int)a->cause,
                     (int)a->end);
    world_plan(w, ITEM_AGENT_QUITS, l, 0);
}

static void carry_out(struct world *w, struct life *l, enum life_effect effect) {
    w->coverage->life_effects[effect]++;
    switch (effect) {
    case LIFE_EFFECT_BEGIN: begin(w, l); break;
    case LIFE_EFFECT_STOP_JOB: leader_stop(w, l); break;
    case LIFE_EFFECT_LEAVE: leave(w, l); break;
    case LIFE_EFFECT_KILL: launcher_kill(w, l); break;
    case LIFE_EFFECT_LET_GO: l->ending.compares = false; break;
    case LIFE_EFFECT_RESIGN:
        if (w->p.mutant != MUTANT_NO_RESIGN)
            leader_resigns(w, l);
        break;
    case LIFE_EFFECT_REQUEUE:
        l->ending.requeued = true;
        ask(w, l);
        break;
    case LIFE_EFFECT_QUIT: quits(w, l); break;
    case LIFE_EFFECT_PASS_ON:
    case LIFE_EFFECT_END_OUTPUT:
    case LIFE_EFFECT_LEAVE_OUTPUT:
    case LIFE_EFFECT_LOG_STOPS:
    case LIFE_EFFECT_LOG_SUCCEEDED:
    case LIFE_EFFECT_LOG_KILLS:
    case LIFE_EFFECT_LOG_KILLS_LEFT:
    case LIFE_EFFECT_LOG_AWAITS_LEFT:
    case LIFE_EFFECT_LOG_OUTPUT: break;
    case LIFE_EFFECT_COUNT: assert_not_reached();
    }
}

/* ---- events ---- */

void ending_begin(struct life *l) { agent_life_init(&l->ending.life); }

static void step(struct world *w, struct life *l, struct life_event e) {
    struct life_update u;
    if (w->failure[0] != '\0' || !l->process)
        return;
    e.facts = facts_of(w, l);
    e.now_ns = world_clock(w, l->host);
    w->coverage->life_events[e.kind]++;
    if (e.kind == LIFE_EVENT_END && e.end == MEMBER_END_LEFT)
        l->ending.left_ns = w->now_ns;
    enum life_state before = l->ending.life.state;
    agent_life_step(&l->ending.life, &e, &u);
    enum life_state after = l->ending.life.state;
    w->coverage->life_states[after]++;
    if (before != after) {
        world_trace(w, "%u.%u: life %s -> %s", l->host, l->index, life_state_name(before), life_state_name(after));
        w->coverage->life_moves[before][after]++;
    }
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(w, l, u.effects[i]);
    uint64_t deadline = l->ending.life.deadline_ns;
    l->ending.timer_version++;
    if (deadline != TIME_NEVER) {
        uint64_t at = world_when_clock(w, l->host, deadline);
        world_plan(w, ITEM_LIFE_TIMER, l, at > w->now_ns ? at - w->now_ns : 0)->version = l->ending.timer_version;
    }
}

void ending_check(struct world *w, struct life *l) { step(w, l, (struct life_event){.kind = LIFE_EVENT_CHECK}); }

void ending_event(struct world *w, struct life *l, struct life_event e) {
    step(w, l, e);
    ending_check(w, l);
}

void ending_signal(struct world *w, struct life *l, int signo) {
    struct ending *e = &l->ending;
    if (e->n_signals > 0 && signo == SIGINT) {
        e->n_interrupts++;
        e->interrupted_ns = w->now_ns;
    }
    if (e->n_signals++ > 0 && w->p.mutant == MUTANT_ONE_SIGNAL)
        return;
    ending_event(w, l, (struct life_event){.kind = LIFE_EVENT_SIGNAL, .signo = signo});
}

void ending_compares(struct world *w, struct life *l) {
    if (!draws(w, l, 16, 8) || l->ending.compares)
        return;
    l->ending.compares = true;
    world_plan(w, ITEM_ANSWERED, l, 1 + (l->incarnation >> 20) % ANSWER_NS)->local = 1;
}

void ending_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    if (it->kind == ITEM_AGENT_QUITS) {
        node_agent_dies(w, l, 0);
    } else if (it->kind == ITEM_LIFE_TIMER) {
        if (it->version == l->ending.timer_version)
            ending_check(w, l);
    } else {
        *(it->local == 0 ? &l->ending.asks : &l->ending.compares) = false;
        if (w->p.mutant != MUTANT_ANSWER_UNHEARD)
            ending_check(w, l);
    }
}

/* ---- what must hold ---- */

#define RESIGN_NS (30 * NS_PER_S)

/* A node that has left waits only until another leads, or the job is closed. */
static void check_resigns(struct world *w, const struct life *l, uint64_t since) {
    if (l->ending.left_ns != 0 && w->now_ns > MAX2(since, w->troubled_until_ns) + RESIGN_NS && !w->was_emptied)
        world_broken(w, "L7: %u.%u has left, and does not end", l->host, l->index);
}

/* After a second ^C the process ends soon. */
void oracle_ending(struct world *w, const struct life *l) {
    const struct ending *e = &l->ending;
    uint64_t since = MAX2(e->interrupted_ns, MAX2(l->thawed_ns, l->host_thawed_ns));
    if (!l->process || l->frozen || l->unkillable || !host_running(w, l->host))
        return;
    check_resigns(w, l, MAX2(e->left_ns, since));
    if (e->n_interrupts > 0 && w->now_ns > since + PATIENCE_NS / 50 * 51 + ANSWER_NS + KILL_SLACK_NS)
        world_broken(w, "L5: %u.%u was interrupted twice, and does not end", l->host, l->index);
}
