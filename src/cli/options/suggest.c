#include "cli/options/suggest.h"

#include <string.h>

static char folded(char c) { return c == '_' ? '-' : c; }

/* Restricted Damerau-Levenshtein distance, with three rows of the table. */
size_t suggest_distance(const char *a, const char *b) {
    size_t rows[3][SUGGEST_WORD_MAX + 1];
    size_t na = strnlen(a, SUGGEST_WORD_MAX), nb = strnlen(b, SUGGEST_WORD_MAX);
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = rows[i % 3];
        const size_t *up = rows[(i - 1) % 3];
        const size_t *up2 = rows[(i + 1) % 3];
        char ca = folded(a[i - 1]);
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            char cb = folded(b[j - 1]);
            size_t best = MIN2(up[j], now[j - 1]) + 1;
            best = MIN2(best, up[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == folded(b[j - 2]) && folded(a[i - 2]) == cb)
                best = MIN2(best, up2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

struct suggest suggest_for(const char *word) {
    /* A third of the letters can be wrong, but at least one. */
    size_t n = strnlen(word, SUGGEST_WORD_MAX);
    return (struct suggest){.word = word, .distance = MAX2(n / 3, (size_t)1) + 1};
}

void suggest_offer(struct suggest *s, const char *known) {
    /* Each missing letter is an edit, so most words need no table. */
    size_t na = strnlen(s->word, SUGGEST_WORD_MAX), nb = strnlen(known, SUGGEST_WORD_MAX);
    if (MAX2(na, nb) - MIN2(na, nb) >= s->distance)
        return;
    size_t d = suggest_distance(s->word, known);
    /* "x" is one edit away from every one-letter word, but not similar to it. */
    if (d < s->distance && d < nb) {
        s->distance = d;
        s->best = known;
    }
}
