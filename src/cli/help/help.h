/* Help for people, made from the tables of options: the one screen of -h, and all of it. The table
 * of a command ends with both rows:
 *
 *     HELP_ROW(), HELP_ALL_ROW,
 *     …
 *     int status = help_or_parse(&foo_options, argc, argv, NULL, 0, &parsed);
 *     if (status >= 0)
 *         return status; */
#pragma once

#include "base/text/strbuf.h"
#include "cli/options/options.h"

/* ...: further fields, as .section; or nothing. */
#define HELP_ROW(...)                                                                   \
    {                                                                                   \
        "help", NULL, OPTION_STOPS | OPTION_SHORT, "show the options that matter most", \
            .letter = 'h', .brief = "show this", __VA_ARGS__                            \
    }
#define HELP_ALL_ROW \
    { "help-all", NULL, OPTION_STOPS | OPTION_OURS, "show all options, and more about each" }
/* Rows that several commands have. */
#define JSON_ROW                                                                       \
    {                                                                                  \
        "json", NULL, OPTION_SHORT, "print one JSON object in one line, for programs", \
            .brief = "print one JSON object, for programs"                             \
    }
#define OUTPUT_ROW                                                                               \
    {                                                                                            \
        "output", "FORMAT", OPTION_SHORT,                                                        \
            "print all columns, in lines of any width (wide), or the same as --json",            \
            .letter = 'o', .choices = "wide json", .brief = "wide: all columns; json: as --json" \
    }

/* The most that the short help can take: a test checks that. */
#define HELP_SCREEN_LINES 24
#define HELP_SCREEN_COLUMNS 80

void help_all(const struct option_set *set, struct strbuf *out);

/* Prints one of them; returns the exit status. */
_must_use_ int help_print(const struct option_set *set, bool all);
/* Prints help if the command line asks for it, and returns the exit status. -1: it does not. */
_must_use_ int help_answer(const struct option_set *set, const struct options_parsed *parsed);
/* Reads a command line as options_parse_any() does. -1: *ret is filled in. Otherwise returns the
 * exit status: help or an error was printed. */
_must_use_ int help_or_parse(const struct option_set *set, int argc, char **argv,
                             const char **ret_operands, int max, struct options_parsed *ret);
/* What --json and --output of JSON_ROW and OUTPUT_ROW select. */
enum output_format { OUTPUT_TEXT = 1, OUTPUT_WIDE, OUTPUT_JSON, OUTPUT_PROMETHEUS };
enum output_format output_format(const struct option_value *json,
                                 const struct option_value *output);
