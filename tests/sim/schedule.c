#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#include "cases.h"

static struct world_coverage coverage;

struct world *schedule_run_world(const struct world_params *given) {
    struct world_params p = *given;
    if (getenv("TRACE") != NULL)
        p.trace = stderr;
    struct world *w = world_new(&p, &coverage);
    cr_assert(world_run_to(w, TIME_NEVER), "%s", world_failure(w));
    return w;
}

static void make_world(const struct schedule *s, struct world_params *p) {
    if (s->make != NULL)
        s->make(p);
    else if (s->world == WORLD_ARBITER)
        case_arbiter(p, s->hosts, s->min_nodes);
    else if (s->world == WORLD_LEADER_FILE)
        case_leader_file(p, s->hosts, s->min_nodes);
    else
        world_params_calm(p, s->hosts);
    if (s->min_nodes > 0)
        p->group.rdzv.min_nodes = s->min_nodes;
    if (s->max_nodes > 0)
        p->group.rdzv.max_nodes = s->max_nodes;
    if (s->max_restarts > 0)
        p->group.rdzv.max_restarts = s->max_restarts;
    if (s->work > 0)
        p->work_ns = S(s->work);
    if (s->join_timeout > 0)
        p->group.rdzv.join_timeout_ns = S(s->join_timeout);
    if (s->last_call > 0)
        p->group.rdzv.last_call_ns = S(s->last_call);
    p->kills_nothing = p->kills_nothing || s->kills_nothing;
    for (uint32_t h = 0; h < WORLD_HOSTS_MAX; h++)
        if (s->comes[h] > 0)
            p->faults[h].at_ns = S(s->comes[h]);
    for (size_t i = 0; i < SCHEDULE_FAULTS_MAX && s->faults[i].kind != 0; i++)
        (void)world_params_fault(p, s->faults[i].kind, S(s->faults[i].at), s->faults[i].host, s->faults[i].arg,
                                 s->faults[i].arg2);
}

static void check_mark(const struct schedule *s, const struct schedule_mark *m, const struct world *w) {
    double at = when(w, m->what, m->host, m->nth);
    if (m->until == 0)
        cr_expect_eq(at, -1.0, "%s: mark %d of host %u at %.3f", s->name, (int)m->what, m->host, at);
    else
        cr_expect(at >= m->from && at <= m->until, "%s: mark %d of host %u at %.3f, not in %.3f … %.3f", s->name,
                  (int)m->what, m->host, at, m->from, m->until);
}

static void check_end(const struct schedule *s, const struct schedule_end *wanted, const struct world *w,
                      uint32_t host) {
    const struct member_end *end = member_end(world_member(w, host));
    if (wanted->kind != MEMBER_END_NONE)
        cr_expect_eq(end->kind, wanted->kind, "%s: host %u ends with %d", s->name, host, (int)end->kind);
    if (wanted->reason != NULL)
        cr_expect_not_null(strstr(end->reason, wanted->reason), "%s: host %u: %s", s->name, host, end->reason);
    if (wanted->failed_node != NULL)
        cr_expect(end->has_failure && strcmp(end->failure.node, wanted->failed_node) == 0, "%s: host %u: failure of %s",
                  s->name, host, end->has_failure ? end->failure.node : "nothing");
}

static void check_world(const struct schedule *s, const struct world *w, uint32_t hosts) {
    if (s->outcome != OUTCOME_NONE)
        cr_expect_eq(world_outcome(w), s->outcome, "%s: outcome %d", s->name, (int)world_outcome(w));
    if (s->groups > 0)
        cr_expect_eq(world_groups_started(w), s->groups, "%s: %u groups", s->name, world_groups_started(w));
    if (s->epoch > 0)
        cr_expect_eq(world_epoch(w), s->epoch, "%s: epoch %u", s->name, world_epoch(w));
    for (size_t i = 0; i < SCHEDULE_MARKS_MAX && s->marks[i].what != 0; i++)
        check_mark(s, &s->marks[i], w);
    for (size_t i = 0; i < SCHEDULE_ENDS_MAX; i++)
        for (uint32_t h = 0; h < hosts; h++)
            if (s->ends[i].host == ANY || s->ends[i].host == h)
                check_end(s, &s->ends[i], w, h);
}

void schedule_check(const struct schedule *rows, size_t n) {
    for (const struct schedule *s = rows; s < rows + n; s++) {
        struct world_params p;
        make_world(s, &p);
        for (uint64_t seed = 1; seed <= MAX2(s->seeds, 1u); seed++) {
            if (s->seeds > 0)
                p.seed = seed;
            struct world *w = schedule_run_world(&p);
            check_world(s, w, p.n_hosts);
            world_free(w);
        }
    }
}
