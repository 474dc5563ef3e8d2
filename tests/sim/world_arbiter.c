/* What outlives the agents: the arbiter's record, which changes in one place and at one moment,
 * whatever happens to the asking and the answer; and the leader file on the endpoint's host. */
#include <string.h>

#include "world_priv.h"

/* ---- the arbiter ---- */

static void answer_in(struct world *w, struct life *l, struct asked *a, uint64_t in_ns) {
    struct item *it = world_plan(w, ITEM_ARBITER_ANSWER, l, in_ns);
    it->asked = a;
    a->users++;
}

/* How long the request is under way, and whether its answer comes at all. */
static uint64_t way(struct world *w, uint32_t host) {
    uint64_t d = w->p.delay_min_ns + world_below(w, w->p.delay_max_ns - w->p.delay_min_ns + 1);
    const struct host *h = &w->hosts[host];
    if (w->now_ns < h->arbiter_slow_until_ns)
        d += world_below(w, h->arbiter_slow_max_ns + 1);
    return d;
}

void arbiter_asked(struct world *w, struct life *l, const struct arbiter_request *request, bool by_group) {
    struct asked *a = xcalloc(1, sizeof *a);
    a->answer.request = *request;
    a->answer.started_ns = world_clock(w, l->host);
    a->by_group = by_group;
    a->version = l->lead.version;
    if (by_group)
        node_peer(l, &a->answer.request.leader);
    if (request->kind == ARBITER_CLAIM && !by_group && request->leader.incarnation != l->incarnation)
        world_broken(w, "%u.%u claims for another", l->host, l->index);
    if (l->n_requests == ARBITER_REQUESTS_MAX) {
        world_broken(w, "I7: %u.%u asks the arbiter too much at once", l->host, l->index);
        a->answer.result = ARBITER_UNREACHABLE;
        a->given_up = true;
        l->n_requests++;
        answer_in(w, l, a, 1);
        return;
    }
    l->n_requests++;
    uint64_t in = way(w, l->host);
    const struct host *h = &w->hosts[l->host];
    if (w->now_ns < h->arbiter_out_until_ns) {
        /* It is lost, or lies somewhere and arrives when nobody waits for it any more. */
        if (world_chance(w, 50))
            in = h->arbiter_out_until_ns - w->now_ns + world_below(w, 10 * NS_PER_S);
        else
            in = TIME_NEVER;
    }
    if (in != TIME_NEVER) {
        struct item *it = world_plan(w, ITEM_ARBITER_HEARS, l, in);
        it->asked = a;
        a->users++;
    }
    answer_in(w, l, a, ARBITER_TIMEOUT_NS);
}

static bool same_life(const struct rdzv_peer *a, const struct rdzv_peer *b) { return a->incarnation == b->incarnation; }

static enum arbiter_result claim(struct world *w, struct life *l, const struct arbiter_request *r) {
    struct arbiter_record *now = &w->record;
    if (now->closed)
        return ARBITER_LOST;
    if (now->epoch >= r->epoch) {
        bool still = now->epoch == r->epoch && same_life(&now->leader, &r->leader) && !now->vacant;
        return still ? ARBITER_OK : ARBITER_LOST;
    }
    if (r->epoch != now->epoch + 1)
        world_broken(w, "I1: epoch %u is claimed after %u", r->epoch, now->epoch);
    if (r->epoch >= WORLD_EPOCHS_END) {
        world_broken(w, "I7: %u epochs, and no end", r->epoch);
        return ARBITER_LOST;
    }
    now->epoch = r->epoch;
    now->leader = r->leader;
    now->vacant = false;
    now->idle = r->idle || (w->p.mutant == MUTANT_STAYS_IDLE && now->idle);
    now->beat++;
    w->won[r->epoch] = r->leader.incarnation;
    w->idle[r->epoch] = r->idle;
    world_trace(w, "arbiter: epoch %u is %u.%u's%s", r->epoch, l->host, l->index, r->idle ? ", idle" : "");
    world_leader_file(w, LEADER_FILE_CLAIMED, l->host);
    oracle_claimed(w, l, r->epoch);
    return ARBITER_OK;
}

static enum arbiter_result close_job(struct world *w, struct life *l, const struct arbiter_request *r) {
    struct arbiter_record *now = &w->record;
    if (now->closed)
        return now->outcome == r->outcome ? ARBITER_OK : ARBITER_LOST;
    bool own = now->epoch == r->epoch && same_life(&now->leader, &r->leader) && !now->vacant;
    if (now->epoch >= r->epoch && !own)
        return ARBITER_LOST;
    now->closed = true;
    now->idle = false;
    now->outcome = r->outcome;
    (void)snprintf(now->reason, sizeof now->reason, "%s", r->reason);
    world_trace(w, "arbiter: closed by %u.%u with %d: %s", l->host, l->index, (int)r->outcome, r->reason);
    world_leader_file(w, LEADER_FILE_CLOSED_THERE, l->host);
    return ARBITER_OK;
}

