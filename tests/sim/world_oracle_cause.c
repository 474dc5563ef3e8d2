/* A failure is charged, told and ends the job; a node's loss, and what it sets off elsewhere, does
 * not (I6, I8). */
#include "world_priv.h"

void oracle_agent_died(struct world *w, struct life *l) {
    l->died_ns = w->now_ns;
    bool killed = member_end(l->member)->kind == MEMBER_END_NONE; /* not at its end */
    if (killed && w->ended_for == l->incarnation && w->now_ns < w->ended_for_ns + w->p.group.settle_ns / 10 * 9)
        world_broken(w, "I6: the job ended for a worker of %u.%u that was killed, as its agent was", l->host, l->index);
}

void oracle_loss_known(struct world *w, const struct life *leader, const struct life *l) {
    struct group_info *g = oracle_newest(w, leader);
    int place = g == NULL ? -1 : oracle_member_place(g, l->incarnation);
    if (place >= 0 && !g->said_stopped[place])
        g->lost[place] = true;
}

/* A member was dead when this happened, and is known to be. */
static bool follows_a_loss(struct world *w, const struct group_info *g, const struct true_failure *f) {
    for (uint32_t i = 0; w->p.calm_network && i < g->n_nodes; i++) {
        const struct life *l = node_of(w, g->members[i]);
        if (g->lost[i] && l->died_ns != 0 && l->died_ns <= f->at_ns)
            return true;
    }
    return false;
}

static bool is_a_loss(struct world *w, const struct group_info *g, const struct true_failure *f) {
    int place = oracle_member_place(g, f->incarnation);
    return (f->ends_node && place >= 0 && g->lost[place]) || (f->echo && follows_a_loss(w, g, f));
}

bool oracle_could_be_charged(struct world *w, const struct group_info *g) {
    for (unsigned i = 0; i < g->n_failures; i++)
        if (g->failures[i].ever_heard && g->failures[i].chargeable && !is_a_loss(w, g, &g->failures[i]))
            return true;
    return false;
}

void oracle_stop_told(struct world *w, const struct life *leader, const struct desired *d) {
    struct group_info *g = oracle_group(w, d->generation);
    if (g == NULL || !d->has_failure || g->cause_told)
        return;
    g->cause_told = true;
    g->told_used = group_restarts_used(leader->lead.group);
}

void oracle_stop_over(struct world *w, const struct life *leader, const struct group_info *g) {
    if (g->cause_told && g->leader == leader && group_restarts_used(leader->lead.group) <= g->told_used)
        world_broken(w, "I8: a cause of %u.%u was told, and it was a loss", G(g->generation));
}

/* ---- crash loops ---- */

uint64_t oracle_loop_key(const struct world *w, const struct failure *f) {
    static const uint32_t faults[] = {4, 5, 6, 7, 8, 11, 31}; /* signals that a program's own error raises */
    bool own = f->kind == FAILURE_EXIT || f->kind == FAILURE_SPAWN;
    for (size_t i = 0; i < ARRAY_SIZE(faults) && f->kind == FAILURE_SIGNAL; i++)
        own = own || (uint32_t)f->code == faults[i];
    return own && f->ran_ns < w->p.group.rdzv.crash_loop_ns ? (uint64_t)f->kind << 32 | (uint32_t)f->code : 0;
}

static const struct group_info *charged_before(const struct world *w, const struct group_info *g) {
    const struct group_info *last = NULL;
    for (unsigned i = 0; i < w->n_groups && &w->groups[i] != g; i++)
        if (w->groups[i].charged)
            last = &w->groups[i];
    return last;
}

/* Every failure of the group has this key, and one was reported in time: then the group was charged for this key. If
 * none was reported, it was charged for a FORM that was not answered. */
static bool all_have(const struct group_info *g, uint64_t key) {
    bool heard = false;
    for (unsigned i = 0; i < g->n_failures; i++) {
        if (g->failures[i].loop_key != key)
            return false;
        heard = heard || g->failures[i].heard;
    }
    return heard && key != 0;
}

void oracle_charged(struct world *w, const struct life *leader, const struct group_info *g) {
    const struct group_info *last = charged_before(w, g);
    if (last != NULL && last->leader == leader && w->p.group.rdzv.exclude_after == 0 &&
        all_have(g, g->failures[0].loop_key) && all_have(last, g->failures[0].loop_key))
        world_broken(w, "I6: %u.%u failed as the group before, and is started again", G(g->generation));
}

void oracle_ended_for_loop(struct world *w, const struct group_info *g) {
    const struct group_info *last = charged_before(w, g);
    for (unsigned i = 0; i < g->n_failures; i++)
        for (unsigned k = 0; last != NULL && k < last->n_failures; k++)
            if (g->failures[i].loop_key != 0 && g->failures[i].loop_key == last->failures[k].loop_key)
                return;
    world_broken(w, "I6: the job ends for a crash loop, and no early failure of %u.%u came twice", G(g->generation));
}

void oracle_ended_for(struct world *w, const struct life *leader, const struct group_info *g, const struct failure *f) {
    if (f->kind == FAILURE_NODE)
        return; /* no worker's: a FORM that was not answered */
    for (unsigned i = 0; i < g->n_failures; i++) {
        const struct true_failure *named = &g->failures[i];
        if (named->incarnation != f->incarnation || named->local != f->local_rank)
            continue;
        if (!oracle_could_be_charged(w, g))
            world_broken(w, "I6: the job ends for a failure that was a loss");
        /* With one node in the job, its loss would end the job, too: the cause is told at once, and stays if another
         * node joins meanwhile. */
        if (named->ends_node && !g->stopped_alone && group_nodes(leader->lead.group, NULL, 0) > 1) {
            w->ended_for = named->incarnation;
            w->ended_for_ns = named->at_ns;
        }
        return;
    }
}
