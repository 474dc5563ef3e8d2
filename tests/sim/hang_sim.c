/* Jobs that are well, and jobs in which one rank hangs, each from one seed, before the machine of watchdog/verdict.
 *
 *     SEED=n  build/tests/test-sim-hang    only that one
 *     SIM_SEEDS=n                          that many instead of the usual number
 *
 * The quiet times of jobs that are well were measured on real ones: 40 s of preparation, 20 s of a checkpoint, 11 s of
 * an evaluation, all on rank 0. Here they are up to three times as long. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/watchdog/judge/hang_rig.h"
#include "base/prng.h"
#include "launcher/worker/notify.h"
#include "watchdog/evidence/slow.h"

#define QUICK_SEEDS 40
#define SLOW_SEEDS 1000
#define S(x) ((uint64_t)((x)*1e9))
#define HOUR 3600

/* What a rank does until it waits for the others. */
enum work {
    WORK_MOVES = 1,
    WORK_SLEEPS,
    WORK_WRITES,
    WORK_CHILDREN,
    WORK_SPINS,
    WORK_PRINTS, /* a line each second; so does a thread whose process is looked at each second */
    N_WORKS
};

enum fault {
    FAULT_NONE = 0,
    FAULT_STOPPED,
    FAULT_STILL, /* sleeps, or waits for what never comes */
    FAULT_ENDED,
    FAULT_LOOP, /* its main thread runs for ever */
    FAULT_SPINS,
    FAULT_CHILDREN, /* a child of it does */
    FAULT_POLLS,    /* wakes for moments, at an unchanged place */
    FAULT_AT_EXIT,  /* all others have ended */
    N_FAULTS,
};

struct job {
    struct rig rig;
    struct prng random;
    bool gpu, announces, knows_places;
    uint64_t phase;
    bool quiet_phase; /* rank 0 alone does something */
    uint64_t until[RIG_RANKS_MAX];
    enum work work[RIG_RANKS_MAX];
    struct announced announced[RIG_RANKS_MAX];
    enum fault fault;
    uint32_t odd; /* the rank with the fault */
    uint32_t traced;
    uint64_t lost_ns;        /* time that the machine did not count, because of a misfortune */
    uint64_t lost_before_ns; /* the same, before this phase */
    bool misfortunes;
    uint64_t leader_back, machine_back, node_back[RIG_NODES_MAX], released, next_leader;
    enum { FREE = 0, SUSPENDED, TRACED, ASKS, HELD, N_HOLDS } hold;
};

static const char *why_name(enum hang_why why) {
    static const char *const names[] = {"none", "stopped", "suspended", "announced", "still", "busy", "no beat"};
    return names[why];
}

static double between(struct job *j, double low, double high) {
    return low + (high - low) * (double)prng_below(&j->random, 1000001) / 1e6;
}
static bool chance(struct job *j, double probability) { return between(j, 0, 1) < probability; }

/* ---- a job */

static void announce(struct job *j, uint32_t rank, uint64_t deadline_ns) {
    j->rig.w[rank].deadline_ns = deadline_ns;
    j->rig.w[rank].announced_at = j->rig.now;
}

/* Rank 0 works, the others wait for it. */
static void begin_alone(struct job *j) {
    static const double longest[] = {[WORK_MOVES] = 900,    [WORK_SLEEPS] = 120, [WORK_WRITES] = 400,
                                     [WORK_CHILDREN] = 600, [WORK_SPINS] = 400,  [WORK_PRINTS] = 900};
    enum work work = 1 + (enum work)prng_below(&j->random, N_WORKS - 1);
    double most = chance(j, 0.05) ? longest[work] : 60, seconds = between(j, 1, most);
    j->quiet_phase = true;
    j->work[0] = work;
    j->until[0] = j->rig.now + S(seconds);
    for (uint32_t r = 0; r < j->rig.n && j->announces; r++)
        announce(j, r, S(2 * seconds + 20));
}

