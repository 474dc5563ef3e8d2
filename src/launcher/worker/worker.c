#include "launcher/worker/worker.h"

#include <signal.h>

static const unsigned next_states[] = {
    [WORKER_STATE_RUNNING] =
        1U << WORKER_STATE_STOPPING | 1U << WORKER_STATE_KILLING | 1U << WORKER_STATE_ENDING,
    [WORKER_STATE_STOPPING] = 1U << WORKER_STATE_KILLING | 1U << WORKER_STATE_ENDING,
    [WORKER_STATE_KILLING] = 1U << WORKER_STATE_SWEEPING,
    [WORKER_STATE_ENDING] = 1U << WORKER_STATE_SWEEPING | 1U << WORKER_STATE_GONE,
    [WORKER_STATE_SWEEPING] = 1U << WORKER_STATE_GONE,
    [WORKER_STATE_GONE] = 1U << WORKER_STATE_ENDING,
};

static void check(const struct worker_group_machine *m) {
    assert((m->state == WORKER_STATE_ENDING || m->state == WORKER_STATE_SWEEPING ||
            m->state == WORKER_STATE_GONE) == (m->n_left == 0));
    assert(m->state != WORKER_STATE_RUNNING || m->deadline_ns == TIME_NEVER);
    assert(m->state != WORKER_STATE_GONE || m->deadline_ns == TIME_NEVER);
}

static void move(struct worker_group_machine *m, enum worker_state to) {
    assert(next_states[m->state] & 1U << to);
    m->state = to;
}

static uint64_t later(uint64_t now_ns, uint64_t wait_ns) {
    return wait_ns < TIME_NEVER - now_ns ? now_ns + wait_ns : TIME_NEVER;
}

void worker_group_machine_init(struct worker_group_machine *m, uint32_t n, uint64_t grace_ns,
                               uint64_t settle_ns) {
    assert(n > 0);
    *m = (struct worker_group_machine){.state = WORKER_STATE_RUNNING,
                                       .n_left = n,
                                       .deadline_ns = TIME_NEVER,
                                       .grace_ns = grace_ns,
                                       .settle_ns = settle_ns};
}

/* Arms the next repeat, and reports once that it has taken too long. */
static void retry_later(struct worker_group_machine *m, uint64_t now_ns,
                        struct worker_update *ret) {
    m->deadline_ns = later(now_ns, m->retry_ns);
    m->retry_ns = MIN2(m->retry_ns * 2, WORKER_RETRY_MAX_NS);
    if (!m->unkillable_reported && now_ns - m->killed_ns >= WORKER_UNKILLABLE_NS) {
        m->unkillable_reported = true;
        ret->report_unkillable = true;
    }
}

static void begin_killing(struct worker_group_machine *m, uint64_t now_ns,
                          struct worker_update *ret) {
    move(m, WORKER_STATE_KILLING);
    m->killed_ns = now_ns;
    m->retry_ns = WORKER_RETRY_MIN_NS;
    ret->kill_all = true;
    retry_later(m, now_ns, ret);
}

static void begin_sweeping(struct worker_group_machine *m, uint64_t now_ns,
                           struct worker_update *ret) {
    if (m->state != WORKER_STATE_KILLING)
        m->killed_ns = now_ns;
    m->retry_ns = WORKER_RETRY_MIN_NS;
    move(m, WORKER_STATE_SWEEPING);
    m->deadline_ns = TIME_NEVER; /* the answer arms it */
    ret->sweep = WORKER_PASS_KILL;
}

/* SIGTERM is sent once: processes that its handlers start are not to get it. */
static void next_pass(struct worker_group_machine *m, uint64_t now_ns, struct worker_update *ret) {
    bool asks = !m->asked && now_ns >= m->term_ns;
    m->asked |= asks;
    m->deadline_ns = TIME_NEVER;
    ret->sweep = asks ? WORKER_PASS_TERM : WORKER_PASS_LOOK;
}

static void begin_ending(struct worker_group_machine *m, uint64_t now_ns, uint64_t settle_ns,
                         uint64_t end_ns, struct worker_update *ret) {
    move(m, WORKER_STATE_ENDING);
    m->retry_ns = WORKER_RETRY_MIN_NS;
    m->ended_ns = now_ns;
    m->term_ns = later(now_ns, settle_ns);
    m->end_ns = end_ns;
    m->asked = m->released = false;
    next_pass(m, now_ns, ret);
}

static void on_exited(struct worker_group_machine *m, const struct worker_event *event,
                      struct worker_update *ret) {
    assert(m->n_left > 0);
    m->n_left--;
    if (m->n_left > 0)
        return;
    if (m->state == WORKER_STATE_KILLING)
        begin_sweeping(m, event->now_ns, ret);
    else if (m->state == WORKER_STATE_STOPPING)
        begin_ending(m, event->now_ns, 0, m->deadline_ns, ret);
    else
        begin_ending(m, event->now_ns, m->settle_ns, later(event->now_ns, m->grace_ns), ret);
}

