/* The simulator is only worth what it catches: each of these wrong rules has to be found by chance
 * within some seeds, or by the schedule written for it. MUTANT=n runs one of them. */
#include <criterion/criterion.h>

#include "cases.h"

#define SEEDS_MAX 20000

static uint64_t seeds_until_caught(enum mutant m, char what[WORLD_WHAT_MAX]) {
    static struct world_coverage ignored;
    static struct world_params p;
    for (uint64_t seed = 1; seed <= SEEDS_MAX; seed++) {
        world_params_random(&p, seed);
        p.mutant = m;
        if (!world_try(&p, &ignored, what))
            return seed;
    }
    return 0;
}

/* What chance does not find within reason; or what is no danger but a needless change of leaders,
 * which shows in the number of epochs. */
static const struct directed {
    enum mutant mutant;
    void (*fill)(struct world_params *p);
    uint32_t epochs; /* with the right rules */
} directed[] = {
    {MUTANT_ECHO_NOW, case_successor_cut_off_first, 0},
    {MUTANT_ECHO_ALL, case_successor_cut_off_first, 0},
    {MUTANT_NO_WAIT, case_two_claim_after_an_idle_epoch, 0},
    {MUTANT_DEAF, case_newcomer_sees_only_the_arbiter, 0},
    {MUTANT_NO_ARBITER_TERM, case_newcomer_sees_only_the_arbiter, 0},
    {MUTANT_NO_LEADER_FILE_TERM, case_thaws_and_is_killed, 0},
    {MUTANT_HAS_LEADER, case_one_goes_to_the_successor, 2},
    {MUTANT_PEER_SILENT_IS_GONE, case_short_freeze, 2},
    {MUTANT_LEAVES_RUNNING, case_all_told_to_leave, 0},
    {MUTANT_VACATES_FIRST, case_too_few_stay, 0},
    {MUTANT_LOST_IS_IDLE, case_two_claim_after_an_idle_epoch, 0},
    {MUTANT_RUIN_IS_SILENCE, case_arbiter_emptied, 0},
    {MUTANT_RUIN_AT_ONCE, case_arbiter_away_for_a_moment, 0},
    {MUTANT_RUIN_UNSEEN, case_another_jobs_arbiter, 0},
    {MUTANT_FOR_EVER, case_no_group_lasts, 0},
    {MUTANT_NEVER_PROGRESS, case_losses_over_time, 0},
    {MUTANT_PROBE_CROWD, case_crowd, 0},
    {MUTANT_PAUSE_KILLS, case_three_paused, 0},
    {MUTANT_ANY_CONTINUES, case_paused_and_replaced, 0},
    {MUTANT_NO_RESIGN, case_leader_leaves, 0},
};

static const struct directed *directed_for(enum mutant m) {
    for (size_t i = 0; i < ARRAY_SIZE(directed); i++)
        if (directed[i].mutant == m)
            return &directed[i];
    return NULL;
}

static bool shows_with(const struct directed *d, enum mutant m, uint64_t seed, char what[WORLD_WHAT_MAX]) {
    static struct world_coverage ignored;
    static struct world_params p;
    d->fill(&p);
    p.mutant = m;
    p.seed = seed;
    if (getenv("TRACE") != NULL)
        p.trace = stderr;
    struct world *w = world_new(&p, &ignored);
    bool broken = !world_run_to(w, TIME_NEVER);
    if (broken)
        (void)snprintf(what, WORLD_WHAT_MAX, "%s", world_failure(w));
    else
        (void)snprintf(what, WORLD_WHAT_MAX, "%u epochs, not %u", world_epoch(w), d->epochs);
    bool too_many = d->epochs > 0 && world_epoch(w) > d->epochs;
    world_free(w);
    return broken || too_many;
}

#define ORDERS 20 /* of what piles up in a frozen process */

/* Whether the schedule shows it. */
static bool shows(const struct directed *d, enum mutant m, char what[WORLD_WHAT_MAX]) {
    for (uint64_t seed = 1; seed <= ORDERS; seed++)
        if (shows_with(d, m, seed, what))
            return true;
    return false;
}

Test(mutants_sim, every_wrong_rule_is_caught) {
    unsigned missed = 0;
    const char *only = getenv("MUTANT");
    for (enum mutant m = 1; m < MUTANT_COUNT; m++) {
        char what[WORLD_WHAT_MAX];
        if (only != NULL && (enum mutant)atoi(only) != m)
            continue;
        const struct directed *d = directed_for(m);
        uint64_t seed = d == NULL ? seeds_until_caught(m, what) : 0;
        bool caught = d == NULL ? seed != 0 : !shows(d, MUTANT_NONE, what) && shows(d, m, what);
        if (!caught)
            (void)fprintf(stderr, "# MISSED: %s\n", mutant_name(m));
        else if (d != NULL)
            (void)fprintf(stderr, "# %-46s caught by its schedule, %s\n", mutant_name(m), what);
        else
            (void)fprintf(stderr, "# %-46s caught by seed %5llu, %s\n", mutant_name(m), (unsigned long long)seed, what);
        missed += !caught;
    }
    cr_assert_eq(missed, 0, "%u wrong rules go unnoticed", missed);
}
