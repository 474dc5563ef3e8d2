/* Command lines by a table: one row per option drives parsing, defaults from the environment, help,
 * completion and the check of the man page. Pure; knows no option by name.
 *
 *     r = options_parse(&run_options, argc, argv, &parsed, &err);
 *     r = options_from_env(&run_options, environ, &parsed, &err);
 *     parsed.values[RUN_NNODES].text …
 *     argv[parsed.operand] is SCRIPT, argv + parsed.rest its words
 *
 * The grammar is that of Python's argparse as torchrun uses it: --name VALUE, --name=VALUE, "_" for
 * "-" in names, unambiguous beginnings of names, -r3, -r 3, -r=3, -mr3; a word that looks like an
 * option is no value, but a negative number, "-", and a word with a blank in it are. Unlike
 * argparse, nothing after the first operand is looked at. The first "--" is dropped when it stands
 * directly before or directly after the first operand. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define OPTIONS_MAX 64

/* Flags of a row. */
enum {
    OPTION_ENV = 1,     /* PET_NAME is its default; for a switch an integer, 0 is off */
    OPTION_OURS = 2,    /* not torchrun's: never makes a beginning of one of torchrun's ambiguous */
    OPTION_STOPS = 4,   /* what follows is not read (--help) */
    OPTION_REPEATS = 8, /* each of its values counts: option_repeated() */
};

struct option_def {
    const char *name;     /* "nproc-per-node"; lower case, "-" */
    char letter;          /* 0: none */
    const char *arg;      /* name of its value in the help; NULL: a switch */
    const char *fallback; /* the default as text; NULL: none */
    const char *choices;  /* "spawn fork forkserver"; NULL: any */
    unsigned flags;
    const char *section; /* heading of the help where it differs from the row before */
    const char *help;    /* a sentence without its full stop */
};

struct option_set {
    const char *command;  /* "run" */
    const char *operands; /* "SCRIPT [ARGS...]"; "" when there are none */
    const char *about;    /* one paragraph of help */
    const struct option_def *defs;
    size_t n; /* <= OPTIONS_MAX */
};

struct option_value {
    const char *text; /* of argv, of the environment, or the default; NULL: a switch, or nothing */
    uint32_t times;   /* on the command line; a switch set by the environment counts 1 */
    bool from_env;
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
    bool stopped; /* an OPTION_STOPS row was met */
};

/* 0, or -EINVAL with a sentence and, where there is one, the nearest option. Texts are borrowed
 * from argv and the table. */
_must_use_ int options_parse(const struct option_set *set, int argc, char *const *argv,
                             struct options_parsed *ret, struct err *err);
/* Fills in what was not on the command line: from PET_NAME where it is set (an empty value is set
 * too). -EINVAL: a switch's value that is no integer, or none of the choices. */
_must_use_ int options_from_env(const struct option_set *set, char *const *envp,
                                struct options_parsed *parsed, struct err *err);

/* The n-th value of an OPTION_REPEATS row, NULL when there are not so many. */
const char *option_repeated(const struct options_parsed *parsed, size_t row, size_t n);

/* "--redirects", or "PET_REDIRECTS" when that is where the value came from: for error texts. */
#define OPTION_TEXT_MAX 64
const char *option_origin(const struct option_set *set, const struct options_parsed *parsed,
                          size_t row, char out[OPTION_TEXT_MAX]);
/* "PET_NPROC_PER_NODE" */
void option_env_name(const struct option_def *def, char out[OPTION_TEXT_MAX]);

/* Help for people, at most 80 columns wide. */
void options_help(const struct option_set *set, struct strbuf *out);
