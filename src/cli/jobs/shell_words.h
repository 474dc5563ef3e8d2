/* Words as a POSIX shell reads them. Pure. */
#pragma once

#include "base/text/strbuf.h"

/* Adds a word, in single quotes if the shell would change it otherwise. */
void shell_add_word(struct strbuf *out, const char *word);
/* Adds "muster WORD..." with `to` in place of `from`, a part of a word; NULL: behind them. */
void shell_add_line(struct strbuf *out, int argc, char *const *argv, const char *from,
                    const char *to);
/* Adds "NAME=VALUE" with only the value in quotes. */
void shell_add_assignment(struct strbuf *out, const char *text);