/* Only its own epoch. */
static enum arbiter_result vacate(struct world *w, struct life *l, const struct arbiter_request *r) {
    struct arbiter_record *now = &w->record;
    bool own = same_life(&now->leader, &r->leader) && !now->closed;
    if (own && now->vacant && now->epoch == r->epoch + 1)
        return ARBITER_OK;
    if (!own || now->vacant || now->epoch != r->epoch)
        return ARBITER_LOST;
    now->epoch++;
    now->vacant = true;
    w->vacated[now->epoch] = l->incarnation;
    now->idle = false;
    world_trace(w, "arbiter: %u.%u leaves epoch %u vacant", l->host, l->index, now->epoch);
    world_leader_file(w, LEADER_FILE_VACANT, l->host);
    oracle_vacated(w, l, now->epoch);
    return ARBITER_OK;
}

static enum arbiter_result judge(struct world *w, struct life *l, const struct arbiter_request *r) {
    switch (r->kind) {
    case ARBITER_READ: return ARBITER_OK;
    case ARBITER_CLAIM: return claim(w, l, r);
    case ARBITER_BEAT:
        if (w->record.epoch == r->epoch && !w->record.vacant && same_life(&w->record.leader, &r->leader))
            w->record.beat++;
        return ARBITER_OK;
    case ARBITER_CLOSE: return close_job(w, l, r);
    case ARBITER_VACATE: return vacate(w, l, r);
    case ARBITER_KIND_COUNT: break;
    }
    assert_not_reached();
}

bool arbiter_is_emptied(const struct world *w) { return w->now_ns < w->emptied_until_ns; }

void arbiter_emptied(struct world *w, uint64_t for_ns, bool other_job) {
    if (w->record.epoch == 0 || w->record.closed || w->was_emptied)
        return; /* nothing to lose */
    w->was_emptied = for_ns == 0;
    w->emptied_until_ns = for_ns == 0 ? TIME_NEVER : w->now_ns + for_ns;
    w->other_job = other_job;
    world_leader_file(w, LEADER_FILE_EMPTIED, WORLD_HOSTS_MAX);
    w->troubled_until_ns = MAX2(w->troubled_until_ns, for_ns == 0 ? w->now_ns : w->emptied_until_ns);
    if (w->was_emptied)
        world_plan(w, ITEM_RUIN_OVER, NULL, 0);
}

/* Wrong rules about what a member hears. */
static void mutate_answer(const struct world *w, const struct arbiter_request *r, struct arbiter_answer *a) {
    struct arbiter_record *record = &a->record;
    bool led = record->epoch > 0 && !record->closed;
    if (w->p.mutant == MUTANT_STILL_BEAT)
        record->beat = 1;
    if (w->p.mutant == MUTANT_ALL_VACANT && r->kind == ARBITER_READ)
        record->vacant = led;
    if (w->p.mutant == MUTANT_ALL_IDLE && r->kind == ARBITER_READ)
        record->idle = led && !record->vacant;
    if (w->p.mutant == MUTANT_LOST_IS_IDLE && r->idle && a->result == ARBITER_LOST)
        record->idle = led && !record->vacant;
}

/* What is there while the data is gone. Who has seen nothing before would begin another job: such
 * agents can't make anything there in these worlds. */
static void judge_ruin(struct world *w, struct life *l, struct asked *a) {
    const struct arbiter_request *r = &a->answer.request;
    struct arbiter_record others = {.epoch = 1, .leader.incarnation = UINT64_C(0xff00)};
    (void)snprintf(a->answer.text, sizeof a->answer.text, "it was removed");
    a->answer.result = l->knows_arbiter ? ARBITER_RUINED : ARBITER_UNREACHABLE;
    a->answer.record = w->other_job ? others : (struct arbiter_record){0};
    if (!l->knows_arbiter)
        return;
    if (w->p.mutant == MUTANT_RUIN_IS_SILENCE)
        a->answer.result = ARBITER_UNREACHABLE;
    if (w->p.mutant == MUTANT_RUIN_AT_ONCE)
        a->answer.record = others;
    if (w->p.mutant != MUTANT_RUIN_UNSEEN || !w->other_job)
        return;
    a->answer.result = r->kind == ARBITER_CLAIM && r->epoch <= 1 ? ARBITER_LOST : ARBITER_OK;
    if (r->kind == ARBITER_CLAIM && r->epoch > 1)
        world_broken(w, "I2: %u.%u claims an epoch of another job", l->host, l->index);
}

