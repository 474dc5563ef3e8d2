/* Misfortunes, and what each does. */
#include <signal.h>
#include <string.h>

#include "world_priv.h"

static const char *const fault_names[FAULT_KIND_COUNT] = {
    [FAULT_BOOT] = "boot",
    [FAULT_WORKER] = "worker fails",
    [FAULT_WORKERS] = "workers fail",
    [FAULT_KILL_WORKERS] = "all workers killed",
    [FAULT_AGENT_KILL] = "agent killed",
    [FAULT_HOST_OFF] = "host off",
    [FAULT_FREEZE_AGENT] = "agent frozen",
    [FAULT_FREEZE_HOST] = "host frozen",
    [FAULT_PAUSE] = "all hosts paused",
    [FAULT_FENCE_LATE] = "guardian fences late",
    [FAULT_CUT] = "connection cut",
    [FAULT_PARTITION] = "partition",
    [FAULT_DELAY] = "delay",
    [FAULT_PREPARE_FAILS] = "prepare fails",
    [FAULT_PREPARE_SLOW] = "prepare is slow",
    [FAULT_SPAWN_FAILS] = "spawn fails",
    [FAULT_IGNORE_TERM] = "workers ignore SIGTERM",
    [FAULT_UNKILLABLE] = "workers can't be killed",
    [FAULT_STORE_FAILS] = "store fails",
    [FAULT_OPERATOR_STOP] = "operator stops the job",
    [FAULT_LEAVE] = "node told to leave",
    [FAULT_ARBITER_OUT] = "no arbiter",
    [FAULT_ARBITER_SLOW] = "slow arbiter",
    [FAULT_ARBITER_EMPTIED] = "the arbiter's data is gone",
    [FAULT_TOUCH_FAILS] = "the mark can't be touched",
    [FAULT_SAFE_POINT] = "safe point",
    [FAULT_EXCLUDE] = "operator excludes",
    [FAULT_GROW] = "operator grows",
    [FAULT_STOP] = "operator's command to stop",
    [FAULT_HANG] = "hang",
    [FAULT_SICK] = "sick",
    [FAULT_CROWD] = "a silent crowd joins",
};

void fault_print(const struct fault *f, FILE *out) {
    (void)fprintf(out, "  %10.6f s  host %u: %s (%lld, %lld)\n", (double)f->at_ns / 1e9, f->host, fault_names[f->kind],
                  (long long)f->arg, (long long)f->arg2);
}