static void begin_step(struct job *j) {
    double length = between(j, 0.1, 4);
    enum work work = chance(j, 0.2) ? WORK_SPINS : chance(j, 0.2) ? WORK_CHILDREN : WORK_MOVES;
    work = chance(j, 0.1) ? WORK_PRINTS : work;
    for (uint32_t r = 0; r < j->rig.n; r++) {
        j->work[r] = work;
        j->until[r] = j->rig.now + S(length * between(j, 0.5, 1.5));
        if (!j->announces)
            continue;
        uint64_t limit_ns = 0, since_ns;
        announced_take(&j->announced[r], &(struct notify_message){.any = true, .has_step = true, .step = j->phase},
                       j->rig.now);
        j->rig.w[r].step = j->announced[r].step;
        bool known = announced_limit(&j->announced[r], j->rig.now, &limit_ns, &since_ns);
        announce(j, r, known ? limit_ns : 0);
    }
}

static void begin_phase(struct job *j) {
    j->phase++;
    j->lost_before_ns = j->lost_ns;
    j->quiet_phase = false;
    if (j->phase == 1) { /* imports, with very different speeds; then a long first step */
        for (uint32_t r = 0; r < j->rig.n; r++) {
            j->work[r] = WORK_MOVES;
            j->until[r] = j->rig.now + S(between(j, 1, 60));
        }
    } else if (j->phase == 3) {
        double compiles = between(j, 1, 170);
        for (uint32_t r = 0; r < j->rig.n; r++) {
            j->work[r] = chance(j, 0.5) ? WORK_SPINS : WORK_CHILDREN;
            j->until[r] = j->rig.now + S(compiles * between(j, 0.3, 1));
            if (j->announces)
                announce(j, r, S(2 * compiles + 20));
        }
    } else if (j->phase == 2 || chance(j, 0.01)) {
        begin_alone(j);
    } else {
        begin_step(j);
    }
}

static void does(struct job *j, uint32_t rank, enum work work) {
    struct rig_worker *w = &j->rig.w[rank];
    bool prints = work == WORK_PRINTS && j->rig.now / RIG_DT % (NS_PER_S / RIG_DT) == 0;
    w->moving = work == WORK_MOVES || prints;
    w->flags = 0;
    switch (work) {
    case WORK_WRITES: w->flags = SIGN_BYTES; break;
    case WORK_CHILDREN: w->flags = SIGN_BUSY; break;
    case WORK_SPINS: w->flags = SIGN_SPINS | SIGN_BUSY | (j->gpu ? SIGN_GPU_SEEN | SIGN_GPU : 0); break;
    case WORK_MOVES:
    case WORK_SLEEPS:
    case WORK_PRINTS:
    case N_WORKS: break;
    }
}

static void waits(struct job *j, uint32_t rank) {
    struct rig_worker *w = &j->rig.w[rank];
    w->moving = false;
    w->flags = j->gpu ? SIGN_SPINS | SIGN_BUSY | SIGN_GPU_SEEN : 0;
    w->place = j->knows_places ? (j->quiet_phase ? 2 : 1) : 0;
}

static void hangs(struct job *j) {
    struct rig_worker *w = &j->rig.w[j->odd];
    w->moving = j->fault == FAULT_LOOP;
    w->flags = 0;
    w->ended = j->fault == FAULT_ENDED;
    if (j->fault == FAULT_STOPPED)
        w->flags = SIGN_STOPPED;
    if (j->fault == FAULT_SPINS)
        w->flags = SIGN_SPINS;
    if (j->fault == FAULT_CHILDREN)
        w->flags = SIGN_BUSY;
}

/* What a rank has to do is still to be done, and its agent counts this time not either. */
static void lose_time(struct job *j, uint32_t rank) {
    j->until[rank] += j->until[rank] > j->rig.now ? RIG_DT : 0;
    j->rig.w[rank].announced_at += RIG_DT;
}