static void hears(struct world *w, struct item *it) {
    struct asked *a = it->asked;
    const struct arbiter_request *r = &a->answer.request;
    if (arbiter_is_emptied(w)) {
        if (a->given_up)
            return;
        judge_ruin(w, it->life, a);
        answer_in(w, it->life, a, way(w, it->life->host));
        return;
    }
    if (w->p.mutant == MUTANT_EARLY_CLOSED && r->kind == ARBITER_CLOSE && it->version == 0) {
        /* It says so, and will do it. */
        a->answer.result = ARBITER_OK;
        a->answer.record = w->record;
        answer_in(w, it->life, a, NS_PER_MS);
        struct item *later = world_plan(w, ITEM_ARBITER_HEARS, it->life, 2 * NS_PER_S);
        later->asked = a;
        later->version = 1;
        a->users++;
        return;
    }
    enum arbiter_result result = judge(w, it->life, r);
    it->life->knows_arbiter = it->life->knows_arbiter || w->record.epoch > 0;
    if (a->given_up)
        return;
    a->answer.result = result;
    a->answer.record = w->record;
    if (result == ARBITER_LOST && r->kind == ARBITER_CLAIM && w->p.mutant == MUTANT_CLAIM_ANY) {
        a->answer.result = ARBITER_OK;
        a->answer.record.epoch = r->epoch;
        a->answer.record.leader = r->leader;
        a->answer.record.closed = false;
    }
    if (!a->by_group)
        mutate_answer(w, r, &a->answer);
    else if (w->p.mutant == MUTANT_STAYS_IDLE && r->kind == ARBITER_CLAIM)
        a->answer.record.idle = r->idle;
    if (w->now_ns < w->hosts[it->life->host].arbiter_out_until_ns)
        return; /* done, and the answer is lost */
    answer_in(w, it->life, a, way(w, it->life->host));
}

static void answers(struct world *w, struct item *it) {
    struct asked *a = it->asked;
    struct life *l = it->life;
    if (a->given_up && a->answer.result != ARBITER_UNREACHABLE)
        return;
    uint64_t taken = world_clock(w, l->host) - a->answer.started_ns;
    if (a->answer.result == 0 || taken > ARBITER_TIMEOUT_NS / 100 * 99) {
        a->answer.result = ARBITER_UNREACHABLE;
        (void)snprintf(a->answer.text, sizeof a->answer.text, "no answer within 5 s");
    }
    struct arbiter_answer answer = a->answer;
    a->given_up = true;
    a->answer.result = ARBITER_OK; /* whatever comes now comes too late */
    l->n_requests--;
    if (answer.result == ARBITER_UNREACHABLE)
        memset(&answer.record, 0, sizeof answer.record);
    world_trace(w, "arbiter to %u.%u: request %d of epoch %u is %s", l->host, l->index, (int)answer.request.kind,
                answer.request.epoch,
                answer.result == ARBITER_OK       ? "done"
                : answer.result == ARBITER_LOST   ? "lost"
                : answer.result == ARBITER_RUINED ? "ruined"
                                                  : "unanswered");
    if (!a->by_group)
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &answer});
    else if (a->version == l->lead.version && l->lead.group != NULL)
        leader_answer(w, l, &answer);
}

/* ---- the leader file ---- */

/* A new agent at the endpoint: the first, or after one that has not closed the job, or has. */
void leader_file_found(struct world *w, struct life *l, struct group_config *config) {
    uint64_t wait = config->rdzv.lease_ns + config->rdzv.margin_ns;
    if (!w->leader_file.there) {
        /* A reboot has taken it: the host was down for longer than a lease. */
        config->epoch = w->leader_file.epoch + 1;
    } else if (w->leader_file.outcome != OUTCOME_NONE) {
        config->epoch = w->leader_file.epoch + 1;
    } else {
        config->epoch = w->leader_file.epoch + (w->p.mutant != MUTANT_SAME_EPOCH);
        config->not_before_ns = w->leader_file.touched_ns + wait;
        if (w->p.mutant == MUTANT_OLD_LEADER_FILE)
            config->not_before_ns = 0;
        config->absent_until_ns = config->not_before_ns;
    }
    if (w->jobs[w->job].closed) /* whether or not the leader file could be told */
        w->job = MIN2(w->job + 1, WORLD_JOBS_MAX - 1u);
    w->leader_file.there = true;
    w->leader_file.epoch = config->epoch;
    w->leader_file.outcome = OUTCOME_NONE;
    w->leader_file.touched_ns = world_clock(w, l->host);
    l->job = w->job;
    world_trace(w, "the mark: epoch %u at %u.%u", config->epoch, l->host, l->index);
}

/* Done at once, as the agent does it; its word comes before everything that comes later. */
void leader_file_touch(struct world *w, struct life *l, enum outcome outcome) {
    bool works = w->now_ns >= w->touch_fails_until_ns;
    if (works) {
        w->leader_file.touched_ns = world_clock(w, l->host);
        if (outcome != OUTCOME_NONE)
            w->leader_file.outcome = outcome;
    }
    struct item *it = world_plan(w, ITEM_TOUCHED, l, 0);
    it->clock_ns = works ? world_clock(w, l->host) : 0;
    it->version = l->lead.version;
}

void arbiter_item(struct world *w, struct item *it) {
    if (it->kind == ITEM_ARBITER_HEARS) {
        hears(w, it);
    } else if (it->kind == ITEM_ARBITER_ANSWER) {
        answers(w, it);
    } else if (it->version == it->life->lead.version) {
        leader_touched(w, it->life, it->clock_ns);
    }
}