static const char *const mutant_names[MUTANT_COUNT] = {
    [MUTANT_NONE] = "none",
    [MUTANT_SKIP_ACK] = "START without waiting for the acks",
    [MUTANT_SILENT_IS_GONE] = "a silent probe means gone",
    [MUTANT_DISCONNECT_IS_GONE] = "the end of a connection means gone",
    [MUTANT_START_NO_LEASE] = "START without a lease",
    [MUTANT_LEASE_FROM_RECEIPT] = "a lease counts from its receipt",
    [MUTANT_NO_FENCE] = "no fence at the end of a lease",
    [MUTANT_NO_GUARDIAN] = "no guardian for a frozen agent",
    [MUTANT_STALE_FAILURE] = "an old failure counts for the present group",
    [MUTANT_NO_MARGIN] = "lost at the end of the lease, without margin",
    [MUTANT_KEEP_WORKERS] = "stopped is said while workers run",
    [MUTANT_FAILED_IS_STOPPED] = "a failed node counts as stopped",
    [MUTANT_WRONG_RANK] = "two nodes get one place",
    [MUTANT_RAW_CLOCKS] = "clocks of nodes are not brought together",
    [MUTANT_TOO_MANY] = "one node more than max",
    [MUTANT_CHARGE_TWICE] = "a failure is charged by node and leader",
    [MUTANT_NO_WAIT] = "a new leader waits for no old lease",
    [MUTANT_CLAIM_ANY] = "every claim is won",
    [MUTANT_ECHO_NOW] = "an old echo counts as one of now",
    [MUTANT_ECHO_ALL] = "any node's echo is the first successor's",
    [MUTANT_NO_ARBITER_TERM] = "a silent arbiter agrees",
    [MUTANT_NO_LEADER_FILE_TERM] = "leases do not hang on the mark",
    [MUTANT_ANY_LEASE] = "START with another leader's lease",
    [MUTANT_EARLY_CLOSED] = "CLOSED before the arbiter has it",
    [MUTANT_HAS_LEADER] = "a claim by one that has a leader",
    [MUTANT_STILL_BEAT] = "every beat stands still",
    [MUTANT_PEER_SILENT_IS_GONE] = "nodes take a silent probe for gone",
    [MUTANT_FORGET] = "a new leader forgets the counters",
    [MUTANT_DEAF] = "a leader hears of no higher epoch",
    [MUTANT_SAME_EPOCH] = "the endpoint founds one epoch twice",
    [MUTANT_OLD_LEADER_FILE] = "the endpoint does not wait for the mark",
    [MUTANT_LEAVES_RUNNING] = "a leader leaves while others run",
    [MUTANT_VACATES_FIRST] = "the end is recorded before the workers are dead",
    [MUTANT_ALL_VACANT] = "every epoch is vacant",
    [MUTANT_ALL_IDLE] = "every epoch is idle",
    [MUTANT_FORMS_IDLE] = "a group in an idle epoch",
    [MUTANT_STAYS_IDLE] = "the epoch of the first group is idle",
    [MUTANT_LOST_IS_IDLE] = "who lost a claim leads idle after the winner",
    [MUTANT_RUIN_IS_SILENCE] = "an arbiter without data is out of reach",
    [MUTANT_RUIN_AT_ONCE] = "an arbiter without data ends the job at once",
    [MUTANT_RUIN_UNSEEN] = "another job's arbiter is one's own",
    [MUTANT_SPLIT_UNIT] = "a group of any number of nodes",
    [MUTANT_FOR_EVER] = "a group that ends without a failure is free for ever",
    [MUTANT_NEVER_PROGRESS] = "no group runs for long enough",
    [MUTANT_PROBE_CROWD] = "a crowd is probed without a rate",
    [MUTANT_KILL_IS_FAILURE] = "a kill is a failure, though the node is lost",
    [MUTANT_NO_ECHO] = "no failure is the echo of a loss",
    [MUTANT_END_AT_ONCE] = "the job ends at once for a kill",
    [MUTANT_EARLY_WORDS] = "a cause is told before it is sure",
    [MUTANT_LATE_IS_EARLY] = "late failures make a crash loop",
    [MUTANT_EARLY_IS_LATE] = "no failure makes a crash loop",
    [MUTANT_PAUSE_KILLS] = "a pause of all nodes kills the workers",
    [MUTANT_HELD_RUNS] = "workers run while they wait for a lease",
    [MUTANT_ANY_CONTINUES] = "any lease continues paused workers",
    [MUTANT_STALE_FENCE] = "an old fence explains a later SIGKILL",
    [MUTANT_ANY_RUN] = "an agent of any run is taken for one of this",
    [MUTANT_NOT_YET_IS_NEVER] = "a refusal for now is taken for a final one",
    [MUTANT_NO_PAUSE] = "no pause between rounds of the search",
    [MUTANT_PATIENT] = "an attempt never ends by itself",
    [MUTANT_PROBES_UNHEARD] = "probes of other ports find nothing",
    [MUTANT_END_UNHEARD] = "the end of the connection is not noticed",
    [MUTANT_WORKERS_UNSEEN] = "an agent ends before its workers",
    [MUTANT_NODES_UNINFORMED] = "a leader ends before it has informed the nodes",
    [MUTANT_NO_RESIGN] = "a leader whose node has left does not resign",
    [MUTANT_LEADER_LEAVES] = "the only leader leaves instead of ending the job",
    [MUTANT_ANSWER_UNAWAITED] = "an agent does not wait for Slurm's answer",
    [MUTANT_ANSWER_UNHEARD] = "an agent waits for more than the answer",
    [MUTANT_ONE_SIGNAL] = "a second ^C changes nothing",
    [MUTANT_MIXED_UNIT] = "a unit of several domains",
    [MUTANT_ANY_SPARE] = "a spare of another domain",
    [MUTANT_SMALL_GROUP] = "a group that leaves whole units out",
    [MUTANT_LATE_DOMAIN] = "a late domain does not count",
    [MUTANT_SICK_GONE] = "sick nodes are left out whatever remains",
    [MUTANT_SICK_TAKEN] = "sick nodes are taken before others",
};

