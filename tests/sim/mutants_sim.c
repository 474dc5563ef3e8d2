/* The simulator is only worth what it catches: each of these wrong rules has to be found by chance
 * within some seeds. MUTANT=n runs one of them. */
#include <criterion/criterion.h>

#include "world.h"

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

Test(mutants_sim, every_wrong_rule_is_caught) {
    unsigned missed = 0;
    const char *only = getenv("MUTANT");
    for (enum mutant m = 1; m < MUTANT_COUNT; m++) {
        char what[WORLD_WHAT_MAX];
        if (only != NULL && (enum mutant)atoi(only) != m)
            continue;
        uint64_t seed = seeds_until_caught(m, what);
        if (seed == 0)
            (void)fprintf(stderr, "# MISSED in %d seeds: %s\n", SEEDS_MAX, mutant_name(m));
        else
            (void)fprintf(stderr, "# %-46s caught by seed %5llu, %s\n", mutant_name(m), (unsigned long long)seed, what);
        missed += seed == 0;
    }
    cr_assert_eq(missed, 0, "%u wrong rules go unnoticed", missed);
}
