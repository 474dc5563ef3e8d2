#include "cli/help/completion.h"

#include <stdio.h>
#include <string.h>

static void add_names(struct strbuf *out, const char *const *names) {
    for (size_t i = 0; names[i] != NULL; i++)
        strbuf_printf(out, "%s%s", i > 0 ? " " : "", names[i]);
}

static bool takes_folder(const struct option_def *def) {
    return def->arg != NULL && strcmp(def->arg, "DIR") == 0;
}

static bool takes_a_file(const struct option_def *def) {
    return def->arg != NULL && strcmp(def->arg, "FILE") == 0;
}

/* Patterns of the options that take a value, for a case statement: "--a|--b|-r". */
static void add_value_patterns(const struct option_set *set, struct strbuf *out) {
    const char *bar = "";
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *def = option_model(&set->defs[i]);
        if (def->arg == NULL || def->choices != NULL || takes_folder(def) || takes_a_file(def))
            continue;
        strbuf_printf(out, "%s--%s", bar, def->name);
        if (set->defs[i].letter != '\0')
            strbuf_printf(out, "|-%c", set->defs[i].letter);
        bar = "|";
    }
}

/* Whether operands are a script or a file, which a shell can complete. */
static bool takes_file(const struct option_set *set) {
    return strstr(set->operands, "SCRIPT") != NULL;
}

static void add_bash_set(const struct option_set *set, struct strbuf *out) {
    strbuf_printf(out,
                  "_muster_%s() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "    if [[ $cur == = ]]; then cur=; fi\n"
                  "    if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                  "    case $prev in\n",
                  set->command);
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *def = option_model(&set->defs[i]);
        if (def->choices != NULL)
            strbuf_printf(out, "    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return;;\n",
                          def->name, def->choices);
        else if (takes_folder(def))
            strbuf_printf(out, "    --%s) COMPREPLY=($(compgen -d -- \"$cur\")); return;;\n",
                          def->name);
        else if (takes_a_file(def))
            strbuf_printf(out, "    --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n",
                          def->name);
    }
    _cleanup_(strbuf_fini) struct strbuf patterns = {0};
    add_value_patterns(set, &patterns);
    if (patterns.len > 0)
        strbuf_printf(out, "    %s) COMPREPLY=(); return;;\n", strbuf_text(&patterns));
    strbuf_add(out, "    esac\n    if [[ $cur == -* ]]; then\n"
                    "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < set->n; i++)
        strbuf_printf(out, "%s--%s", i > 0 ? " " : "", set->defs[i].name);
    strbuf_printf(out,
                  "' -- \"$cur\"))\n"
                  "    else\n"
                  "        COMPREPLY=(%s)\n"
                  "    fi\n"
                  "}\n",
                  takes_file(set) ? "$(compgen -f -- \"$cur\")" : "");
}

void completion_bash(const char *const *names, const struct option_set *const *sets,
                     struct strbuf *out) {
    strbuf_add(out, "# bash completion for muster: source <(muster completion bash)\n");
    for (size_t i = 0; sets[i] != NULL; i++)
        add_bash_set(sets[i], out);
    strbuf_add(out, "_muster() {\n"
                    "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                    "    if ((COMP_CWORD == 1)); then\n"
                    "        COMPREPLY=($(compgen -W '");
    add_names(out, names);
    strbuf_add(out, "' -- \"$cur\"))\n");
    for (size_t i = 0; sets[i] != NULL; i++)
        strbuf_printf(out,
                      "    elif [[ ${COMP_WORDS[1]} == %s ]]; then\n"
                      "        _muster_%s\n",
                      sets[i]->command, sets[i]->command);
    strbuf_add(out, "    elif [[ ${COMP_WORDS[1]} == help ]]; then\n"
                    "        COMPREPLY=($(compgen -W '");
    add_names(out, names);
    strbuf_printf(out,
                  "' -- \"$cur\"))\n"
                  "    else\n"
                  "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                  "    fi\n"
                  "}\n"
                  "complete -o filenames -F _muster muster\n"
                  "complete -o filenames -F _muster_%s torchrun\n",
                  sets[0]->command);
}

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

static void add_zsh_option(struct strbuf *out, const struct option_def *def, const char *name) {
    const struct option_def *model = option_model(def);
    strbuf_printf(out, "        '*%s%s[", name, model->arg != NULL && name[1] == '-' ? "=" : "");
    add_zsh_text(out, def->help);
    strbuf_add_char(out, ']');
    if (model->choices != NULL)
        strbuf_printf(out, ":value:(%s)", model->choices);
    else if (takes_folder(model))
        strbuf_add(out, ":folder:_files -/");
    else if (takes_a_file(model))
        strbuf_add(out, ":file:_files");
    else if (model->arg != NULL)
        strbuf_add(out, ":value: ");
    strbuf_add(out, "' \\\n");
}

static void add_zsh_set(const struct option_set *set, struct strbuf *out) {
    strbuf_printf(out,
                  "_muster_%s() {\n"
                  "    _arguments -S \\\n",
                  set->command);
    for (size_t i = 0; i < set->n; i++) {
        char name[OPTION_TEXT_MAX];
        (void)snprintf(name, sizeof name, "--%s", set->defs[i].name);
        add_zsh_option(out, &set->defs[i], name);
        if (set->defs[i].letter == '\0')
            continue;
        (void)snprintf(name, sizeof name, "-%c", set->defs[i].letter);
        add_zsh_option(out, &set->defs[i], name);
    }
    strbuf_printf(out, "        %s\n}\n",
                  takes_file(set) ? "'1:script:_files' '*::argument:_files'" : "");
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
    add_names(out, names);
    strbuf_add_char(out, '\n');
    for (size_t i = 0; sets[i] != NULL; i++)
        strbuf_printf(out,
                      "    elif [[ ${words[2]} == %s ]]; then\n"
                      "        shift words\n"
                      "        ((CURRENT--))\n"
                      "        _muster_%s\n",
                      sets[i]->command, sets[i]->command);
    strbuf_add(out, "    else\n"
                    "        _files\n"
                    "    fi\n"
                    "}\n"
                    "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then\n"
                    "    _muster \"$@\"\n"
                    "else\n"
                    "    compdef _muster muster torchrun\n"
                    "fi\n");
}