const char *mutant_name(enum mutant m) { return mutant_names[m]; }

/* ---- what they do ---- */

static void worker_fails(struct world *w, uint32_t host, int32_t code, uint64_t in_ns) {
    struct life *l = node_newest(w, host);
    if (l != NULL && node_has_workers(l))
        worker_exits(w, l, (uint32_t)world_below(w, l->n_workers), code, in_ns);
}

static void workers_killed(struct world *w, uint32_t host, int32_t signo) {
    struct life *l = node_newest(w, host);
    for (uint32_t i = 0; l != NULL && i < l->n_workers; i++)
        worker_exits(w, l, i, -signo, world_below(w, NS_PER_MS / 2));
}

static void disturb(struct world *w, uint32_t host, uint64_t until_ns) {
    struct host *h = &w->hosts[host];
    h->disturbed_until_ns = MAX2(h->disturbed_until_ns, until_ns + NS_PER_S);
    w->troubled_until_ns = MAX2(w->troubled_until_ns, until_ns);
}

static void freeze(struct world *w, const struct fault *f) {
    disturb(w, f->host, w->now_ns + (uint64_t)f->arg);
    if (f->kind == FAULT_FREEZE_AGENT) {
        struct life *l = node_newest(w, f->host);
        if (l == NULL || !l->process || l->frozen)
            return;
        l->frozen = l->disturbed = true;
        world_plan(w, ITEM_THAW_AGENT, l, (uint64_t)f->arg);
        return;
    }
    struct host *h = &w->hosts[f->host];
    if (!h->up || h->frozen)
        return;
    h->frozen = true;
    h->frozen_until_ns = w->now_ns + (uint64_t)f->arg;
    world_plan(w, ITEM_THAW_HOST, NULL, (uint64_t)f->arg)->local = f->host;
}

/* A fixed leader has one life, unless a leader file tells the next of the one before. `again`: it
 * was killed; another start is a user's, who does not start what has ended. */
void fault_boots(struct world *w, uint32_t host, bool again) {
    struct life *l = node_newest(w, host);
    struct host *h = &w->hosts[host];
    if (l != NULL && host == 0 && w->p.group.leadership == LEADERSHIP_NONE) {
        h->up = true;
        return;
    }
    if (l != NULL && !l->process && !again && host == 0 && w->leader_file.outcome != OUTCOME_NONE)
        return;
    if (l != NULL && !h->up && !again && host == 0 && w->p.group.leadership == LEADERSHIP_LEADER_FILE)
        return; /* it comes back in its own time, which is longer than a lease: the leader file is
                   lost */
    h->up = true;
    if (l == NULL || !l->process)
        (void)node_boot(w, host);
}

static void dies(struct world *w, const struct fault *f) {
    struct life *l = node_newest(w, f->host);
    if (f->host == 0 && world_is_fixed(w))
        w->leader_was_killed = true;
    disturb(w, f->host, w->now_ns);
    bool lived = l != NULL && l->process;
    if (f->kind == FAULT_HOST_OFF)
        node_host_off(w, f->host);
    else if (l != NULL)
        node_agent_dies(w, l, (uint64_t)f->arg);
    if (f->arg2 > 0 && lived)
        world_plan(w, ITEM_BOOT, NULL, (uint64_t)f->arg2)->local = f->host;
}

static void told_to_leave(struct world *w, const struct fault *f) {
    struct life *l = node_newest(w, f->host);
    if (l == NULL || !l->process || l->frozen || !host_running(w, f->host))
        return;
    l->ending.grace_ns = (uint64_t)f->arg;
    switch ((enum leave_how)f->arg2) {
    case LEAVE_TERM: ending_signal(w, l, SIGTERM); break;
    case LEAVE_INT: ending_signal(w, l, SIGINT); break;
    case LEAVE_DRAIN:
        if (f->host == 0 && world_is_fixed(w))
            break; /* refused: no other node can lead */
        l->ending.drained = true;
        ending_event(w, l, (struct life_event){.kind = LIFE_EVENT_DRAIN, .reason = "drained"});
        break;
    case LEAVE_FAILS:
        w->leader_was_killed = w->leader_was_killed || (f->host == 0 && world_is_fixed(w));
        l->ending.gave_up = true;
        ending_event(w, l, (struct life_event){.kind = LIFE_EVENT_FAILURE});
        break;
    }
}

