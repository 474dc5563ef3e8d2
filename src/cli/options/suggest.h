/* Finds the known word that is most similar to a mistyped one. */
#pragma once

#include "base/util.h"

/* Words are cut to this length before they are compared. */
#define SUGGEST_WORD_MAX 64

/* Edits from a to b: insert, remove, replace a character, swap two neighbours; "_" equals "-". */
size_t suggest_distance(const char *a, const char *b);

/* The best word so far, while the caller tries its words:
 *
 *     struct suggest s = suggest_for(word);
 *     for (…) suggest_offer(&s, known[i]);
 *     if (s.best != NULL) …                    borrowed from the offered words */
struct suggest {
    const char *word;
    const char *best;
    size_t distance;
};
struct suggest suggest_for(const char *word);
void suggest_offer(struct suggest *s, const char *known);
