#include "launcher/hang/hang_leader_io.h"

#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "watchdog/verdict/hang.h"

struct hang_leader {
    struct loop *loop;
    const struct job_spec *spec;
    struct hang_leader_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct hang *hang;
    struct hang_group group; /* that runs; generation none: none does */
    uint64_t began_ns;
};

/* ---- words ---- */

static const char *sign_text(enum hang_sign sign) {
    switch (sign) {
    case HANG_SIGN_STOPPED: return "is stopped";
    case HANG_SIGN_BEHIND: return "is steps behind";
    case HANG_SIGN_ENDED: return "has ended with 0";
    case HANG_SIGN_BUSY: return "is busy";
    }
    assert_not_reached();
}

#define SUSPECTS_NAMED 3

static void name_suspects(const struct hang_leader *l, const struct hang_update *u,
                          struct strbuf *ret) {
    for (uint32_t i = 0; i < MIN2(u->n_suspects, (uint32_t)SUSPECTS_NAMED); i++)
        strbuf_printf(ret, "; rank %u (node %s) %s", u->suspects[i].rank,
                      l->group.nodes[u->suspects[i].node].name, sign_text(u->suspects[i].sign));
    if (u->n_suspects > SUSPECTS_NAMED)
        strbuf_printf(ret, "; and %u more", u->n_suspects - SUSPECTS_NAMED);
}

/* ---- what the verdict asks for ---- */

static void stop_group(struct hang_leader *l, const struct hang_update *u, const char *text) {
    struct failure f = {.kind = FAILURE_HANG, .wall_ns = clock_wall_ns()};
    if (u->n_suspects > 0) {
        const struct hang_node *n = &l->group.nodes[u->suspects[0].node];
        f.rank = u->suspects[0].rank;
        f.local_rank = f.rank - n->first_rank;
        f.incarnation = n->incarnation;
        (void)snprintf(f.node, sizeof f.node, "%s", n->name);
    }
    f.ran_ns = clock_now_ns() - l->began_ns;
    (void)snprintf(f.text, sizeof f.text, "%s", text);
    l->ops.hang(l->arg, l->group.generation, &f);
}

static void step(struct hang_leader *l, struct hang_event *ev) {
    struct hang_update u;
    ev->now_ns = clock_now_ns();
    hang_step(l->hang, ev, &u);
    loop_timer_set(l->timer, u.deadline_ns);
    if (!u.report_due && !u.hung)
        return;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, u.text);
    name_suspects(l, &u, &text);
    if (u.hung && u.restart)
        stop_group(l, &u, strbuf_text(&text));
    else
        log_warning("the job %s: %s", u.hung ? "hangs" : "is quiet", strbuf_text(&text));
}

static void on_timer(void *arg) { step(arg, &(struct hang_event){.kind = HANG_EVENT_TIMER}); }

/* ---- events ---- */

void hang_leader_end(struct hang_leader *l) {
    if (generation_is_none(l->group.generation))
        return;
    step(l, &(struct hang_event){.kind = HANG_EVENT_END});
    hang_group_fini(&l->group);
}

void hang_leader_begin(struct hang_leader *l, const struct hang_group *group) {
    hang_leader_end(l);
    if (l->spec->hang_action == JOB_HANG_OFF)
        return;
    hang_group_copy(group, &l->group);
    l->began_ns = clock_now_ns();
    step(l, &(struct hang_event){
                .kind = HANG_EVENT_START, .n = l->group.world_size, .nodes = l->group.node_of});
}

void hang_leader_signs(struct hang_leader *l, uint64_t incarnation,
                       const struct rdzv_signs *signs) {
    struct worker_signs rows[RDZV_SIGNS_CHUNK];
    uint32_t node = hang_group_find(&l->group, incarnation);
    if (generation_is_none(l->group.generation) ||
        generation_compare(signs->generation, l->group.generation) != 0 || node == l->group.n_nodes)
        return;
    for (uint32_t i = 0; i < signs->n; i++) {
        const struct rdzv_signs_row *from = &signs->list[i];
        rows[i] = (struct worker_signs){.rank = from->rank,
                                        .flags = from->flags & SIGN_ALL,
                                        .still_ns = from->still_ns,
                                        .moved_once = from->moved_once,
                                        .step = from->step,
                                        .deadline_ns = from->deadline_ns,
                                        .since_announced_ns = from->since_announced_ns,
                                        .place = from->place};
    }
    step(l,
         &(struct hang_event){.kind = HANG_EVENT_SIGNS, .node = node, .rows = rows, .n = signs->n});
}

/* ---- life ---- */

/* Without a restart left to give, a hang would end the job: then it is only reported, unless the
 * user wants it. */
static enum hang_action action_of(const struct job_spec *spec) {
    switch (spec->hang_action) {
    case JOB_HANG_AUTO:
        return spec->rdzv.max_restarts > 0 ? HANG_ACTION_RESTART : HANG_ACTION_REPORT;
    case JOB_HANG_RESTART: return HANG_ACTION_RESTART;
    case JOB_HANG_REPORT: return HANG_ACTION_REPORT;
    case JOB_HANG_OFF: return HANG_ACTION_OFF;
    }
    assert_not_reached();
}

int hang_leader_new(struct loop *loop, const struct job_spec *spec,
                    const struct hang_leader_ops *ops, void *arg, struct hang_leader **ret) {
    struct hang_leader *l = xcalloc(1, sizeof *l);
    *l = (struct hang_leader){.loop = loop, .spec = spec, .ops = *ops, .arg = arg};
    struct hang_limits limits = {.action = action_of(spec),
                                 .still_ns = spec->hang_still_ns,
                                 .timeout_ns = spec->hang_timeout_ns,
                                 .report_ns = spec->hang_report_ns};
    int r = loop_timer_new(loop, on_timer, l, &l->timer);
    if (r < 0) {
        free(l);
        return r;
    }
    l->hang = hang_new(&limits);
    *ret = l;
    return 0;
}

void hang_leader_free(struct hang_leader *l) {
    if (l == NULL)
        return;
    hang_group_fini(&l->group);
    hang_free(l->hang);
    loop_timer_free(l->timer);
    free(l);
}
