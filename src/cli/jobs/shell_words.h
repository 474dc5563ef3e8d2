/* Words as a POSIX shell reads them. Pure. */
#pragma once

#include "base/text/strbuf.h"

/* Adds a word, in single quotes if the shell would change it otherwise. */
void shell_add_word(struct strbuf *out, const char *word);
/* Adds "NAME=VALUE" with only the value in quotes. */
void shell_add_assignment(struct strbuf *out, const char *text);
