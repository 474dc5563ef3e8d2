#include "launcher/worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/signal_name.h"

/* For each state, the bits of the states that can follow. */
static const unsigned next_states[] = {
    [WORKER_STATE_RUNNING] =
        1U << WORKER_STATE_STOPPING | 1U << WORKER_STATE_KILLING | 1U << WORKER_STATE_SWEEPING,
    [WORKER_STATE_STOPPING] = 1U << WORKER_STATE_KILLING | 1U << WORKER_STATE_SWEEPING,
    [WORKER_STATE_KILLING] = 1U << WORKER_STATE_SWEEPING,
    [WORKER_STATE_SWEEPING] = 1U << WORKER_STATE_GONE,
    [WORKER_STATE_GONE] = 1U << WORKER_STATE_SWEEPING,
};

static void check(const struct worker_group_machine *m) {
    assert((m->state == WORKER_STATE_SWEEPING || m->state == WORKER_STATE_GONE) ==
           (m->n_left == 0));
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

void worker_group_machine_init(struct worker_group_machine *m, uint32_t n) {
    assert(n > 0);
    *m = (struct worker_group_machine){
        .state = WORKER_STATE_RUNNING, .n_left = n, .deadline_ns = TIME_NEVER};
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

static void on_exited(struct worker_group_machine *m, const struct worker_event *event,
                      struct worker_update *ret) {
    assert(m->n_left > 0);
    if (--m->n_left > 0)
        return;
    if (m->state != WORKER_STATE_KILLING)
        m->killed_ns = event->now_ns;
    m->retry_ns = WORKER_RETRY_MIN_NS;
    move(m, WORKER_STATE_SWEEPING);
    m->deadline_ns = TIME_NEVER; /* the answer arms it */
    ret->sweep = true;
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
    case WORKER_STATE_SWEEPING:
        ret->sweep = true;
        m->deadline_ns = TIME_NEVER;
        return;
    }
    assert_not_reached();
}

static void on_swept(struct worker_group_machine *m, const struct worker_event *event,
                     struct worker_update *ret) {
    assert(m->state == WORKER_STATE_SWEEPING);
    if (event->left > 0) {
        retry_later(m, event->now_ns, ret);
        return;
    }
    move(m, WORKER_STATE_GONE);
    m->deadline_ns = TIME_NEVER;
    ret->all_gone = true;
}

/* An answer of the pass that was running does not count any more: the caller begins a new one. */
static void on_unspared(struct worker_group_machine *m, const struct worker_event *event,
                        struct worker_update *ret) {
    if (m->n_left > 0)
        return;
    if (m->state == WORKER_STATE_GONE)
        move(m, WORKER_STATE_SWEEPING);
    m->killed_ns = event->now_ns;
    m->retry_ns = WORKER_RETRY_MIN_NS;
    m->deadline_ns = TIME_NEVER;
    ret->sweep = true;
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
    ret->deadline_ns = m->deadline_ns;
    check(m);
}

/* --- texts --- */

void worker_signal_text(int signo, char out[WORKER_SIGNAL_TEXT_MAX]) {
    const char *name = signal_abbrev(signo);
    if (name != NULL)
        (void)snprintf(out, WORKER_SIGNAL_TEXT_MAX, "SIG%s", name);
    else if (signo >= SIGRTMIN && signo <= SIGRTMAX)
        (void)snprintf(out, WORKER_SIGNAL_TEXT_MAX, "SIGRTMIN+%d", signo - SIGRTMIN);
    else
        (void)snprintf(out, WORKER_SIGNAL_TEXT_MAX, "signal %d", signo);
}