static void hold(struct job *j) {
    static const uint32_t flags[N_HOLDS] = {
        [SUSPENDED] = SIGN_STOPPED, [TRACED] = SIGN_TRACED, [ASKS] = SIGN_ASKS, [HELD] = SIGN_HELD};
    for (uint32_t r = 0; r < j->rig.n; r++) {
        struct rig_worker *w = &j->rig.w[r];
        if (j->hold != SUSPENDED && r != j->traced)
            continue;
        w->moving = false;
        w->flags = flags[j->hold];
        if (!j->rig.node[j->rig.nodes[r]].stalled)
            lose_time(j, r);
    }
}

/* What all do in the next moment. */
static void act(struct job *j) {
    bool all_wait = true;
    for (uint32_t r = 0; r < j->rig.n; r++) {
        if (j->fault == FAULT_AT_EXIT && r != j->odd) {
            j->rig.w[r].moving = false;
            j->rig.w[r].ended = true;
        } else if (j->fault != FAULT_NONE && r == j->odd) {
            hangs(j);
            all_wait = false;
        } else if (j->until[r] > j->rig.now) {
            does(j, r, j->work[r]);
            all_wait = false;
        } else {
            waits(j, r);
        }
    }
    if (all_wait) {
        begin_phase(j);
        for (uint32_t r = 0; r < j->rig.n; r++)
            j->rig.w[r].moving = true; /* it takes them a moment */
    }
    if (j->hold != FREE)
        hold(j);
}

/* ---- misfortunes that are no hangs */

static bool all_run(const struct job *j) {
    bool run = !j->rig.leader_stalled;
    for (uint32_t i = 0; i < j->rig.n_nodes; i++)
        run = run && !j->rig.node[i].stalled;
    return run;
}

/* Whether a node has said that its workers announce deadlines, if they do. */
static bool has_told(const struct job *j, uint32_t node) {
    for (uint32_t i = 0; i < j->rig.n; i++)
        if (j->rig.nodes[i] == node && j->announces && j->rig.w[i].told_deadline_ns == 0)
            return false;
    return true;
}

static void misfortunes(struct job *j) {
    struct rig *r = &j->rig;
    const double each = (double)RIG_DT / 1e9 / 300; /* one of each kind in 5 min */
    if (chance(j, each))
        j->leader_back = r->now + S(between(j, 0.5, 60));
    if (chance(j, each))
        j->machine_back = r->now + S(between(j, 0.5, 200));
    if (chance(j, each)) { /* with --heartbeat as it is, one of 200 s is lost: that is no matter of this machine */
        uint32_t node = (uint32_t)prng_below(&j->random, r->n_nodes);
        j->node_back[node] = r->now + S(between(j, 0.5, has_told(j, node) ? 200 : 8));
    }
    if (j->hold == FREE && chance(j, each / 4)) {
        j->hold = SUSPENDED + (unsigned)prng_below(&j->random, N_HOLDS - SUSPENDED);
        j->traced = (uint32_t)prng_below(&j->random, r->n);
        j->released = r->now + S(between(j, 1, 600));
    }
    if (j->hold != FREE && r->now >= j->released)
        j->hold = FREE;
    if (r->now >= j->next_leader && all_run(j)) { /* one that did not answer would be lost */
        rig_new_leader(r);
        j->next_leader = r->now + S(between(j, 60, 1200));
        j->machine_back = j->leader_back = 0;
    }
    if (chance(j, each)) { /* the leader's clock jumps, as no monotonic clock should */
        uint64_t back = chance(j, 0.8) ? 0 : MIN2(r->skew, S(between(j, 1, 100)));
        r->skew += back != 0 ? (uint64_t)0 - back : S(between(j, 1, 3000));
    }
    r->leader_stalled = r->now < j->leader_back || r->now < j->machine_back;
    for (uint32_t i = 0; i < r->n_nodes; i++)
        r->node[i].stalled = r->now < j->machine_back || r->now < j->node_back[i];
    for (uint32_t i = 0; i < r->n; i++)
        if (r->node[r->nodes[i]].stalled)
            lose_time(j, i);
    j->lost_ns += all_run(j) && j->hold == FREE ? 0 : RIG_DT;
}

