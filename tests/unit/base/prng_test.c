#include "base/prng.h"

#include "rig/unit.h"

Test(prng, the_stream_of_a_seed_is_the_published_one) {
    /* First outputs of SplitMix64 for seed 1234567, from the reference C code by Sebastiano Vigna (splitmix64.c, public
     * domain). */
    static const uint64_t want[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),  UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821),
    };
    struct prng prng = {.state = 1234567};
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        cr_assert_eq(prng_next(&prng), want[i], "number %zu", i);
}

Test(prng, below_stays_below) {
    struct prng prng = {.state = 3};
    static const uint64_t bounds[] = {1, 2, 3, 10, 1000, UINT64_MAX};
    for (size_t b = 0; b < ARRAY_SIZE(bounds); b++)
        for (int i = 0; i < 1000; i++)
            cr_assert_lt(prng_below(&prng, bounds[b]), bounds[b]);
}

Test(prng, below_zero_is_zero_and_draws_nothing) {
    struct prng prng = {.state = 3};
    cr_assert_eq(prng_below(&prng, 0), 0);
    cr_assert_eq(prng.state, 3);
}
