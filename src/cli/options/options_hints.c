/* What a person may have meant by an option that there is not. */
#include <string.h>

#include "cli/options/options.h"
#include "cli/options/suggest.h"

static char folded(char c) { return c == '_' ? '-' : c; }

/* Whether both are the same word, for people who write "_" for "-". */
static bool is_same(const char *name, const char *word) {
    while (*name != '\0' && *name == folded(*word)) {
        name++;
        word++;
    }
    return *name == *word;
}

/* The option that has the longest beginning in common with a word, if that is a large part of
 * it. */
static const char *longest_common(const struct option_set *set, const char *word) {
    const char *best = NULL;
    size_t best_n = 3;
    for (size_t i = 0; i < set->n; i++) {
        const char *name = set->defs[i].name;
        size_t n = 0;
        while (name[n] != '\0' && name[n] == folded(word[n]))
            n++;
        if (n > best_n) {
            best_n = n;
            best = name;
        }
    }
    return best;
}

/* The first option whose name ends with the word: "endpoint" for "rdzv-endpoint". */
static const char *ending_of(const struct option_set *set, const char *word) {
    for (size_t i = 0; i < set->n; i++)
        for (const char *dash = strchr(set->defs[i].name, '-'); dash != NULL;
             dash = strchr(dash + 1, '-'))
            if (is_same(dash + 1, word))
                return set->defs[i].name;
    return NULL;
}

const char *option_similar(const struct option_set *set, const char *word) {
    struct suggest s = suggest_for(word);
    for (size_t i = 0; i < set->n; i++)
        suggest_offer(&s, set->defs[i].name);
    if (s.best != NULL)
        return s.best;
    const char *name = ending_of(set, word);
    return name != NULL ? name : longest_common(set, word);
}

const char *option_hint(const struct option_set *set, const char *word) {
    for (const struct option_hint *h = set->hints; h != NULL && h->word != NULL; h++)
        if (is_same(h->word, word))
            return h->hint;
    return NULL;
}
