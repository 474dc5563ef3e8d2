#include "watchdog/judge/places.h"

#include <criterion/criterion.h>

Test(places, keeps_the_longest_wait_of_each) {
    struct places p = {0};
    cr_expect_eq(places_longest(&p, 5), 0);
    places_learn(&p, 5, 20);
    places_learn(&p, 5, 10);
    places_learn(&p, 6, 30);
    places_learn(&p, 0, 99);
    cr_expect_eq(places_longest(&p, 5), 20);
    cr_expect_eq(places_longest(&p, 6), 30);
    cr_expect_eq(places_longest(&p, 0), 0);
    places_learn(&p, 5, 40);
    cr_expect_eq(places_longest(&p, 5), 40);
    cr_expect_eq(p.n, 2);
}

Test(places, when_full_the_shortest_is_forgotten) {
    struct places p = {0};
    for (uint64_t i = 1; i <= PLACES_MAX; i++)
        places_learn(&p, i, i == 9 ? 50 : 100 + i);
    places_learn(&p, 5000, 40);
    cr_expect_eq(places_longest(&p, 5000), 0);
    cr_expect_eq(places_longest(&p, 9), 50);
    places_learn(&p, 5000, 60);
    cr_expect_eq(places_longest(&p, 5000), 60);
    cr_expect_eq(places_longest(&p, 9), 0);
    cr_expect_eq(p.n, PLACES_MAX);
}
