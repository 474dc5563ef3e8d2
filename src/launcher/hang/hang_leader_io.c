#include "launcher/hang/hang_leader_io.h"

#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "watchdog/verdict/hang.h"

/* A node of the group that runs. */
struct hang_node {
    uint64_t incarnation;
    uint32_t first_rank, nproc;
    char name[RDZV_HOST_MAX];
};

struct hang_leader {
    struct loop *loop;
    const struct job_spec *spec;
    struct hang_leader_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct hang *hang;
    struct generation generation; /* that runs; none */
    uint32_t n_nodes, world_size;
    struct hang_node *nodes; /* [n_nodes], in rank order */
    uint32_t *node_of;       /* [world_size] index in nodes */
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
                      l->nodes[u->suspects[i].node].name, sign_text(u->suspects[i].sign));
    if (u->n_suspects > SUSPECTS_NAMED)
        strbuf_printf(ret, "; and %u more", u->n_suspects - SUSPECTS_NAMED);
}

/* ---- what the verdict asks for ---- */

static void stop_group(struct hang_leader *l, const struct hang_update *u, const char *text) {
    struct failure f = {.kind = FAILURE_HANG, .wall_ns = clock_wall_ns()};
    if (u->n_suspects > 0) {
        const struct hang_node *n = &l->nodes[u->suspects[0].node];
        f.rank = u->suspects[0].rank;
        f.local_rank = f.rank - n->first_rank;
        f.incarnation = n->incarnation;
        (void)snprintf(f.node, sizeof f.node, "%s", n->name);
    }
    f.ran_ns = clock_now_ns() - l->began_ns;
    (void)snprintf(f.text, sizeof f.text, "%s", text);
    l->ops.hang(l->arg, l->generation, &f);
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

static void forget(struct hang_leader *l) {
    l->generation = (struct generation){0, 0};
    free(TAKE_PTR(l->nodes));
    free(TAKE_PTR(l->node_of));
    l->n_nodes = l->world_size = 0;
}

void hang_leader_end(struct hang_leader *l) {
    if (generation_is_none(l->generation))
        return;
    step(l, &(struct hang_event){.kind = HANG_EVENT_END});
    forget(l);
}

/* The members in rank order. False: too many ranks, or none. */
static bool read_members(struct hang_leader *l, const struct group *g) {
    size_t n = group_members(g, NULL, 0);
    _cleanup_(freep) uint64_t *members = xcalloc(n + 1, sizeof *members);
    n = MIN2(group_members(g, members, n), n);
    l->nodes = xcalloc(n + 1, sizeof *l->nodes);
    for (size_t i = 0; i < n; i++) {
        const struct node_info *info = group_node_info(g, members[i]);
        struct hang_node *node = &l->nodes[l->n_nodes++];
        *node = (struct hang_node){.incarnation = members[i], .first_rank = l->world_size};
        node->nproc = info == NULL ? 0 : info->nproc;
        (void)snprintf(node->name, sizeof node->name, "%s", info == NULL ? "" : info->host);
        if (node->nproc > HANG_RANKS_MAX - l->world_size)
            return false;
        l->world_size += node->nproc;
    }
    l->node_of = xcalloc(l->world_size + 1, sizeof *l->node_of);
    for (uint32_t i = 0; i < l->n_nodes; i++)
        for (uint32_t k = 0; k < l->nodes[i].nproc; k++)
            l->node_of[l->nodes[i].first_rank + k] = i;
    return l->world_size > 0;
}

void hang_leader_begin(struct hang_leader *l, const struct group *group) {
    hang_leader_end(l);
    if (l->spec->hang_action == JOB_HANG_OFF)
        return;
    if (!read_members(l, group)) {
        forget(l);
        return;
    }
    l->generation = group_generation(group);
    l->began_ns = clock_now_ns();
    step(l,
         &(struct hang_event){.kind = HANG_EVENT_START, .n = l->world_size, .nodes = l->node_of});
}

void hang_leader_signs(struct hang_leader *l, uint64_t incarnation,
                       const struct rdzv_signs *signs) {
    struct worker_signs rows[RDZV_SIGNS_CHUNK];
    uint32_t node = 0;
    if (generation_is_none(l->generation) ||
        generation_compare(signs->generation, l->generation) != 0)
        return;
    while (node < l->n_nodes && l->nodes[node].incarnation != incarnation)
        node++;
    if (node == l->n_nodes)
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
    forget(l);
    hang_free(l->hang);
    loop_timer_free(l->timer);
    free(l);
}
