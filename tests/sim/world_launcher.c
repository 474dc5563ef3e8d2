/* What the agent does with worker processes, the workers themselves, and the guardian above them. */
#include <string.h>

#include "world_priv.h"

#define OWN_GRACE_NS (3 * NS_PER_S) /* --shutdown-timeout */
#define GUARDIAN_PATIENCE_NS (250 * NS_PER_MS)
#define KILL_NS (3 * NS_PER_MS) /* from SIGKILL to dead, at most */
#define UNKILLABLE_NS (5 * NS_PER_S)

bool node_has_workers(const struct life *l) {
    for (uint32_t i = 0; i < l->n_workers; i++)
        if (l->workers[i].alive)
            return true;
    return false;
}

bool node_runs_workers(const struct life *l) {
    for (uint32_t i = 0; i < l->n_workers; i++)
        if (l->workers[i].alive && !l->workers[i].stopped)
            return true;
    return false;
}

static void plan_exit(struct world *w, struct life *l, uint32_t local, int32_t code, uint64_t in_ns) {
    struct item *it = world_plan(w, ITEM_WORKER_EXIT, l, in_ns);
    it->local = local;
    it->code = code;
    it->version = ++l->workers[local].version;
}

void worker_exits(struct world *w, struct life *l, uint32_t local, int32_t code, uint64_t in_ns) {
    if (local < l->n_workers && l->workers[local].alive && !l->workers[local].dying)
        plan_exit(w, l, local, code, in_ns);
}

static void kill_all(struct world *w, struct life *l) {
    for (uint32_t i = 0; i < l->n_workers; i++) {
        struct worker *k = &l->workers[i];
        if (!k->alive || l->unkillable)
            continue;
        if (w->p.kills_nothing)
            world_broken(w, "workers of %u.%u are killed", l->host, l->index);
        k->killed_by_us = k->dying = true;
        plan_exit(w, l, i, -9, 1 + world_below(w, KILL_NS));
    }
}

/* ---- the launcher's orders ---- */

void launcher_prepare(struct world *w, struct life *l, struct generation g) {
    struct host *h = &w->hosts[l->host];
    if (node_has_workers(l))
        world_broken(w, "%u.%u is told to prepare %u.%u while workers run", l->host, l->index, g.epoch, g.counter);
    l->launch_version++;
    bool fails = h->prepare_fails;
    h->prepare_fails = false;
    uint64_t in = 1 + world_below(w, 30 * NS_PER_MS);
    if (h->prepare_slow)
        in = w->p.group.form_timeout_ns * 3;
    h->prepare_slow = false;
    struct item *it = world_plan(w, fails ? ITEM_PREPARE_FAILED : ITEM_PREPARED, l, in);
    it->version = l->launch_version;
    it->generation = g;
}

void launcher_start(struct world *w, struct life *l, struct generation g) {
    struct host *h = &w->hosts[l->host];
    if (node_has_workers(l)) {
        world_broken(w, "I2: %u.%u starts %u.%u while workers of %u.%u run there", l->host, l->index, g.epoch,
                     g.counter, l->generation.epoch, l->generation.counter);
        return;
    }
    l->launch_version++;
    l->generation = g;
    l->spawned = true;
    l->spawned_ns = w->now_ns;
    l->succeeded = l->stopping = l->said_all_gone = false;
    l->fences_before = l->fences;
    l->n_workers = w->p.nproc[l->host];
    l->n_failed = 0;
    for (uint32_t i = 0; i < l->n_workers; i++) {
        uint64_t version = l->workers[i].version;
        l->workers[i] = (struct worker){.alive = true, .ignores_term = h->ignore_term, .version = version};
    }
    h->ignore_term = false;
    if (h->spawn_fails) {
        h->spawn_fails = false;
        l->workers[l->n_workers - 1].alive = false;
        struct item *it = world_plan(w, ITEM_SPAWN_FAILED, l, 1 + world_below(w, 5 * NS_PER_MS));
        it->version = l->launch_version;
        it->generation = g;
    }
    oracle_worker_starts(w, l);
}

