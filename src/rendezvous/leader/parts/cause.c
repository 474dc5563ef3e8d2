#include "rendezvous/leader/parts/cause.h"

/* In one stop; later ones are reported when the cause is settled. */
#define BETTER_AT_ONCE_MAX 8

bool cause_add(struct cause *c, const struct failure *f, int64_t at_ns, uint64_t error_ns) {
    if (c->state != CAUSE_NONE) {
        uint64_t sum = MAX2(error_ns + c->error_ns, (uint64_t)FAILURE_ECHO_NS);
        int64_t later = at_ns - c->at_ns;
        bool undecided = later <= (int64_t)sum && -later <= (int64_t)sum;
        int more_noise = failure_noise(f) - failure_noise(&c->failure);
        if (undecided && more_noise != 0 ? more_noise > 0 : later >= 0)
            return false;
    } else {
        c->state = CAUSE_SURE;
    }
    c->failure = *f;
    c->at_ns = at_ns;
    c->error_ns = error_ns;
    return true;
}

void cause_forget(struct cause *c) { c->state = CAUSE_NONE; }

void cause_begin_stop(struct cause *c, uint64_t settle_ns) {
    c->better_waits = c->doubt_reported = false;
    c->n_better = 0;
    c->settle_ns = c->state != CAUSE_NONE ? settle_ns : TIME_NEVER;
}

void cause_blame(struct cause *c, size_t n_nodes) {
    c->state = cause_may_be_loss(c, n_nodes) ? CAUSE_IN_DOUBT : CAUSE_SURE;
}

bool cause_is_pending(const struct cause *c) {
    return c->state == CAUSE_IN_DOUBT || c->state == CAUSE_SURE;
}

/* If the job has only one node, no other can continue after its loss. But the failure that explains
 * another one may arrive a little later. */
bool cause_may_be_loss(const struct cause *c, size_t n_nodes) {
    return failure_noise(&c->failure) > 0 || (n_nodes > 1 && failure_may_end_node(&c->failure));
}

/* Workers were killed, and their agent may be next. If it reported that all had stopped, the job
 * can start them again; a job that would end because of it waits longer. */
bool cause_is_certain(const struct cause *c, const struct cause_facts *facts) {
    if (!failure_may_end_node(&c->failure))
        return failure_noise(&c->failure) == 0 || facts->all_outlived;
    if (!facts->member || !facts->stopped)
        return !facts->member;
    return !facts->no_restart_left || (facts->connected && facts->waited);
}

bool cause_is_loss_of(const struct cause *c, uint64_t incarnation, bool outlived) {
    if (c->state != CAUSE_IN_DOUBT)
        return false; /* a reported cause does not change */
    if (failure_may_end_node(&c->failure))
        return c->failure.incarnation == incarnation;
    return failure_noise(&c->failure) > 0 && !outlived;
}

void cause_make_sure(struct cause *c) {
    c->state = CAUSE_SURE;
    c->better_waits = false;
}

/* An earlier report is corrected at once. If nothing was reported, there is time. */
bool cause_report_better(struct cause *c) {
    if (c->state != CAUSE_IN_DOUBT && c->settle_ns != TIME_NEVER &&
        ++c->n_better <= BETTER_AT_ONCE_MAX)
        return true;
    c->better_waits = true;
    return false;
}
