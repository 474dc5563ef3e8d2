/* Random schedules of everything that can go wrong, each from one seed.
 *
 *     SEED=n  build/tests/test-sim-group    replays one with its trace; MUTANT=n: with that wrong rule
 *     SIM_SEEDS=n                     that many instead of the usual number
 *
 * A failure prints its seed, what was broken, and the faults that are still needed to break it. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#define QUICK_SEEDS 20000
#define SLOW_SEEDS 1000000
#define PROCESSES 2
#define BROKEN_MAX 20 /* enough to see a pattern */

/* Drops faults as long as something still breaks. */
static void shrink(struct world_params *p) {
    static struct world_coverage ignored;
    char what[WORLD_WHAT_MAX];
    bool smaller = true;
    while (smaller) {
        smaller = false;
        for (size_t i = p->n_faults; i-- > 0;) {
            struct world_params less = *p;
            less.n_faults--;
            memmove(&less.faults[i], &less.faults[i + 1], (less.n_faults - i) * sizeof less.faults[0]);
            world_try(&less, &ignored, what);
            if (what[0] != '\0') {
                *p = less;
                smaller = true;
            }
        }
    }
}

static void explain(uint64_t seed, struct world_params *p, const char *what) {
    (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, what);
    size_t all = p->n_faults;
    shrink(p);
    static struct world_coverage ignored;
    char less[WORLD_WHAT_MAX];
    world_try(p, &ignored, less);
    (void)fprintf(stderr, "%zu of its %zu faults are enough for: %s\n", p->n_faults, all, less);
    (void)fprintf(stderr, "%u hosts, %u to %u nodes, %u restarts; work %.3f s\n", p->n_hosts, p->group.rdzv.min_nodes,
                  p->group.rdzv.max_nodes, p->group.rdzv.max_restarts, (double)p->work_ns / 1e9);
    for (size_t i = 0; i < p->n_faults; i++)
        fault_print(&p->faults[i], stderr);
    if (getenv("SHRUNK_TRACE") != NULL) {
        p->trace = stderr;
        world_try(p, &ignored, less);
    }
    (void)fprintf(stderr, "replay with SEED=%llu (whole), SHRUNK_TRACE=1 (what is left)\n", (unsigned long long)seed);
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* ---- the table of what was visited ---- */

static unsigned print_group_table(const struct world_coverage *c) {
    unsigned missing = 0;
    for (unsigned from = 1; from < GROUP_STATE_COUNT; from++) {
        (void)fprintf(stderr, "# group %-10s %10llu steps;", group_state_names[from],
                      (unsigned long long)c->group_states[from]);
        missing += c->group_states[from] == 0;
        for (unsigned to = 1; to < GROUP_STATE_COUNT; to++) {
            if (!group_may_move(from, to))
                continue;
            (void)fprintf(stderr, " -> %s %llu", group_state_names[to], (unsigned long long)c->group_moves[from][to]);
            missing += c->group_moves[from][to] == 0;
        }
        (void)fputc('\n', stderr);
    }
    return missing;
}

static unsigned print_member_table(const struct world_coverage *c) {
    unsigned missing = 0;
    for (unsigned from = 1; from < MEMBER_STATE_COUNT; from++) {
        (void)fprintf(stderr, "# member %-10s %10llu steps;", member_state_name(from),
                      (unsigned long long)c->member_states[from]);
        missing += c->member_states[from] == 0;
        for (unsigned to = 1; to < MEMBER_STATE_COUNT; to++) {
            if (!member_may_move(from, to))
                continue;
            (void)fprintf(stderr, " -> %s %llu", member_state_name(to), (unsigned long long)c->member_moves[from][to]);
            missing += c->member_moves[from][to] == 0;
        }
        (void)fputc('\n', stderr);
    }
    return missing;
}

static unsigned print_life_table(const struct world_coverage *c) {
    unsigned missing = 0;
    for (unsigned from = 1; from < LIFE_STATE_COUNT; from++) {
        (void)fprintf(stderr, "# life %-12s %10llu steps;", life_state_name(from),
                      (unsigned long long)c->life_states[from]);
        missing += c->life_states[from] == 0;
        for (unsigned to = 1; to < LIFE_STATE_COUNT; to++) {
            if (!life_may_move(from, to))
                continue;
            (void)fprintf(stderr, " -> %s %llu", life_state_name(to), (unsigned long long)c->life_moves[from][to]);
            missing += c->life_moves[from][to] == 0;
        }
        (void)fputc('\n', stderr);
    }
    return missing;
}

static unsigned print_kinds(const char *what, const uint64_t *counts, unsigned n) {
    unsigned missing = 0;
    (void)fprintf(stderr, "# %s:", what);
    for (unsigned i = 1; i < n; i++) {
        (void)fprintf(stderr, " %llu", (unsigned long long)counts[i]);
        missing += counts[i] == 0;
    }
    (void)fputc('\n', stderr);
    return missing;
}

static unsigned print_election_table(const struct world_coverage *c) {
    unsigned missing = 0;
    for (unsigned from = 1; from < ELECTION_COUNT; from++) {
        (void)fprintf(stderr, "# election %-10s %10llu steps;", member_election_name(from),
                      (unsigned long long)c->member_elections[from]);
        missing += c->member_elections[from] == 0;
        for (unsigned to = 1; to < ELECTION_COUNT; to++) {
            if (!member_election_may_move(from, to))
                continue;
            (void)fprintf(stderr, " -> %s %llu", member_election_name(to),
                          (unsigned long long)c->election_moves[from][to]);
            missing += c->election_moves[from][to] == 0;
        }
        (void)fputc('\n', stderr);
    }
    return missing;
}

static unsigned print_search_table(const struct world_coverage *c) {
    unsigned missing = 0;
    for (unsigned from = 1; from < SEARCH_STATE_COUNT; from++) {
        (void)fprintf(stderr, "# search %-10s %10llu steps;", search_state_name(from),
                      (unsigned long long)c->search_states[from]);
        missing += c->search_states[from] == 0;
        for (unsigned to = 1; to < SEARCH_STATE_COUNT; to++) {
            if (!search_may_move(from, to))
                continue;
            (void)fprintf(stderr, " -> %s %llu", search_state_name(to), (unsigned long long)c->search_moves[from][to]);
            /* Refused by an agent of another version, or at an endpoint of another run; and HANG_UP where no member
             * emits it: search_test.c */
            if ((to != SEARCH_REFUSED || from == SEARCH_JOINING) && (from != SEARCH_RETRYING || to != SEARCH_RESTING))
                missing += c->search_moves[from][to] == 0;
        }
        (void)fputc('\n', stderr);
    }
    return missing;
}

static unsigned print_coverage(const struct world_coverage *c) {
    unsigned missing = print_group_table(c) + print_member_table(c) + print_election_table(c) + print_search_table(c) +
                       print_life_table(c);
    missing += print_kinds("group events", c->group_events, GROUP_EVENT_KIND_COUNT);
    missing += print_kinds("group effects", c->group_effects, GROUP_EFFECT_KIND_COUNT);
    missing += print_kinds("notes", c->notes, TIMELINE_QUIET); /* the rest is the watchdog's */
    missing += print_kinds("member events", c->member_events, MEMBER_EVENT_KIND_COUNT);
    missing += print_kinds("member effects", c->member_effects, MEMBER_EFFECT_KIND_COUNT);
    missing += print_kinds("search events", c->search_events, SEARCH_EVENT_KIND_COUNT);
    missing += print_kinds("search effects", c->search_effects, SEARCH_EFFECT_KIND_COUNT);
    missing += print_kinds("life events", c->life_events, LIFE_EVENT_USAGE); /* as FAILURE */
    missing += print_kinds("life effects", c->life_effects, LIFE_EFFECT_PASS_ON);
    missing += print_kinds("ends (success, failed, leader lost, refused, left)", c->ends, MEMBER_END_LEFT + 1);
    missing += print_kinds("faults", c->faults, FAULT_DRAWN_COUNT);
    (void)fprintf(
        stderr,
        "# %llu worlds, %llu steps, %llu leaderships, %llu groups started, %llu first "
        "causes compared, %llu incidents, %llu recoveries timed, %llu idle leaders followed, %llu groups of domains, "
        "%llu spares of a domain\n",
        (unsigned long long)c->worlds, (unsigned long long)c->steps, (unsigned long long)c->leaderships,
        (unsigned long long)c->groups_started, (unsigned long long)c->causes_checked, (unsigned long long)c->incidents,
        (unsigned long long)c->recoveries, (unsigned long long)c->idle_followed, (unsigned long long)c->domain_groups,
        (unsigned long long)c->domain_spares);
    (void)fprintf(stderr, "# groups that left a sick node out: %llu; that took one: %llu\n",
                  (unsigned long long)c->sick_left_out, (unsigned long long)c->sick_taken);
    missing += (c->incidents == 0) + (c->idle_followed == 0) + (c->domain_groups == 0) + (c->domain_spares == 0) +
               (c->sick_left_out == 0) + (c->sick_taken == 0);
    return missing;
}

/* What one process has done; all of it is counters. */
struct share {
    struct world_coverage coverage;
    uint64_t broken;
};

/* Every PROCESSES-th seed, from the nth on. */
static void run_share(struct share *share, uint64_t nth, uint64_t first, uint64_t seeds) {
    static struct world_params p;
    char what[WORLD_WHAT_MAX];
    for (uint64_t i = nth; i < seeds && share->broken < BROKEN_MAX; i += PROCESSES) {
        world_params_random(&p, first + i);
        world_try(&p, &share->coverage, what);
        if (what[0] == '\0')
            continue;
        if (share->broken++ == 0)
            explain(first + i, &p, what);
        else
            (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)(first + i), what);
    }
}