static void plan_all_gone(struct world *w, struct life *l) {
    struct item *it = world_plan(w, ITEM_ALL_GONE, l, 1 + world_below(w, 20 * NS_PER_MS));
    it->version = l->launch_version;
    it->generation = l->generation;
}

static void begin_ending(struct world *w, struct life *l) {
    if (!l->stopping)
        l->launch_version++; /* what was being prepared is dropped */
    if (!l->stopping || l->said_all_gone)
        l->kill_at_ns = TIME_NEVER;
    l->stopping = true;
    l->said_all_gone = false;
    if (!node_has_workers(l))
        plan_all_gone(w, l);
}

void launcher_stop(struct world *w, struct life *l, uint64_t grace_ns) {
    begin_ending(w, l);
    if (w->p.mutant == MUTANT_KEEP_WORKERS && node_has_workers(l)) {
        plan_all_gone(w, l);
        return;
    }
    uint64_t grace = grace_ns == UINT64_MAX ? OWN_GRACE_NS : grace_ns;
    for (uint32_t i = 0; i < l->n_workers; i++) {
        struct worker *k = &l->workers[i];
        if (!k->alive || k->ignores_term || k->dying || l->unkillable)
            continue;
        k->killed_by_us = k->dying = true;
        plan_exit(w, l, i, -15, 1 + world_below(w, 300 * NS_PER_MS));
    }
    if (!node_has_workers(l) || w->now_ns + grace >= l->kill_at_ns)
        return;
    l->kill_at_ns = w->now_ns + grace;
    world_plan(w, ITEM_GRACE_OVER, l, grace)->version = l->launch_version;
}

static void kill_and_watch(struct world *w, struct life *l) {
    kill_all(w, l);
    if (l->unkillable && node_has_workers(l))
        world_plan(w, ITEM_UNKILLABLE, l, UNKILLABLE_NS)->version = l->launch_version;
}

void launcher_fence(struct world *w, struct life *l) {
    begin_ending(w, l);
    world_leader_file(w, LEADER_FILE_FENCED, l->host);
    if (w->p.mutant != MUTANT_NO_FENCE)
        kill_and_watch(w, l);
}

void launcher_kill(struct world *w, struct life *l) {
    if (!node_has_workers(l))
        return;
    begin_ending(w, l);
    kill_and_watch(w, l);
}

static void stop_all(struct life *l, bool stopped) {
    for (uint32_t i = 0; i < l->n_workers; i++)
        l->workers[i].stopped = stopped;
}

void launcher_hold(struct world *w, struct life *l) {
    if (w->p.mutant == MUTANT_PAUSE_KILLS)
        kill_all(w, l);
    stop_all(l, w->p.mutant != MUTANT_HELD_RUNS);
}

void launcher_resume(struct world *w, struct life *l) {
    stop_all(l, false);
    world_leader_file(w, LEADER_FILE_RESUMED, l->host);
    oracle_workers_continue(w, l);
}

/* ---- the guardian ---- */

#define GUARDIAN_HOLDS 6
#define GUARDIAN_REPEAT_NS (100 * NS_PER_MS)

void guardian_hold(struct world *w, struct life *l, uint64_t lease_end_ns) {
    l->guard_end_ns = lease_end_ns;
    l->guard_version++;
    l->guard_times = 0;
    if (lease_end_ns == TIME_NEVER)
        return;
    uint64_t at = world_when_clock(w, l->host, lease_end_ns + GUARDIAN_PATIENCE_NS);
    world_plan(w, ITEM_GUARD, l, at > w->now_ns ? at - w->now_ns : 0)->version = l->guard_version;
}

void guardian_fences_now(struct world *w, struct life *l) {
    l->fences += node_has_workers(l);
    kill_all(w, l);
}

/* Time in which the guardian itself did not run does not count. */
static void guardian_acts(struct world *w, struct life *l) {
    if (++l->guard_times > GUARDIAN_HOLDS) {
        guardian_fences_now(w, l);
        return;
    }
    stop_all(l, w->p.mutant != MUTANT_HELD_RUNS);
    world_plan(w, ITEM_GUARD, l, GUARDIAN_REPEAT_NS)->version = l->guard_version;
}

