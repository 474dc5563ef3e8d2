/* Help for people, made from the tables of options: the one screen of -h, and all of it. A command
 * with a table has both rows:
 *
 *     [FOO_HELP] = HELP_ROW(), [FOO_HELP_ALL] = HELP_ALL_ROW,
 *     …
 *     int status = help_answer(&foo_options, &parsed);
 *     if (status >= 0)
 *         return status; */
#pragma once

#include "base/text/strbuf.h"
#include "cli/options/options.h"

/* ...: further fields, as .section; or nothing. */
#define HELP_ROW(...)                                                                              \
    {                                                                                              \
        .name = "help", .letter = 'h', .flags = OPTION_STOPS | OPTION_SHORT, .brief = "show this", \
        .help = "show the options that matter most", __VA_ARGS__                                   \
    }
#define HELP_ALL_ROW                                             \
    {                                                            \
        .name = "help-all", .flags = OPTION_STOPS | OPTION_OURS, \
        .help = "show all options, and more about each"          \
    }

/* The most that the short help can take: a test checks that. */
#define HELP_SCREEN_LINES 24
#define HELP_SCREEN_COLUMNS 80

/* Every row, at most 80 columns wide. */
void help_all(const struct option_set *set, struct strbuf *out);

/* Prints one of them; returns the exit status. */
_must_use_ int help_print(const struct option_set *set, bool all);
/* Prints help if the command line asks for it, and returns the exit status. -1: it does not. */
_must_use_ int help_answer(const struct option_set *set, const struct options_parsed *parsed);