static void run(struct job *j, double seconds) {
    for (uint64_t until = j->rig.now + S(seconds); j->rig.now < until && j->rig.hangs == 0;) {
        act(j);
        if (j->misfortunes)
            misfortunes(j);
        rig_run(&j->rig, (double)RIG_DT / 1e9);
    }
}

static void begin(struct job *j, uint64_t seed) {
    memset(j, 0, sizeof *j);
    j->random.state = seed;
    uint32_t n_nodes = 1 + (uint32_t)prng_below(&j->random, 8);
    rig_init(&j->rig, 2 + (uint32_t)prng_below(&j->random, 15) + n_nodes, n_nodes);
    j->gpu = chance(j, 0.4);
    j->announces = chance(j, 0.3);
    j->knows_places = chance(j, 0.5);
    begin_phase(j);
}

/* ---- the two tests */

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void for_each_seed(void (*one)(uint64_t seed)) {
    const char *scale = getenv("MUSTER_TEST_SCALE");
    bool slow = scale != NULL && strcmp(scale, "slow") == 0;
    uint64_t only = number("SEED", 0), n = number("SIM_SEEDS", slow ? SLOW_SEEDS : QUICK_SEEDS);
    for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : n); seed++)
        one(seed);
}

static void stays_well(uint64_t seed) {
    static struct job j;
    begin(&j, seed);
    j.misfortunes = true;
    run(&j, HOUR);
    cr_assert_eq(j.rig.hangs, 0, "SEED=%llu: after %.1f s: %s", (unsigned long long)seed,
                 (double)j.rig.now / 1e9 - 1000, j.rig.text);
    cr_assert(j.phase > 4 || j.lost_ns > S(HOUR) / 2, "SEED=%llu: it made %llu steps", (unsigned long long)seed,
              (unsigned long long)j.phase);
    rig_fini(&j.rig);
}

Test(hang_sim, an_hour_of_a_job_that_is_well_is_never_a_hang) { for_each_seed(stays_well); }

/* When more than half last moved, and when anybody last moved or did something but the odd rank. */
static void truth(const struct job *j, uint64_t *ret_beat, uint64_t *ret_active) {
    uint64_t moved[RIG_RANKS_MAX], beat = 0;
    uint32_t alive = 0;
    *ret_active = 0;
    for (uint32_t r = 0; r < j->rig.n; r++) {
        if (!j->rig.w[r].ended)
            moved[alive++] = j->rig.w[r].moved_at;
        *ret_active = MAX2(*ret_active, j->rig.w[r].moved_at);
        if (j->fault != FAULT_AT_EXIT && (r != j->odd || j->fault == FAULT_NONE))
            *ret_active = MAX2(*ret_active, j->until[r]);
    }
    for (uint32_t i = 0; i < alive; i++) {
        uint32_t as_late = 0;
        for (uint32_t k = 0; k < alive; k++)
            as_late += moved[k] >= moved[i];
        if (2 * as_late > alive)
            beat = MAX2(beat, moved[i]);
    }
    *ret_beat = beat;
}

static uint64_t last_deadline(const struct job *j) {
    uint64_t last = 0;
    for (uint32_t r = 0; r < j->rig.n; r++)
        if (!j->rig.w[r].ended && j->rig.w[r].deadline_ns != 0)
            last = MAX2(last, j->rig.w[r].announced_at + j->rig.w[r].deadline_ns);
    return last;
}