static void cut_off(struct world *w, const struct fault *f, uint64_t until) {
    uint32_t mask = (uint32_t)(f->arg2 >> 2);
    for (uint32_t h = 0; h < w->p.n_hosts; h++) {
        if (h == f->host || (mask != 0 && (mask >> h & 1) == 0))
            continue;
        uint64_t *to = &w->blocked_until_ns[h][f->host], *from = &w->blocked_until_ns[f->host][h];
        if ((f->arg2 & PARTITION_TO) != 0)
            *to = MAX2(*to, until);
        if ((f->arg2 & PARTITION_FROM) != 0)
            *from = MAX2(*from, until);
    }
}

static void link_fault(struct world *w, const struct fault *f) {
    struct host *h = &w->hosts[f->host];
    uint64_t until = w->now_ns + (uint64_t)f->arg;
    for (unsigned i = 0; i < w->n_lives; i++)
        w->lives[i].disturbed = w->lives[i].disturbed || w->lives[i].host == f->host;
    disturb(w, f->host, until + (f->kind == FAULT_DELAY ? (uint64_t)f->arg2 : 0));
    if (f->kind == FAULT_DELAY) {
        h->slow_until_ns = until;
        h->slow_max_ns = (uint64_t)f->arg2;
    } else {
        cut_off(w, f, until);
    }
}

static void arbiter_fault(struct world *w, const struct fault *f) {
    uint64_t until = w->now_ns + (uint64_t)f->arg;
    bool out = f->kind == FAULT_ARBITER_OUT;
    w->troubled_until_ns = MAX2(w->troubled_until_ns, until + (out ? 0 : (uint64_t)f->arg2));
    for (uint32_t i = 0; i < w->p.n_hosts; i++) {
        struct host *h = &w->hosts[i];
        if (out && (f->arg2 != 0 || i == f->host))
            h->arbiter_out_until_ns = MAX2(h->arbiter_out_until_ns, until);
        if (!out && i == f->host) {
            h->arbiter_slow_until_ns = until;
            h->arbiter_slow_max_ns = (uint64_t)f->arg2;
        }
    }
}

static void operator_acts(struct world *w, const struct fault *f) {
    struct life *l = leader_now(w);
    if (l == NULL || l->frozen || !host_running(w, l->host))
        return;
    struct command c = {.kind = COMMAND_GROW};
    if (f->kind == FAULT_OPERATOR_STOP) {
        ending_event(w, l, (struct life_event){.kind = LIFE_EVENT_ORDER, .signo = SIGTERM});
        return;
    }
    if (f->kind == FAULT_EXCLUDE) {
        c.kind = COMMAND_EXCLUDE;
        (void)snprintf(c.node, sizeof c.node, "node%u", f->host);
    } else if (f->kind == FAULT_STOP) {
        c.kind = COMMAND_STOP;
    }
    (void)snprintf(c.reason, sizeof c.reason, "by hand");
    leader_command(w, l, &c);
}

static void safe_point(struct world *w, uint32_t host) {
    struct life *l = node_newest(w, host);
    if (l == NULL || !l->process || l->frozen || !host_running(w, host) || !node_has_workers(l) || l->stopping)
        return;
    node_event(w, l,
               &(struct member_event){
                   .kind = MEMBER_EVENT_STEP, .generation = l->generation, .first_step = 1, .last_step = 1});
    node_event(w, l,
               &(struct member_event){
                   .kind = MEMBER_EVENT_SAFE_POINT, .generation = l->generation, .first_step = 1, .last_step = 9});
}

/* The host that is meant; false: there is no such leader or successor now. */
static bool resolve(struct world *w, struct fault *f) {
    if (f->host < WORLD_HOSTS_MAX)
        return true;
    struct life *l = f->host == HOST_LEADER ? leader_now(w) : leader_successor(w, f->host - HOST_SUCCESSOR(0));
    if (l != NULL)
        f->host = l->host;
    return l != NULL;
}