static void on_stop(struct worker_group_machine *m, const struct worker_event *event,
                    struct worker_update *ret) {
    switch (m->state) {
    case WORKER_STATE_RUNNING:
        move(m, WORKER_STATE_STOPPING);
        m->deadline_ns = later(event->now_ns, event->grace_ns);
        ret->signal_all = event->signo;
        return;
    case WORKER_STATE_STOPPING:
        m->deadline_ns = MIN2(m->deadline_ns, later(event->now_ns, event->grace_ns));
        return;
    case WORKER_STATE_ENDING:
        m->end_ns = MIN2(m->end_ns, later(event->now_ns, event->grace_ns));
        m->term_ns = event->now_ns;
        if (m->deadline_ns != TIME_NEVER) /* else a pass is running */
            m->deadline_ns = event->now_ns;
        return;
    case WORKER_STATE_KILLING:
    case WORKER_STATE_SWEEPING:
    case WORKER_STATE_GONE: return;
    }
    assert_not_reached();
}

static void on_kill(struct worker_group_machine *m, const struct worker_event *event,
                    struct worker_update *ret) {
    if (m->state == WORKER_STATE_RUNNING || m->state == WORKER_STATE_STOPPING)
        begin_killing(m, event->now_ns, ret);
    else if (m->state == WORKER_STATE_ENDING)
        begin_sweeping(m, event->now_ns, ret);
}

static void on_timer(struct worker_group_machine *m, const struct worker_event *event,
                     struct worker_update *ret) {
    if (event->now_ns < m->deadline_ns) /* the deadline was moved since it was armed */
        return;
    switch (m->state) {
    case WORKER_STATE_RUNNING:
    case WORKER_STATE_GONE: return;
    case WORKER_STATE_STOPPING: begin_killing(m, event->now_ns, ret); return;
    case WORKER_STATE_KILLING: /* kills what the worker forked before the signal */
        ret->kill_all = true;
        retry_later(m, event->now_ns, ret);
        return;
    case WORKER_STATE_ENDING:
        if (event->now_ns >= m->end_ns)
            begin_sweeping(m, event->now_ns, ret);
        else
            next_pass(m, event->now_ns, ret);
        return;
    case WORKER_STATE_SWEEPING:
        ret->sweep = WORKER_PASS_KILL;
        m->deadline_ns = TIME_NEVER;
        return;
    }
    assert_not_reached();
}

static void release(struct worker_group_machine *m, struct worker_update *ret) {
    ret->all_gone = !m->released;
    m->released = true;
}

static void wait_for_rest(struct worker_group_machine *m, const struct worker_event *event,
                          struct worker_update *ret) {
    uint64_t now_ns = event->now_ns;
    if (m->asked && event->blocking == 0 && now_ns < m->end_ns)
        release(m, ret);
    if (!m->waiting_reported && now_ns - m->ended_ns >= WORKER_PATIENCE_NS) {
        m->waiting_reported = true;
        ret->report_waiting = true;
    }
    m->deadline_ns = MIN2(later(now_ns, m->retry_ns), MAX2(m->end_ns, now_ns));
    if (!m->asked)
        m->deadline_ns = MIN2(m->deadline_ns, MAX2(m->term_ns, now_ns));
    m->retry_ns = MIN2(m->retry_ns * 2, WORKER_RETRY_MAX_NS);
}

static void on_swept(struct worker_group_machine *m, const struct worker_event *event,
                     struct worker_update *ret) {
    assert(m->state == WORKER_STATE_ENDING || m->state == WORKER_STATE_SWEEPING);
    if (event->left == 0) {
        move(m, WORKER_STATE_GONE);
        m->deadline_ns = TIME_NEVER;
        release(m, ret);
        ret->over = true;
    } else if (m->state == WORKER_STATE_ENDING) {
        wait_for_rest(m, event, ret);
    } else {
        retry_later(m, event->now_ns, ret);
    }
}

/* An answer of the pass that was running does not count any more: the caller begins a new one. */
static void on_unspared(struct worker_group_machine *m, const struct worker_event *event,
                        struct worker_update *ret) {
    if (m->state == WORKER_STATE_GONE) {
        begin_ending(m, event->now_ns, 0, later(event->now_ns, m->grace_ns), ret);
    } else if (m->state == WORKER_STATE_ENDING) {
        m->term_ns = event->now_ns;
        m->asked = false;
        next_pass(m, event->now_ns, ret);
    } else if (m->state == WORKER_STATE_SWEEPING) {
        m->retry_ns = WORKER_RETRY_MIN_NS;
        m->deadline_ns = TIME_NEVER;
        ret->sweep = WORKER_PASS_KILL;
    }
}

void worker_group_machine_step(struct worker_group_machine *m, const struct worker_event *event,
                               struct worker_update *ret) {
    *ret = (struct worker_update){0};
    switch (event->kind) {
    case WORKER_EVENT_EXITED: on_exited(m, event, ret); break;
    case WORKER_EVENT_STOP: on_stop(m, event, ret); break;
    case WORKER_EVENT_KILL: on_kill(m, event, ret); break;
    case WORKER_EVENT_TIMER: on_timer(m, event, ret); break;
    case WORKER_EVENT_SWEPT: on_swept(m, event, ret); break;
    case WORKER_EVENT_UNSPARED: on_unspared(m, event, ret); break;
    }
    check(m);
}
