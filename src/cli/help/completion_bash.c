/* The script for bash. bash splits words at "=" and ":", so a value can be several words. */

#include "cli/help/completion_priv.h"

/* Functions that all commands use. $cur is the word at the cursor. */
static const char common[] =
    "# The options with values are the words of $2, those of $3 only with a =; $1 is the first\n"
    "# word to read. Sets opt: the option whose value the cursor is at; script: the cursor is\n"
    "# behind the script's name.\n"
    "_muster_scan() {\n"
    "    local i=$1 word\n"
    "    opt= script=\n"
    "    while ((i < COMP_CWORD)); do\n"
    "        word=${COMP_WORDS[i++]}\n"
    "        if [[ $word == -- || $word != -?* ]]; then script=1; return; fi\n"
    "        [[ \" $2 $3 \" == *\" ${word//_/-} \"* ]] || continue\n"
    "        if [[ ${COMP_WORDS[i]} == = ]]; then\n"
    "            if ((i == COMP_CWORD)); then opt=${word//_/-}; return; fi\n"
    "            ((i++))\n"
    "        elif [[ \" $3 \" == *\" ${word//_/-} \"* ]]; then continue; fi\n"
    "        while ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i+1]} == [=:]* ]]; do ((i += 2)); done\n"
    "        if ((i >= COMP_CWORD)); then opt=${word//_/-}; return; fi\n"
    "        ((i++))\n"
    "    done\n"
    "}\n"
    "# Words are not file names, in which bash would quote a \"=\".\n"
    "_muster_words() {\n"
    "    compopt +o filenames 2>/dev/null\n"
    "    COMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n"
    "}\n"
    "_muster_ask() { _muster_words \"$(muster completion words \"$1\" 2>/dev/null)\"; }\n"
    "# One more item of a list with commas.\n"
    "_muster_list() {\n"
    "    local before=\n"
    "    compopt +o filenames 2>/dev/null\n"
    "    if [[ $cur == *,* ]]; then before=${cur%,*},\n"
    "    elif [[ $prev == = && ${COMP_WORDS[COMP_CWORD-2]//_/-} != \"$opt\" ]]; then return; fi\n"
    "    COMPREPLY=($(compgen -P \"$before\" -W \"$1\" -- \"${cur##*,}\"))\n"
    "    if [[ $1 == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "}\n";

static void add_value(const struct option_def *def, struct strbuf *out) {
    const struct option_def *model = option_model(def);
    const char *words = completion_words(model), *question = completion_question(model->offer);
    strbuf_printf(out, "    --%s", def->name);
    if (def->letter != '\0')
        strbuf_printf(out, "|-%c", def->letter);
    strbuf_add(out, ") ");
    if (words != NULL && (model->flags & OPTION_COMMAS) != 0)
        strbuf_printf(out, "_muster_list '%s'; ", words);
    else if (words != NULL)
        strbuf_printf(out, "_muster_words '%s'; ", words);
    else if (question != NULL)
        strbuf_printf(out, "_muster_ask %s; ", question);
    else if (completion_takes_folder(model))
        strbuf_add(out, "COMPREPLY=($(compgen -d -- \"$cur\")); ");
    else if (completion_takes_file(model))
        strbuf_add(out, "COMPREPLY=($(compgen -f -- \"$cur\")); ");
    strbuf_add(out, "return;;\n");
}

static void add_operand(const struct option_set *set, struct strbuf *out) {
    const char *question = completion_question(set->offer);
    if (completion_has_script(set))
        strbuf_add(out, "        COMPREPLY=($(compgen -f -- \"$cur\"))\n");
    else if (question != NULL)
        strbuf_printf(out, "        _muster_ask %s\n%s", question,
                      completion_offers_folders(set)
                          ? "        if ((!${#COMPREPLY[@]})); then\n"
                            "            compopt -o filenames 2>/dev/null\n"
                            "            COMPREPLY=($(compgen -d -- \"$cur\"))\n"
                            "        fi\n"
                          : "");
    else
        strbuf_add(out, "        COMPREPLY=()\n");
}

/* Names of options with values: those that need one, or (bare) those that need none. */
static void add_valued(const struct option_set *set, bool bare, struct strbuf *out) {
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *model = option_model(&set->defs[i]);
        if (model->arg == NULL || (model->bare != NULL) != bare)
            continue;
        strbuf_printf(out, "--%s ", set->defs[i].name);
        if (set->defs[i].letter != '\0')
            strbuf_printf(out, "-%c ", set->defs[i].letter);
    }
}

static void add_set(const struct option_set *set, struct strbuf *out) {
    bool script = completion_has_script(set);
    strbuf_printf(out,
                  "_muster_%s() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "    local opt script first=2 i=${COMP_CWORD}\n"
                  "    COMPREPLY=()\n"
                  "    if [[ ${COMP_WORDS[0]##*/} == torchrun ]]; then first=1; fi\n",
                  set->command);
    /* operands and options come in any order, unless the operand is a script */
    if (!script)
        strbuf_add(out, "    while ((--i >= first)) && [[ ${COMP_WORDS[i]} != -* ]]; do :; done\n"
                        "    if ((i > first)); then first=$i; fi\n");
    strbuf_add(out, "    _muster_scan $first '");
    add_valued(set, false, out);
    strbuf_add(out, "' '");
    add_valued(set, true, out);
    strbuf_add(out, "'\n    if [[ $cur == = ]]; then cur=; fi\n    case $opt in\n");
    for (size_t i = 0; i < set->n; i++)
        if (option_model(&set->defs[i])->arg != NULL)
            add_value(&set->defs[i], out);
    strbuf_printf(out, "    esac\n    if [[ %s$cur == -* ]]; then\n        _muster_words '",
                  script ? "-z $script && " : "");
    for (size_t i = 0; i < set->n; i++)
        strbuf_printf(out, "%s--%s", i > 0 ? " " : "", set->defs[i].name);
    strbuf_add(out, "'\n    else\n");
    add_operand(set, out);
    strbuf_add(out, "    fi\n}\n");
}

void completion_bash(const char *const *names, const struct option_set *const *sets,
                     struct strbuf *out) {
    strbuf_add(out, "# bash completion for muster: source <(muster completion bash)\n");
    strbuf_add(out, common);
    for (size_t i = 0; sets[i] != NULL; i++)
        add_set(sets[i], out);
    strbuf_add(out, "_muster() {\n"
                    "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                    "    if ((COMP_CWORD == 1)); then\n"
                    "        _muster_words '");
    completion_add_names(out, names);
    strbuf_add(out, "'\n");
    for (size_t i = 0; sets[i] != NULL; i++)
        strbuf_printf(out,
                      "    elif [[ ${COMP_WORDS[1]} == %s ]]; then\n"
                      "        _muster_%s\n",
                      sets[i]->command, sets[i]->command);
    strbuf_add(out, "    elif [[ ${COMP_WORDS[1]} == help ]]; then\n"
                    "        _muster_words '");
    completion_add_names(out, names);
    strbuf_printf(out,
                  "'\n"
                  "    elif [[ ${COMP_WORDS[1]} == completion ]]; then\n"
                  "        _muster_words 'bash zsh fish'\n"
                  "    else\n"
                  "        COMPREPLY=()\n"
                  "    fi\n"
                  "}\n"
                  "complete -o filenames -F _muster muster\n"
                  "complete -o filenames -F _muster_%s torchrun\n",
                  sets[0]->command);
}