/* When the verdict is due, by the limits, and by which. */
static uint64_t due_at(const struct job *j, uint64_t fault_at, enum hang_why *ret_why) {
    uint64_t beat, active;
    truth(j, &beat, &active);
    if (j->fault == FAULT_STOPPED) {
        *ret_why = HANG_WHY_STOPPED;
        return MAX2(MAX2(beat, fault_at), active) + HANG_STOPPED_NS; /* from when all others wait, at the latest */
    }
    if (last_deadline(j) != 0) {
        *ret_why = HANG_WHY_ANNOUNCED;
        return MAX2(last_deadline(j), beat + HANG_ANNOUNCED_MIN_NS);
    }
    bool ended = j->fault == FAULT_ENDED || j->fault == FAULT_AT_EXIT;
    bool still = j->fault == FAULT_STILL || j->fault == FAULT_POLLS || ended;
    active = ended ? MAX2(active, fault_at) : active; /* an exit is progress */
    *ret_why = still ? HANG_WHY_STILL : HANG_WHY_BUSY;
    return *ret_why == HANG_WHY_STILL ? active + j->rig.limits.still_ns : beat + j->rig.limits.timeout_ns;
}

/* The signs alone name the rank, unless it looks like those who wait. */
static bool is_named(const struct job *j) {
    if (j->fault == FAULT_STILL || j->fault == FAULT_POLLS)
        return j->rig.n_suspects == 0 || j->announces;
    if (j->fault == FAULT_AT_EXIT)
        return true; /* what the ranks wait for tells whether those that have ended are suspects */
    return j->rig.n_suspects == 1 && j->rig.suspects[0].rank == j->odd;
}

/* Some time after it has begun, in the middle of a step, one rank gets a fault. Returns when. */
static uint64_t begin_fault(struct job *j, uint64_t seed) {
    j->knows_places = false;
    run(j, between(j, 300, 900));
    while ((j->quiet_phase || j->phase < 6 || j->hold != FREE || !all_run(j)) && j->rig.hangs == 0)
        run(j, 0.1);
    cr_assert_eq(j->rig.hangs, 0, "SEED=%llu: a hang before the fault: %s", (unsigned long long)seed, j->rig.text);
    j->fault = 1 + (enum fault)prng_below(&j->random, N_FAULTS - 1);
    j->odd = (uint32_t)prng_below(&j->random, j->rig.n);
    uint64_t fault_at = j->rig.now;
    act(j);
    for (uint32_t r = 0; r < j->rig.n; r++)
        if (j->rig.w[r].ended)
            rig_event(&j->rig, (struct hang_event){.kind = HANG_EVENT_ENDED, .rank = r});
    return fault_at;
}

static void is_noticed(uint64_t seed) {
    static struct job j;
    begin(&j, seed);
    uint64_t fault_at = begin_fault(&j, seed);
    run(&j, 6000);
    enum hang_why why;
    uint64_t beat, active, due = due_at(&j, fault_at, &why);
    truth(&j, &beat, &active);
    double late = (double)(int64_t)(j.rig.hung_at - due) / 1e9;
    cr_assert_eq(j.rig.hangs, 1, "SEED=%llu: fault %d of rank %u was not noticed", (unsigned long long)seed,
                 (int)j.fault, j.odd);
    cr_assert_eq(j.rig.why, why, "SEED=%llu: fault %d: %s, not %s: %s", (unsigned long long)seed, (int)j.fault,
                 why_name(j.rig.why), why_name(why), j.rig.text);
    cr_assert(late <= 2.0, "SEED=%llu: fault %d: %s came %.1f s late", (unsigned long long)seed, (int)j.fault,
              why_name(why), late);
    /* Never without the stated seconds of quiet: what is sampled once a second may be a second old. Nodes don't say who
     * is busy before one has been still for 3 s. */
    if (why != HANG_WHY_STOPPED)
        cr_assert(late >= (why == HANG_WHY_STILL ? -4.2 : -1.2), "SEED=%llu: fault %d: %s came %.1f s early",
                  (unsigned long long)seed, (int)j.fault, why_name(why), -late);
    double quiet = (double)(j.rig.hung_at - beat) / 1e9,
           least[] = {
               [HANG_WHY_STOPPED] = 10, [HANG_WHY_ANNOUNCED] = 10, [HANG_WHY_STILL] = 180, [HANG_WHY_BUSY] = 1800};
    cr_assert(quiet >= least[why] - 1.2, "SEED=%llu: %s after %.1f s of quiet", (unsigned long long)seed, why_name(why),
              quiet);
    cr_assert(is_named(&j), "SEED=%llu: fault %d of rank %u: %u suspects, %s", (unsigned long long)seed, (int)j.fault,
              j.odd, j.rig.n_suspects, j.rig.text);
    rig_fini(&j.rig);
}