void guardian_sweeps(struct world *w, struct life *l, uint64_t sweep_ns) {
    if (l->guard_end_ns != TIME_NEVER) { /* it would have killed them by then in any case */
        uint64_t at = world_when_clock(w, l->host, l->guard_end_ns + GUARDIAN_PATIENCE_NS);
        sweep_ns = MIN2(sweep_ns, at > w->now_ns ? at - w->now_ns : 0);
    }
    l->swept_by_ns = w->now_ns + sweep_ns;
    for (uint32_t i = 0; i < l->n_workers; i++) {
        struct worker *k = &l->workers[i];
        if (!k->alive || l->unkillable)
            continue;
        k->killed_by_us = k->dying = true;
        plan_exit(w, l, i, -9, world_below(w, sweep_ns + 1));
    }
    world_plan(w, ITEM_SWEEP, l, sweep_ns + NS_PER_US);
}

static void sweep(struct world *w, struct life *l) {
    if (node_has_workers(l) && !l->unkillable)
        world_plan(w, ITEM_SWEEP, l, NS_PER_MS);
    else if (!node_has_workers(l))
        l->listener = false; /* closed last, when nothing is left */
}

/* ---- the workers ---- */

/* The others lose a peer: some fail of it, the rest hang. */
static void make_noise(struct world *w, const struct life *failed) {
    if (w->p.noise_ns == 0)
        return;
    for (unsigned i = 0; i < w->n_lives; i++) {
        struct life *l = &w->lives[i];
        if (!l->spawned || generation_compare(l->generation, failed->generation) != 0)
            continue;
        for (uint32_t k = 0; k < l->n_workers; k++)
            if (l->workers[k].alive && !l->workers[k].dying && world_chance(w, 60))
                worker_exits(w, l, k, 1, 20 * NS_PER_MS + world_below(w, w->p.noise_ns));
    }
}

static void on_worker_exit(struct world *w, const struct item *it) {
    struct life *l = it->life;
    struct worker *k = &l->workers[it->local];
    if (!k->alive || it->version != k->version || (l->unkillable && it->code < 0))
        return;
    if (k->stopped && it->code != -9) {
        plan_exit(w, l, it->local, it->code, 10 * NS_PER_MS); /* when it continues */
        return;
    }
    k->alive = false;
    k->lost_ns = it->code != 0 && !l->stopping ? w->now_ns : 0;
    world_trace(w, "%u.%u: worker %u of %u.%u ends with %d", l->host, l->index, it->local, l->generation.epoch,
                l->generation.counter, it->code);
    struct item *seen = world_plan(w, ITEM_EXIT_SEEN, l, world_below(w, NS_PER_MS));
    seen->local = it->local;
    seen->code = it->code;
    seen->generation = l->generation;
    if (it->code != 0 && !k->dying)
        make_noise(w, l);
}

/* All of the group run: they finish together, if nobody is lost on the way. */
static void group_finishes(struct world *w, struct item *it) {
    struct group_info *g = &w->groups[it->group];
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct life *l = node_of(w, g->members[i]);
        if (!l->spawned || generation_compare(l->generation, g->generation) != 0)
            return;
        l->unkillable =
            l->unkillable && (l->stopping || l->frozen || !l->process); /* what it waited for has come, in time */
        for (uint32_t k = 0; k < l->n_workers; k++)
            if (!l->workers[k].alive || l->workers[k].dying)
                return; /* the others wait for it for ever */
        if (w->hosts[l->host].frozen || !node_runs_workers(l)) {
            world_plan(w, ITEM_GROUP_FINISH, NULL, NS_PER_S)->group = it->group;
            return;
        }
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct life *l = node_of(w, g->members[i]);
        for (uint32_t k = 0; k < l->n_workers; k++)
            worker_exits(w, l, k, 0, world_below(w, 100 * NS_PER_MS));
    }
}

