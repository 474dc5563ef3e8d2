/* Completion scripts for shells, made from the tables of commands and options. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "cli/options/options.h"

/* names: the subcommands; sets: the options of those that have some; both NULL-terminated. The
 * first set is that of "muster run", which also completes the words of a program called torchrun.
 */
void completion_bash(const char *const *names, const struct option_set *const *sets,
                     struct strbuf *out);
void completion_zsh(const char *const *names, const struct option_set *const *sets,
                    struct strbuf *out);
void completion_fish(const char *const *names, const struct option_set *const *sets,
                     struct strbuf *out);
