/* Command lines by a table: each option has a row, which determines parsing, defaults from the
 * environment, help, completion and the check of the man page. A row that names a field of a struct
 * is an ordinary option: options_fill() reads it, and it is also shown by its row. Pure; it
 * contains no option's name.
 *
 *     r = options_parse(&run_options, argc, argv, &parsed, &err);
 *     r = options_from_env(&run_options, environ, &parsed, &err);
 *     parsed.values[option_row(&run_options, RUN_NNODES)].text …
 *     argv[parsed.operand] is SCRIPT, argv + parsed.rest its words
 *
 * The grammar is that of Python's argparse as torchrun uses it: --name VALUE, --name=VALUE, "_" for
 * "-" in names, unambiguous beginnings of names, -r3, -r 3, -r=3, -mr3; a word that looks like an
 * option is not a value, except a negative number, "-", and a word that contains a blank. Unlike
 * argparse, words after the first operand are not parsed. The first "--" is dropped if it is
 * directly before or directly after the first operand. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define OPTIONS_MAX 96

/* Flags of a row. */
enum {
    OPTION_ENV = 1, /* PET_NAME is its default; for a switch that is an integer, 0 is off */
    /* not torchrun's: never makes an abbreviation of one of torchrun's ambiguous */
    OPTION_OURS = 2,
    OPTION_STOPS = 4,   /* words after it are not read (--help) */
    OPTION_REPEATS = 8, /* each of its values counts: option_repeated() */
    /* `choices` bounds only the command line, as argparse does; PET_NAME may have any value */
    OPTION_ENV_FREE = 16,
    OPTION_COMMAS = 64, /* a list: completion offers `offer` for each item */
    OPTION_SHORT = 32,  /* also in the help of -h, which is one screen: with `brief` */
};

/* The type of an ordinary option's field. */
enum option_kind {
    OPTION_BY_HAND = 0, /* no field: a function of its own reads the text */
    OPTION_SWITCH,      /* bool */
    OPTION_COUNT,       /* uint32_t; UINT32_MAX: none */
    OPTION_SECONDS,     /* uint64_t nanoseconds */
    OPTION_CHOICE,      /* an enum */
    OPTION_TEXT,        /* char *, owned; an empty text is NULL if there is no `fallback` */
};

struct option_def {
    const char *name; /* "nproc-per-node"; lower case, "-" */
    const char *arg;  /* name of its value in the help; NULL: a switch */
    unsigned flags;
    const char *help; /* a sentence without its full stop, and without the default */
    /* the id with which code finds the row, see option_row(); 0: none */
    unsigned id;
    char letter;          /* 0: none */
    const char *fallback; /* the default as text; NULL: none, or the field's own value */
    /* the value without "=": a value in the next word is not taken. NULL: a value is needed */
    const char *bare;
    const char *choices; /* "spawn fork forkserver"; NULL: any */
    /* What completion offers if there are no choices: words, or one of OFFER_*; NULL: nothing. */
    const char *offer;
    /* heading in the help, if it differs from that of the row before */
    const char *section;
    const char *brief;    /* OPTION_SHORT: one line for -h, with the default; NULL: `help` fits */
    const char *variable; /* variable with its default if PET_NAME is not set; NULL: none */
    const struct option_set *as; /* takes what the row of this name there takes: arg, choices and
                                    OPTION_REPEATS stand in that one; NULL: in this one */

    enum option_kind kind;
    size_t at;             /* offset of the field, in option_set.defaults */
    uint32_t least, most;  /* COUNT: limits; SECONDS: `least` ns; TEXT: `most` bytes, 0: any */
    const char *must;      /* COUNT: "must be …" if it is outside the limits */
    const uint8_t *values; /* CHOICE: the value of each of `choices`, in their order */
    const char *key;       /* key in printed settings; NULL: the name, with "_" for "-" */
};

/* A word that is an option elsewhere, and a clause that helps who gives it to us. */
struct option_hint {
    const char *word; /* without its dashes; lower case, "-"; or a letter */
    const char *hint;
};

/* Words that only a look at this machine shows. */
#define OFFER_RUN_IDS "@run-ids"
#define OFFER_RECENT_RUNS "@recent-runs" /* also those that have ended */
#define OFFER_NODES "@nodes"

