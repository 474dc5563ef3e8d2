/* Completion scripts for shells, made from the tables of commands and options. Pure. */
#pragma once

#include "base/strbuf.h"
#include "cli/options.h"

/* names: the subcommands, NULL-terminated; `set` completes "muster COMMAND" and, as torchrun does,
 * the words of a program of that name. */
void completion_bash(const char *const *names, const struct option_set *set, struct strbuf *out);
void completion_zsh(const char *const *names, const struct option_set *set, struct strbuf *out);
