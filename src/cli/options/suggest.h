/* The known word that a mistyped one most resembles. */
#pragma once

#include "base/util.h"

/* Words that are compared are cut off here. */
#define SUGGEST_WORD_MAX 64

/* Edits from a to b: insert, remove, replace a character, swap two neighbours; "_" equals "-". */
size_t suggest_distance(const char *a, const char *b);

/* The best so far, while the caller goes through its words:
 *
 *     struct suggest s = suggest_for(word);
 *     for (…) suggest_offer(&s, known[i]);
 *     if (s.best != NULL) …                    borrowed from the words offered */
struct suggest {
    const char *word;
    const char *best;
    size_t distance;
};
struct suggest suggest_for(const char *word);
void suggest_offer(struct suggest *s, const char *known);