static void add_up(struct share *to, const struct share *from) {
    uint64_t *t = (uint64_t *)to;
    const uint64_t *f = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof *to / sizeof *t; i++)
        t[i] += f[i];
}

static void run_shares(struct share *total, uint64_t first, uint64_t seeds) {
    struct share *shares =
        mmap(NULL, PROCESSES * sizeof *shares, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shares, MAP_FAILED);
    pid_t pids[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        cr_assert_geq(pids[i], 0);
        if (pids[i] == 0) {
            run_share(&shares[i], i, first, seeds);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = 0;
        cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
        cr_assert_eq(status, 0, "a simulating process ended with %d", status);
        add_up(total, &shares[i]);
    }
    (void)munmap(shares, PROCESSES * sizeof *shares);
}

Test(group_sim, no_schedule_breaks_an_invariant_and_every_move_is_made) {
    static struct share total;
    static struct world_params p;
    char what[WORLD_WHAT_MAX];
    const char *scale = getenv("MUSTER_TEST_SCALE");
    bool slow = scale != NULL && strcmp(scale, "slow") == 0;
    uint64_t seeds = number("SIM_SEEDS", slow ? SLOW_SEEDS : QUICK_SEEDS);
    uint64_t only = number("SEED", 0);
    if (only != 0) {
        world_params_random(&p, only);
        p.trace = stderr;
        p.mutant = (enum mutant)number("MUTANT", MUTANT_NONE);
        world_try(&p, &total.coverage, what);
        cr_assert_str_empty(what, "seed %llu: %s", (unsigned long long)only, what);
        return;
    }
    run_shares(&total, number("FIRST_SEED", 1), seeds);
    unsigned missing = print_coverage(&total.coverage);
    cr_assert_eq(total.broken, 0, "%llu seeds break an invariant", (unsigned long long)total.broken);
    if (seeds >= QUICK_SEEDS) /* fewer do not come everywhere */
        cr_assert_eq(missing, 0, "%u states, moves or words were never visited", missing);
}

Test(group_sim, the_same_seed_gives_the_same_run) {
    static struct world_coverage a, b;
    static struct world_params p;
    char what[WORLD_WHAT_MAX];
    for (uint64_t seed = 1; seed <= 50; seed++) {
        world_params_random(&p, seed);
        world_try(&p, &a, what);
        world_try(&p, &b, what);
    }
    cr_assert_eq(memcmp(&a, &b, sizeof a), 0);
}