Test(hang_sim, each_fault_is_noticed_at_its_limit_and_its_rank_named) { for_each_seed(is_noticed); }

/* The same, but what a node said before it was stopped can make others suspects, too. */
static bool is_among(const struct job *j) {
    if (j->fault == FAULT_STILL || j->fault == FAULT_POLLS || j->fault == FAULT_AT_EXIT)
        return true;
    bool found = false;
    for (uint32_t i = 0; i < j->rig.n_suspects; i++)
        found = found || j->rig.suspects[i].rank == j->odd;
    return found;
}

static void calm_down(struct job *j) {
    j->misfortunes = false;
    j->hold = FREE;
    j->rig.leader_stalled = false;
    for (uint32_t i = 0; i < j->rig.n_nodes; i++)
        j->rig.node[i].stalled = false;
}

/* New leaders that know nothing, agents that are stopped, clocks that jump, and somebody who stops or traces workers,
 * before a rank hangs and for up to 20 min afterwards. */
static void is_noticed_all_the_same(uint64_t seed) {
    static struct job j;
    begin(&j, seed);
    j.misfortunes = true;
    uint64_t fault_at = begin_fault(&j, seed);
    run(&j, between(&j, 0, 1200));
    calm_down(&j);
    uint64_t calm_at = j.rig.now;
    run(&j, 6000);
    enum hang_why why;
    uint64_t due = due_at(&j, fault_at, &why);
    cr_assert_eq(j.rig.hangs, 1, "SEED=%llu: fault %d of rank %u was not noticed", (unsigned long long)seed,
                 (int)j.fault, j.odd);
    static const double limits[] = {
        [HANG_WHY_STOPPED] = 10, [HANG_WHY_ANNOUNCED] = 10, [HANG_WHY_STILL] = 180, [HANG_WHY_BUSY] = 1800};
    double early = ((double)due - (double)j.rig.hung_at) / 1e9;
    double late = ((double)j.rig.hung_at - (double)MAX2(due, calm_at + S(limits[why]))) / 1e9;
    if (why == HANG_WHY_STOPPED) /* it is due then at the latest */
        early = 10 - (double)(j.rig.hung_at - fault_at) / 1e9;
    /* While time did not count, somebody may have waited: that is believed for so long. */
    cr_assert(early <= (double)HANG_FIRST_SIGNS_NS / 1e9, "SEED=%llu: fault %d: %s came %.1f s early",
              (unsigned long long)seed, (int)j.fault, why_name(j.rig.why), early);
    /* A deadline is later by the time that did not count. */
    late -= (double)(why == HANG_WHY_ANNOUNCED ? j.lost_ns - j.lost_before_ns : 0) / 1e9;
    cr_assert(late <= 8, "SEED=%llu: fault %d: %s came %.1f s late", (unsigned long long)seed, (int)j.fault,
              why_name(why), late);
    cr_assert_eq(j.rig.why, why, "SEED=%llu: fault %d: %s, not %s: %s", (unsigned long long)seed, (int)j.fault,
                 why_name(j.rig.why), why_name(why), j.rig.text);
    cr_assert(is_among(&j), "SEED=%llu: fault %d of rank %u: %u suspects, %s", (unsigned long long)seed, (int)j.fault,
              j.odd, j.rig.n_suspects, j.rig.text);
    rig_fini(&j.rig);
}

/* ---- one worker, as its node samples it */

