#include "cli/help/completion.h"

#include <string.h>

#include "cli/help/completion_priv.h"

void completion_add_names(struct strbuf *out, const char *const *names) {
    for (size_t i = 0; names[i] != NULL; i++)
        strbuf_printf(out, "%s%s", i > 0 ? " " : "", names[i]);
}

bool completion_takes_folder(const struct option_def *model) {
    return model->arg != NULL && strcmp(model->arg, "DIR") == 0;
}

bool completion_takes_file(const struct option_def *model) {
    return model->arg != NULL && strcmp(model->arg, "FILE") == 0;
}

bool completion_has_script(const struct option_set *set) {
    return strstr(set->operands, "SCRIPT") != NULL;
}

bool completion_offers_folders(const struct option_set *set) {
    return set->offer != NULL && strcmp(set->offer, OFFER_RECENT_RUNS) == 0;
}

const char *completion_question(const char *offer) {
    return offer != NULL && offer[0] == '@' ? offer + 1 : NULL;
}

const char *completion_words(const struct option_def *model) {
    if (model->choices != NULL)
        return model->choices;
    return completion_question(model->offer) == NULL ? model->offer : NULL;
}