static void fail(struct world *w, struct life *l, struct generation g, uint32_t local, int32_t code,
                 enum failure_kind kind) {
    const struct form *form = member_form(l->member);
    struct failure f = {
        .kind = kind,
        .code = code < 0 ? -code : code,
        .rank = form->first_rank + local,
        .local_rank = local,
        .node_rank = form->node_rank,
        .incarnation = l->incarnation,
        .at_ns = world_clock(w, l->host),
        .ran_ns = l->spawned ? w->now_ns - l->spawned_ns : 0,
    };
    (void)snprintf(f.node, sizeof f.node, "node%u", l->host);
    if (kind == FAILURE_EXIT && code == 1)
        (void)snprintf(f.text, sizeof f.text, "gloo: Connection closed by peer");
    oracle_worker_failed(w, l, &f, kind == FAILURE_SPAWN || !l->workers[local].killed_by_us);
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_FAILURE, .generation = g, .failure = &f});
}

static void on_exit_seen(struct world *w, const struct item *it) {
    struct life *l = it->life;
    if (generation_compare(it->generation, l->generation) != 0 || !l->spawned)
        return;
    if (l->stopping) {
        if (!node_has_workers(l))
            plan_all_gone(w, l);
        return;
    }
    /* A launcher may notice by itself that nothing is left. */
    if (!node_has_workers(l) && w->p.says_gone)
        plan_all_gone(w, l);
    if (it->code == -9 && w->p.mutant == MUTANT_STALE_FENCE && l->fences > 0)
        return;
    if (it->code == -9 && l->fences != l->fences_before) {
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_FENCED, .generation = it->generation});
    } else if (it->code != 0) {
        l->n_failed++;
        fail(w, l, it->generation, it->local, it->code, it->code < 0 ? FAILURE_SIGNAL : FAILURE_EXIT);
    } else if (!node_has_workers(l) && l->n_failed == 0) {
        l->succeeded = true;
        struct group_info *g = oracle_group(w, l->generation);
        int place = g == NULL ? -1 : oracle_member_place(g, l->incarnation);
        if (place >= 0)
            g->finished[place] = true;
        world_leader_file(w, LEADER_FILE_FINISHED, l->host);
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_SUCCEEDED, .generation = it->generation});
    }
}

static void on_all_gone(struct world *w, struct item *it) {
    struct life *l = it->life;
    if (it->version != l->launch_version || l->said_all_gone || (!l->stopping && !w->p.says_gone))
        return;
    l->said_all_gone = true;
    if (w->p.mutant != MUTANT_KEEP_WORKERS)
        l->spawned = l->stopping = false;
    world_leader_file(w, LEADER_FILE_GONE, l->host);
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
}

void launcher_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    bool current = l == NULL || it->version == l->launch_version;
    if (it->kind == ITEM_WORKER_EXIT) {
        on_worker_exit(w, it);
    } else if (it->kind == ITEM_EXIT_SEEN) {
        on_exit_seen(w, it);
    } else if (it->kind == ITEM_GROUP_FINISH) {
        group_finishes(w, it);
    } else if (it->kind == ITEM_GUARD) {
        if (it->version == l->guard_version && w->p.mutant != MUTANT_NO_GUARDIAN)
            guardian_acts(w, l);
    } else if (it->kind == ITEM_SWEEP) {
        sweep(w, l);
    } else if (it->kind == ITEM_ALL_GONE) {
        on_all_gone(w, it);
    } else if (!current) {
        return;
    } else if (it->kind == ITEM_PREPARED) {
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_PREPARED, .generation = it->generation});
    } else if (it->kind == ITEM_PREPARE_FAILED) {
        fail(w, l, it->generation, 0, 12, FAILURE_SPAWN);
    } else if (it->kind == ITEM_SPAWN_FAILED) {
        l->n_failed++;
        fail(w, l, it->generation, l->n_workers - 1, 2, FAILURE_SPAWN);
    } else if (it->kind == ITEM_GRACE_OVER) {
        if (l->stopping && w->now_ns >= l->kill_at_ns)
            kill_and_watch(w, l);
    } else if (it->kind == ITEM_UNKILLABLE && l->stopping && node_has_workers(l)) {
        node_event(w, l,
                   &(struct member_event){.kind = MEMBER_EVENT_UNKILLABLE,
                                          .reason = "process 4711 can't be killed (state D)"});
    }
}