struct option_set {
    const char *command;  /* "run" */
    const char *operands; /* "SCRIPT [ARGS...]"; "": none */
    const char *about;    /* one paragraph of help */
    const char *example;  /* for -h: what follows the command's name; NULL: none */
    const char *more_of;  /* and what `more` is an example of; NULL: there is no second one */
    const char *more;
    const char *page; /* its man page is muster-PAGE(1); NULL: muster-COMMAND(1) */
    const struct option_def *defs;
    size_t n;          /* <= OPTIONS_MAX */
    const char *offer; /* for its first operand: one of OFFER_*; NULL: a script, or nothing */
    const struct option_hint *hints; /* ends with a row of NULLs; NULL: none */
    const void *defaults; /* a struct with the fields of ordinary options; NULL: there are none */
};

#define OPTION_DEFS(rows) .defs = (rows), .n = ARRAY_SIZE(rows)

struct option_value {
    const char *text; /* from argv, the environment, or the default; NULL: a switch, or no value */
    uint32_t times;   /* times on the command line; a switch that the environment sets counts 1 */
    bool from_env;
    bool from_variable; /* from_env: the value comes from option_def.variable */
};

#define OPTIONS_REPEATED_MAX 256

struct options_parsed {
    struct option_value values[OPTIONS_MAX]; /* by row */
    struct {
        size_t row;
        const char *text;
    } repeated[OPTIONS_REPEATED_MAX]; /* values of OPTION_REPEATS rows, in order */
    size_t n_repeated;
    int operand;  /* index of the first operand; argc: there is none */
    int rest;     /* index of the word after it */
    bool stopped; /* an OPTION_STOPS row was found */
};

/* Returns 0, or -EINVAL with a sentence and, if there is one, the most similar option. Texts are
 * borrowed from argv and the table. */
_must_use_ int options_parse(const struct option_set *set, int argc, char *const *argv,
                             struct options_parsed *ret, struct err *err);
/* The same for commands whose options and operands come in any order: at most `max` operands, the
 * others in ret_operands are NULL. Rows that repeat are not supported. */
_must_use_ int options_parse_any(const struct option_set *set, int argc, char *const *argv,
                                 const char **ret_operands, int max, struct options_parsed *ret,
                                 struct err *err);
/* Fills in what was not on the command line: from PET_NAME, if set, even to "". -EINVAL: a switch's
 * value that is not an integer, or a value that is none of the choices. */
_must_use_ int options_from_env(const struct option_set *set, char *const *envp,
                                struct options_parsed *parsed, struct err *err);

/* The row that describes which values a row takes: the row itself, or the one in `as`. */
const struct option_def *option_model(const struct option_def *def);
/* The row with an id, which must exist. */
size_t option_row(const struct option_set *set, unsigned id);
/* The index of `text` among a row's choices; -1: it is none of them. */
int option_choice(const struct option_def *def, const char *text);
/* The n-th choice, and its length; NULL: there are fewer. */
const char *option_nth_choice(const struct option_def *def, unsigned n, size_t *ret_len);

/* Fills in the fields of the ordinary options in `into`, row by row; from_env: only those whose
 * value comes from the environment. An option that was not given and has no `fallback` leaves its
 * field unchanged. -EINVAL with a sentence. */
_must_use_ int options_fill(const struct option_set *set, const struct options_parsed *parsed,
                            bool from_env, void *into, struct err *err);
/* A field's value in the form of the command line, in `out` or in the field itself. NULL: it has
 * none, or the option is a switch or not an ordinary one. */
#define OPTION_TEXT_MAX 64
const char *option_field_text(const struct option_def *def, const void *of,
                              char out[OPTION_TEXT_MAX]);

/* The option that is most similar to a mistyped name (without its dashes); NULL: none is. */
const char *option_similar(const struct option_set *set, const char *word);
/* The hint for a word; NULL: there is none. */
const char *option_hint(const struct option_set *set, const char *word);

/* How a command was called: "muster COMMAND", or "torchrun" if that is the name of the program.
 * command NULL: "muster". Returns `out`. */
const char *command_called(const char *command, char out[OPTION_TEXT_MAX]);

/* The n-th value of an OPTION_REPEATS row; NULL: there are fewer. */
const char *option_repeated(const struct options_parsed *parsed, size_t row, size_t n);

/* "--redirects", or "PET_REDIRECTS" if the value came from there: for error texts. */
const char *option_origin(const struct option_set *set, const struct options_parsed *parsed,
                          size_t row, char out[OPTION_TEXT_MAX]);
/* "PET_NPROC_PER_NODE" */
void option_env_name(const struct option_def *def, char out[OPTION_TEXT_MAX]);

/* ---- the known word that is most similar to a mistyped one ---- */

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