enum kind {
    KIND_PRINTS = 0, /* a line now and then, and sleeps */
    KIND_COMPUTES,   /* in bursts */
    KIND_THREAD,     /* another thread computes */
    KIND_RECEIVES,
    KIND_POLLS, /* for a lock */
    KIND_WAITS, /* its main thread, for another one that polls as a library does */
    N_KINDS
};

/* It does `cost` ns of work each `period` ns, in turns of `turn` ns at most. */
struct rhythm {
    uint64_t period, cost, turn;
};

static struct rhythm rhythm_of(struct job *j, enum kind kind) {
    uint64_t interval = S(between(j, 0.02, 0.2)), short_turn = S(between(j, 0.00005, 0.0009));
    switch (kind) {
    case KIND_PRINTS:
    case KIND_RECEIVES: return (struct rhythm){S(between(j, 0.1, 2.5)), S(0.0001), S(0.0001)};
    case KIND_COMPUTES: return (struct rhythm){S(between(j, 0.2, 2)), S(between(j, 0.012, 0.06)), S(0.003)};
    case KIND_THREAD: return (struct rhythm){S(0.1), S(between(j, 0.0055, 0.1)), S(0.1)};
    case KIND_POLLS: return (struct rhythm){interval, MIN2(short_turn, interval / 55), short_turn};
    case KIND_WAITS: return (struct rhythm){S(0.01), S(0.00003), S(0.00003)};
    case N_KINDS: break;
    }
    return (struct rhythm){1, 0, 1};
}

static void is_told_apart(uint64_t seed) {
    struct job j = {.random.state = seed};
    enum kind kind = (enum kind)prng_below(&j.random, N_KINDS);
    struct rhythm r = rhythm_of(&j, kind);
    bool other = kind == KIND_THREAD || kind == KIND_WAITS;
    struct signs_track t = signs_track_of(0);
    t.receives = kind == KIND_RECEIVES;
    struct slow_look before = {.pid = 1, .addresses = 1, .sleeps = !other && kind != KIND_RECEIVES};
    uint64_t now = 0, looked_at = 0, moved_at = 0;
    for (int i = 0; i < 300; i++) {
        now += S(between(&j, 0.9, 1.4)); /* a busy machine */
        uint64_t times = now / r.period, used = times * r.cost, turns = times * ((r.cost + r.turn - 1) / r.turn);
        uint64_t wrote = kind == KIND_PRINTS ? times + 1 : 1;
        signs_track_add(&t, &(struct worker_tick){'S', other ? 0 : used, other ? 0 : turns, wrote}, now);
        struct slow_look look = before;
        look.threads_ns = other ? used : 0;
        look.little = t.little >= SIGNS_LITTLE;
        bool looks = now - looked_at >= SLOW_EVERY_NS;
        struct signs_found found = slow_compare(&before, &(struct signs_found){0}, looked_at, &look, now);
        bool moves = (t.flags & SIGN_MOVED) != 0 && !found.polls;
        moved_at = moves ? now : moved_at;
        if (kind == KIND_POLLS || other)
            cr_assert(!moves || i < SIGNS_LITTLE, "SEED=%llu: kind %d moves in sample %d", (unsigned long long)seed,
                      (int)kind, i);
        else
            cr_assert(now - moved_at <= S(5), "SEED=%llu: kind %d stands still in sample %d", (unsigned long long)seed,
                      (int)kind, i);
        if (looks && i >= 5)
            cr_assert_eq(found.computes != 0, kind == KIND_THREAD, "SEED=%llu: kind %d, sample %d",
                         (unsigned long long)seed, (int)kind, i);
        before = looks ? look : before;
        looked_at = looks ? now : looked_at;
    }
}

Test(hang_sim, signs_tell_who_works_from_who_polls_or_waits) { for_each_seed(is_told_apart); }

Test(hang_sim, new_leaders_and_agents_that_stop_hide_no_hang) { for_each_seed(is_noticed_all_the_same); }
