#include "cli/options/options.h"

#include "rig/unit.h"

Test(suggest, counts_edits) {
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"a", "", 1},
        {"", "abc", 3},
        {"same", "same", 0},
        {"nnode", "nnodes", 1},
        {"versoin", "version", 1},
        {"ab", "ba", 1},
        {"abc", "ca", 3},
        {"kitten", "sitting", 3},
        {"log_dir", "log-dir", 0},
        {"flaw", "lawn", 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert_eq(suggest_distance(cases[i].a, cases[i].b), cases[i].distance, "%s %s", cases[i].a, cases[i].b);
        cr_assert_eq(suggest_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
}

Test(suggest, compares_long_words_by_their_beginning) {
    char a[SUGGEST_WORD_MAX + 50], b[SUGGEST_WORD_MAX + 50];
    for (size_t i = 0; i < sizeof a - 1; i++)
        a[i] = b[i] = 'x';
    a[sizeof a - 1] = b[sizeof b - 1] = '\0';
    b[SUGGEST_WORD_MAX] = 'y';
    cr_assert_eq(suggest_distance(a, b), 0);
    b[SUGGEST_WORD_MAX - 1] = 'y';
    cr_assert_eq(suggest_distance(a, b), 1);
}

static const char *nearest(const char *word) {
    static const char *const known[] = {"run", "store", "version", "help", "completion", "m"};
    struct suggest s = suggest_for(word);
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        suggest_offer(&s, known[i]);
    return s.best;
}

Test(suggest, offers_the_nearest_word_or_none) {
    cr_assert_str_eq(nearest("rnu"), "run");
    cr_assert_str_eq(nearest("stroe"), "store");
    cr_assert_str_eq(nearest("completoin"), "completion");
    cr_assert_null(nearest("train"));
    cr_assert_null(nearest("x"));
    cr_assert_null(nearest(""));
}
