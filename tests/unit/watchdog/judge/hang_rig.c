#include "hang_rig.h"

#include <string.h>

#define S(x) ((uint64_t)((x)*1e9))

static void keep(struct rig *r, const struct hang_update *u) {
    r->recoveries += r->last.state == WATCHDOG_HUNG && u->state == WATCHDOG_OK;
    r->last = *u;
    r->deadline = u->deadline_ns;
    if (u->report_due) {
        r->reports++;
        r->report_at = r->now;
    }
    if (u->hung) {
        r->hangs++;
        r->hung_at = r->now;
        r->why = u->why;
    }
    if (u->hung || u->report_due) {
        memcpy(r->text, u->text, sizeof r->text);
        r->n_suspects = u->n_suspects;
        for (uint32_t i = 0; i < u->n_suspects; i++)
            r->suspects[i] = u->suspects[i];
    }
}

void rig_event(struct rig *r, struct hang_event event) {
    struct hang_update u;
    event.now_ns = r->now + r->skew;
    hang_step(r->h, &event, &u);
    keep(r, &u);
}

void rig_start(struct rig *r) {
    for (uint32_t i = 0; i < r->n; i++)
        r->w[i] = (struct rig_worker){.moving = true, .born_at = r->now, .moved_at = r->now};
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        r->node[i].speaking = r->node[i].stalled = false;
        r->node[i].next_sample = r->now + NS_PER_S * (i + 1) / (r->n_nodes + 1);
    }
    r->hangs = r->reports = r->recoveries = r->sent = 0;
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_START, .n = r->n, .nodes = r->nodes});
}

void rig_limits(struct rig *r, const struct hang_limits *limits) {
    hang_free(r->h);
    r->limits = *limits;
    r->h = hang_new(limits);
    rig_start(r);
}

void rig_init(struct rig *r, uint32_t n_ranks, uint32_t n_nodes) {
    *r = (struct rig){.n = n_ranks, .n_nodes = n_nodes, .now = S(1000), .deadline = TIME_NEVER};
    for (uint32_t i = 0; i < n_ranks; i++)
        r->nodes[i] = i / ((n_ranks + n_nodes - 1) / n_nodes);
    rig_limits(r, &(struct hang_limits){S(180), S(1800), S(30)});
}

void rig_fini(struct rig *r) {
    hang_free(r->h);
    r->h = NULL;
}

/* Nodes tell it once what was announced, and who has ended. */
void rig_new_leader(struct rig *r) {
    for (uint32_t i = 0; i < r->n; i++) {
        r->w[i].told_deadline_ns = 0;
        r->w[i].told_ended = r->w[i].told_unseen = false;
    }
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_START, .n = r->n, .nodes = r->nodes});
}

static void row_of(const struct rig *r, uint32_t rank, struct worker_signs *row) {
    const struct rig_worker *w = &r->w[rank];
    uint64_t since = r->now > w->announced_at ? r->now - w->announced_at : 0;
    *row = (struct worker_signs){.rank = rank,
                                 .flags = w->flags | (w->moved_since ? SIGN_MOVED : 0) | (w->ended ? SIGN_ENDED : 0),
                                 .still_ns = r->now - w->moved_at,
                                 .moved_once = w->moved_once,
                                 .step = w->step,
                                 .deadline_ns = w->deadline_ns,
                                 .since_announced_ns = w->deadline_ns != 0 ? since : 0};
}

/* Whether a node has something to say of this worker. */
static bool is_worth_a_word(const struct rig *r, const struct rig_worker *w) {
    bool late = w->deadline_ns != 0 && r->now >= w->announced_at + w->deadline_ns;
    return r->now - w->moved_at >= S(3) || late;
}

static void sample(struct rig *r, uint32_t node) {
    struct worker_signs rows[RIG_RANKS_MAX];
    uint32_t n = 0;
    bool speak = false, once = false;
    for (uint32_t i = 0; i < r->n; i++) {
        struct rig_worker *w = &r->w[i];
        if (r->nodes[i] != node)
            continue;
        w->moved_once = w->moved_once || w->moved_since;
        speak = speak || (!w->ended && is_worth_a_word(r, w));
        once = once || (w->deadline_ns != 0 && w->told_deadline_ns != w->deadline_ns);
        w->told_deadline_ns = w->deadline_ns;
        once = once || (w->ended && !w->told_ended);
        w->told_ended = w->ended;
        bool unseen = w->moved_since && (w->flags & SIGN_UNSEEN) != 0;
        once = once || unseen != w->told_unseen;
        w->told_unseen = unseen;
        row_of(r, i, &rows[n++]);
        w->moved_since = false;
    }
    if (speak || once || r->node[node].speaking) {
        r->sent++;
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_SIGNS, .node = node, .rows = rows, .n = n});
        for (uint32_t i = 0; i < n; i++)
            if ((rows[i].flags & SIGN_MOVED) == 0)
                rig_event(r, (struct hang_event){
                                 .kind = HANG_EVENT_PLACE, .rank = rows[i].rank, .place = r->w[rows[i].rank].place});
    }
    r->node[node].speaking = speak;
}

static void step(struct rig *r) {
    r->now += RIG_DT;
    for (uint32_t i = 0; i < r->n; i++) {
        struct rig_worker *w = &r->w[i];
        if (!w->moving || w->ended || r->node[r->nodes[i]].stalled)
            continue;
        w->moved_since = true;
        w->moved_at = r->now;
    }
    for (uint32_t i = 0; i < r->n_nodes && !r->leader_stalled; i++) {
        if (r->node[i].stalled || r->now < r->node[i].next_sample)
            continue;
        r->node[i].next_sample = r->now + NS_PER_S;
        sample(r, i);
    }
    if (r->now + r->skew >= r->deadline && !r->leader_stalled)
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_TIMER});
}

void rig_run(struct rig *r, double seconds) {
    for (uint64_t until = r->now + S(seconds); r->now < until;)
        step(r);
}

double rig_until_hung(struct rig *r, double seconds) {
    uint64_t from = r->now, until = r->now + S(seconds);
    uint32_t hangs = r->hangs;
    while (r->now < until && r->hangs == hangs)
        step(r);
    return r->hangs > hangs ? (double)(r->now - from) / 1e9 : -1;
}

void rig_all(struct rig *r, bool moving) {
    for (uint32_t i = 0; i < r->n; i++)
        r->w[i].moving = moving;
}
