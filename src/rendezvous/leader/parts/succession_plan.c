#include "rendezvous/leader/parts/succession_plan.h"

#include <string.h>

static bool is_first(const struct succession_plan *p, uint64_t incarnation) {
    return p->named.n > 0 && p->named.list[0].incarnation == incarnation;
}

void plan_adopt(struct succession_plan *p, const struct successors *s, uint64_t now_ns) {
    enum successor_state states[RDZV_SUCCESSORS_MAX];
    for (uint32_t i = 0; i < s->n; i++) {
        int before = successors_index(&p->named, s->list[i].incarnation);
        states[i] = before < 0 ? SUCCESSOR_THERE : p->states[before];
    }
    /* The naming counts like an echo at this time, because a new successor can't have echoed
     * anything before. */
    if (s->n > 0 && (s->epoch != p->named.epoch || !is_first(p, s->list[0].incarnation)))
        p->clock_ns = now_ns;
    p->named = *s;
    memcpy(p->states, states, sizeof states);
}

void plan_lose(struct succession_plan *p, uint64_t incarnation, bool surely) {
    for (uint32_t i = 0; i < p->named.n; i++)
        if (p->named.list[i].incarnation == incarnation)
            p->states[i] = surely ? SUCCESSOR_GONE : SUCCESSOR_DOUBTFUL;
}

bool plan_echo(struct succession_plan *p, uint64_t incarnation, const struct echo *echo,
               uint64_t now_ns) {
    if (!is_first(p, incarnation) || echo->epoch != p->named.epoch ||
        echo->leader_clock_ns > now_ns)
        return false;
    p->clock_ns = MAX2(p->clock_ns, echo->leader_clock_ns);
    return true;
}

static uint64_t silent_at(const struct succession_plan *p, const struct group_config *c) {
    return MAX2(p->clock_ns + c->rdzv.lease_ns / 2, p->check_ns);
}

enum plan_due plan_check(struct succession_plan *p, const struct group_config *c, uint64_t now_ns) {
    if (p->states[0] == SUCCESSOR_GONE)
        return PLAN_NAME_ANEW;
    if (now_ns < silent_at(p, c))
        return PLAN_NOTHING;
    p->check_ns = now_ns + c->rdzv.heartbeat_ns / 4;
    return PLAN_ASK_OTHERS;
}

uint64_t plan_deadline(const struct succession_plan *p, const struct group_config *c,
                       uint64_t now_ns) {
    return MAX2(silent_at(p, c), now_ns + 1);
}
