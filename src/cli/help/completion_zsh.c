/* The script for zsh. */
#include <stdio.h>
#include <string.h>

#include "cli/help/completion_priv.h"

/* Adds text inside '[…]' of a zsh _arguments specification, which itself is in single quotes. */
static void add_zsh_text(struct strbuf *out, const char *s) {
    for (; *s != '\0'; s++) {
        if (*s == '[' || *s == ']' || *s == '\\' || *s == ':')
            strbuf_add_char(out, '\\');
        if (*s == '\'')
            strbuf_add(out, "'\\''");
        else
            strbuf_add_char(out, *s);
    }
}

/* Words that muster prints when it is asked. */
static void add_question(struct strbuf *out, const char *question, bool folders) {
    strbuf_printf(out, ":value:{compadd -- ${(f)\"$(muster completion words %s 2>/dev/null)\"}%s}",
                  question, folders ? "; _files -/" : "");
}

static void add_zsh_option(struct strbuf *out, const struct option_def *def, const char *name) {
    const struct option_def *model = option_model(def);
    const char *equals = model->bare != NULL ? "=-" : "=";
    strbuf_printf(out, "        '*%s%s[", name, model->arg != NULL && name[1] == '-' ? equals : "");
    add_zsh_text(out, def->help);
    strbuf_add_char(out, ']');
    const char *words = completion_words(model), *question = completion_question(model->offer);
    if (words != NULL && (model->flags & OPTION_COMMAS) != 0)
        strbuf_printf(out, ":value:_sequence compadd%s - %s",
                      strchr(words, '=') != NULL ? " -S \"\"" : "", words);
    else if (words != NULL)
        strbuf_printf(out, ":value:(%s)", words);
    else if (question != NULL)
        add_question(out, question, false);
    else if (completion_takes_folder(model))
        strbuf_add(out, ":folder:_files -/");
    else if (completion_takes_file(model))
        strbuf_add(out, ":file:_files");
    else if (model->arg != NULL)
        strbuf_add(out, ":value: ");
    strbuf_add(out, "' \\\n");
}

static void add_zsh_set(const struct option_set *set, struct strbuf *out) {
    /* -A: no options behind the script */
    strbuf_printf(out,
                  "_muster_%s() {\n"
                  "    _arguments -S%s \\\n",
                  set->command, completion_has_script(set) ? " -A \"-*\"" : "");
    for (size_t i = 0; i < set->n; i++) {
        char name[OPTION_TEXT_MAX];
        (void)snprintf(name, sizeof name, "--%s", set->defs[i].name);
        add_zsh_option(out, &set->defs[i], name);
        if (set->defs[i].letter == '\0')
            continue;
        (void)snprintf(name, sizeof name, "-%c", set->defs[i].letter);
        add_zsh_option(out, &set->defs[i], name);
    }
    const char *question = completion_question(set->offer);
    strbuf_add(out, "        ");
    if (completion_has_script(set))
        strbuf_add(out, "'1:script:_files' '*:argument:_files'");
    if (question != NULL) {
        strbuf_add(out, "'1");
        add_question(out, question, completion_offers_folders(set));
        strbuf_add_char(out, '\'');
    }
    strbuf_add(out, "\n}\n");
}

void completion_zsh(const char *const *names, const struct option_set *const *sets,
                    struct strbuf *out) {
    strbuf_add(out, "#compdef muster torchrun\n"
                    "# zsh completion for muster: source <(muster completion zsh)\n");
    for (size_t i = 0; sets[i] != NULL; i++)
        add_zsh_set(sets[i], out);
    strbuf_printf(out,
                  "_muster() {\n"
                  "    if [[ $service == torchrun ]]; then\n"
                  "        _muster_%s\n"
                  "    elif ((CURRENT == 2)); then\n"
                  "        compadd -- ",
                  sets[0]->command);
    completion_add_names(out, names);
    strbuf_add_char(out, '\n');
    for (size_t i = 0; sets[i] != NULL; i++)
        strbuf_printf(out,
                      "    elif [[ ${words[2]} == %s ]]; then\n"
                      "        shift words\n"
                      "        ((CURRENT--))\n"
                      "        _muster_%s\n",
                      sets[i]->command, sets[i]->command);
    strbuf_add(out, "    elif [[ ${words[2]} == completion ]]; then\n"
                    "        compadd -- bash zsh fish\n"
                    "    elif [[ ${words[2]} == help ]]; then\n"
                    "        compadd -- ");
    completion_add_names(out, names);
    strbuf_add(out, "\n"
                    "    else\n"
                    "        _message 'no more arguments'\n"
                    "    fi\n"
                    "}\n"
                    "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then\n"
                    "    _muster \"$@\"\n"
                    "else\n"
                    "    compdef _muster muster torchrun\n"
                    "fi\n");
}
