/* What a shell offers while a person types. The scripts for the shells are the same few lines each:
 * they run "muster completion offer SHELL WORD...", and everything else is decided here, from the
 * tables of commands and options. Pure.
 *
 *     completion_offer(&line, &offer);
 *     if (offer.question != NULL)   for each word that it stands for: completion_add(&offer, word)
 *     print offer.kind and offer.lines; completion_fini(&offer)
 */
#pragma once

#include "base/text/strbuf.h"
#include "cli/options/options.h"

enum completion_shell { COMPLETION_BASH = 1, COMPLETION_ZSH, COMPLETION_FISH };
/* "bash zsh fish" */
#define COMPLETION_SHELLS "bash zsh fish"
/* By its name; 0: none of them. */
enum completion_shell completion_shell_of(const char *name);

struct completion_line {
    enum completion_shell shell;
    const char *const *names;             /* the subcommands, NULL-terminated */
    const struct option_set *const *sets; /* those with options, NULL-terminated; run is first */
    char *const *words;                   /* the program, then all words up to the cursor */
    int n;                                /* bash: split at "=" and ":", as in COMP_WORDS */
};

struct completion_offer {
    const char *kind;     /* what the shell offers if there are no words: "words", which is
                                * nothing, "files" or "folders" */
    const char *question; /* one of OFFER_* without its "@": words that the caller must find */
    struct strbuf lines;  /* "WORD" or "WORD\tHELP": whole words of the command line, without
                                * what bash counts as words of their own */
    struct strbuf word;   /* the word at the cursor */
    size_t value, cut;    /* in it: where the value begins, and what bash has completed */
    bool help;
};

void completion_offer(const struct completion_line *line, struct completion_offer *ret);
/* Adds a value, if the word at the cursor is its beginning. */
void completion_add(struct completion_offer *o, const char *value);
void completion_fini(struct completion_offer *o);

/* The script that a user loads. */
const char *completion_script(enum completion_shell shell);