void fault_happens(struct world *w, const struct fault *fault) {
    struct fault resolved = *fault, *f = &resolved;
    if (!resolve(w, f))
        return;
    struct host *h = &w->hosts[f->host];
    struct life *l = node_newest(w, f->host);
    w->coverage->faults[f->kind]++;
    w->troubled_until_ns = MAX2(w->troubled_until_ns, w->now_ns);
    world_trace(w, "FAULT host %u: %s (%lld, %lld)", f->host, fault_names[f->kind], (long long)f->arg,
                (long long)f->arg2);
    switch (f->kind) {
    case FAULT_BOOT: fault_boots(w, f->host, f->arg != 0); break;
    case FAULT_WORKER: worker_fails(w, f->host, (int32_t)f->arg, 0); break;
    case FAULT_WORKERS:
        for (uint32_t i = 0; i < w->p.n_hosts; i++)
            if ((f->arg >> i & 1) != 0)
                worker_fails(w, i, 7, world_below(w, (uint64_t)f->arg2 + 1));
        break;
    case FAULT_KILL_WORKERS: workers_killed(w, f->host, (int32_t)f->arg); break;
    case FAULT_AGENT_KILL:
    case FAULT_HOST_OFF: dies(w, f); break;
    case FAULT_FREEZE_AGENT:
    case FAULT_FREEZE_HOST: freeze(w, f); break;
    case FAULT_PAUSE:
        for (uint32_t i = 0; i < w->p.n_hosts; i++)
            freeze(w, &(struct fault){.kind = FAULT_FREEZE_HOST,
                                      .host = i,
                                      .arg = f->arg + (int64_t)world_below(w, (uint64_t)f->arg2 + 1)});
        break;
    case FAULT_FENCE_LATE:
        disturb(w, f->host, w->now_ns);
        if (l != NULL && host_running(w, l->host))
            guardian_fences_now(w, l);
        break;
    case FAULT_CUT:
        if (l != NULL)
            net_cut(w, l, (enum cut_mode)f->arg);
        break;
    case FAULT_PARTITION:
    case FAULT_DELAY: link_fault(w, f); break;
    case FAULT_PREPARE_FAILS: h->prepare_fails = true; break;
    case FAULT_PREPARE_SLOW: h->prepare_slow = true; break;
    case FAULT_SPAWN_FAILS: h->spawn_fails = true; break;
    case FAULT_IGNORE_TERM: h->ignore_term = true; break;
    case FAULT_UNKILLABLE:
        if (l != NULL && node_has_workers(l))
            l->unkillable = true;
        break;
    case FAULT_STORE_FAILS: w->store_fails = true; break;
    case FAULT_LEAVE: told_to_leave(w, f); break;
    case FAULT_ARBITER_OUT:
    case FAULT_ARBITER_SLOW: arbiter_fault(w, f); break;
    case FAULT_ARBITER_EMPTIED: arbiter_emptied(w, (uint64_t)f->arg, f->arg2 != 0); break;
    case FAULT_TOUCH_FAILS:
        w->touch_fails_until_ns = MAX2(w->touch_fails_until_ns, w->now_ns + (uint64_t)f->arg);
        break;
    case FAULT_SAFE_POINT: safe_point(w, f->host); break;
    case FAULT_OPERATOR_STOP:
    case FAULT_EXCLUDE:
    case FAULT_GROW:
    case FAULT_STOP: operator_acts(w, f); break;
    case FAULT_HANG:
        if (l != NULL)
            leader_says_hang(w, l, f->arg == 1);
        break;
    case FAULT_SICK:
        if (l != NULL && l->process && !l->frozen && host_running(w, l->host))
            node_event(
                w, l,
                &(struct member_event){.kind = MEMBER_EVENT_HEALTH, .sick = f->arg != 0 ? WORLD_SICK : "", .gpu = -1});
        break;
    case FAULT_CROWD:
        if (l != NULL)
            leader_crowd(w, l, (unsigned)f->arg);
        break;
    case FAULT_KIND_COUNT: assert_not_reached();
    }
}

bool world_has_fault(const struct world_params *p, enum fault_kind kind) {
    for (size_t i = 0; i < p->n_faults; i++)
        if (p->faults[i].kind == kind)
            return true;
    return false;
}
