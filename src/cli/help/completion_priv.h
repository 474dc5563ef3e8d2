/* What the scripts for the shells have in common. Shared only by completion*.c. */
#pragma once

#include "cli/help/completion.h"

/* "a b c" */
void completion_add_names(struct strbuf *out, const char *const *names);
/* What an option takes. The option is the model: option_model(). */
bool completion_takes_folder(const struct option_def *model);
bool completion_takes_file(const struct option_def *model);
/* Whether the first operand is a script: what follows it is not for muster. */
bool completion_has_script(const struct option_set *set);
/* The words that are offered for a value; NULL: none, or they must be asked for. */
const char *completion_words(const struct option_def *model);
/* Whether the first operand can also be a folder. */
bool completion_offers_folders(const struct option_set *set);
/* For "@run-ids": "run-ids", which "muster completion words" prints; NULL: `offer` is another. */
const char *completion_question(const char *offer);
