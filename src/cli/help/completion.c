#include "cli/help/completion.h"

#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"

/* Whether bash split the line here: such a word belongs to those on both sides. */
static bool is_break(const char *word) {
    return word[0] != '\0' && word[strspn(word, "=:")] == '\0';
}

/* The word that begins at *i, which becomes that of the next one. */
static void take_word(const struct completion_line *l, int *i, struct strbuf *ret) {
    strbuf_clear(ret);
    strbuf_add(ret, l->words[(*i)++]);
    if (l->shell != COMPLETION_BASH)
        return;
    for (; *i < l->n; (*i)++) {
        if (!is_break(l->words[*i]) && !is_break(l->words[*i - 1]))
            break;
        strbuf_add(ret, l->words[*i]);
    }
}

/* The option that a word names, up to its "=", with "_" for "-"; NULL: none. */
static const struct option_def *option_of(const struct option_set *set, const char *word) {
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *def = &set->defs[i];
        if (n == 2 && word[0] == '-' && word[1] == def->letter)
            return def;
        if (n != strlen(def->name) + 2 || !text_begins(word, "--"))
            continue;
        size_t k = 0;
        while (k < n - 2 && (word[k + 2] == '_' ? '-' : word[k + 2]) == def->name[k])
            k++;
        if (k == n - 2)
            return def;
    }
    return NULL;
}

/* Whether the next word is the value of this one. */
static bool needs_value(const struct option_def *def, const char *word) {
    return def != NULL && option_model(def)->arg != NULL && option_model(def)->bare == NULL &&
           strchr(word, '=') == NULL;
}

static bool has_script(const struct option_set *set) {
    return strstr(set->operands, "SCRIPT") != NULL;
}

static void add_line(struct completion_offer *o, const char *before, size_t n, const char *value,
                     const char *help) {
    _cleanup_(strbuf_fini) struct strbuf word = {0};
    strbuf_add_bytes(&word, before, n);
    strbuf_add(&word, value);
    if (!text_begins(strbuf_text(&word), strbuf_text(&o->word)))
        return;
    strbuf_add(&o->lines, strbuf_text(&word) + o->cut);
    if (o->help && help != NULL)
        strbuf_printf(&o->lines, "\t%s", help);
    strbuf_add_char(&o->lines, '\n');
}

void completion_add(struct completion_offer *o, const char *value) {
    add_line(o, strbuf_text(&o->word), o->value, value, NULL);
}

static void add_words(struct completion_offer *o, const char *words) {
    char word[OPTION_TEXT_MAX];
    for (size_t n; *words != '\0'; words += n + (words[n] != '\0')) {
        n = strcspn(words, " ");
        assert(n < sizeof word);
        memcpy(word, words, n);
        word[n] = '\0';
        completion_add(o, word);
    }
}

/* One of OFFER_*, or words; NULL: nothing. */
static void add_offer(struct completion_offer *o, const char *offer) {
    if (offer == NULL)
        return;
    if (offer[0] != '@') {
        add_words(o, offer);
        return;
    }
    o->question = offer + 1;
    if (strcmp(offer, OFFER_RECENT_RUNS) == 0)
        o->kind = "folders"; /* a run's folder can stand for it */
}

static void offer_value(struct completion_offer *o, const struct option_def *def) {
    const struct option_def *model = option_model(def);
    const char *comma = strrchr(strbuf_text(&o->word) + o->value, ',');
    if ((model->flags & OPTION_COMMAS) != 0 && comma != NULL)
        o->value = (size_t)(comma + 1 - strbuf_text(&o->word));
    if (model->choices != NULL || model->offer != NULL)
        add_offer(o, model->choices != NULL ? model->choices : model->offer);
    else if (model->arg != NULL && strcmp(model->arg, "DIR") == 0)
        o->kind = "folders";
    else if (model->arg != NULL && strcmp(model->arg, "FILE") == 0)
        o->kind = "files";
}

/* zsh shows which options take a value: only there the "=" is part of the word. */
static void offer_options(struct completion_offer *o, const struct option_set *set, bool equals) {
    for (size_t i = 0; i < set->n; i++) {
        char name[OPTION_TEXT_MAX];
        bool value = equals && option_model(&set->defs[i])->arg != NULL;
        (void)snprintf(name, sizeof name, "--%s%s", set->defs[i].name, value ? "=" : "");
        add_line(o, "", 0, name, set->defs[i].help);
    }
}

/* The words of one command, from *i on. */
static void offer_of_set(const struct completion_line *l, const struct option_set *set, int i,
                         struct completion_offer *o) {
    bool operands_only = false, equals = l->shell == COMPLETION_ZSH;
    const struct option_def *def = NULL;
    for (;;) {
        bool is_value = def != NULL;
        take_word(l, &i, &o->word);
        const char *word = strbuf_text(&o->word);
        bool is_option = !is_value && !operands_only && word[0] == '-' && word[1] != '\0';
        if (i == l->n)
            break;
        if (!is_option && !is_value && has_script(set))
            return; /* behind the script: not muster's words */
        operands_only = operands_only || (is_option && strcmp(word, "--") == 0);
        def = is_option ? option_of(set, word) : NULL;
        def = needs_value(def, word) ? def : NULL;
    }
    const char *word = strbuf_text(&o->word), *is = strchr(word, '=');
    if (l->shell == COMPLETION_BASH)
        for (const char *p = word; (p = strpbrk(p, "=:")) != NULL; p++)
            o->cut = (size_t)(p + 1 - word);
    if (def != NULL) {
        offer_value(o, def);
    } else if (word[0] == '-' && is != NULL && (def = option_of(set, word)) != NULL) {
        o->value = (size_t)(is + 1 - word);
        offer_value(o, def);
    } else if (word[0] == '-' && !operands_only) {
        offer_options(o, set, equals);
    } else if (has_script(set)) {
        o->kind = "files";
    } else {
        add_offer(o, set->offer);
    }
}

void completion_offer(const struct completion_line *l, struct completion_offer *ret) {
    *ret = (struct completion_offer){.kind = "words", .help = l->shell != COMPLETION_BASH};
    const char *slash = l->n > 0 ? strrchr(l->words[0], '/') : NULL;
    if (l->n > 1 && strcmp(slash != NULL ? slash + 1 : l->words[0], "torchrun") == 0) {
        offer_of_set(l, l->sets[0], 1, ret);
        return;
    }
    if (l->n > 2)
        for (size_t i = 0; l->sets[i] != NULL; i++)
            if (strcmp(l->words[1], l->sets[i]->command) == 0) {
                offer_of_set(l, l->sets[i], 2, ret);
                return;
            }
    if (l->n < 2 || l->n > 3)
        return;
    strbuf_add(&ret->word, l->words[l->n - 1]);
    if (l->n == 3 && strcmp(l->words[1], "completion") == 0)
        add_words(ret, COMPLETION_SHELLS);
    else if (l->n == 2 || strcmp(l->words[1], "help") == 0)
        for (size_t i = 0; l->names[i] != NULL; i++)
            completion_add(ret, l->names[i]);
}

void completion_fini(struct completion_offer *o) {
    strbuf_fini(&o->lines);
    strbuf_fini(&o->word);
}

/* Each runs "muster completion offer", even for a program called torchrun, and behind it offers
 * files or folders if there are no words. A word that ends with "=" gets no blank. */

static const char bash[] =
    "# bash completion for muster: source <(muster completion bash)\n"
    "_muster() {\n"
    "    local kind cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    mapfile -t COMPREPLY < <(muster completion offer bash "
    "\"${COMP_WORDS[@]:0:COMP_CWORD+1}\" 2>/dev/null)\n"
    "    kind=${COMPREPLY[0]}\n"
    "    COMPREPLY=(\"${COMPREPLY[@]:1}\")\n"
    "    if ((${#COMPREPLY[@]})); then\n"
    "        compopt +o filenames 2>/dev/null\n" /* a file name's "=" would be quoted */
    "        if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "        return\n"
    "    fi\n"
    "    if [[ $cur == = ]]; then cur=; fi\n"
    "    case $kind in\n"
    "        files) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\");;\n"
    "        folders) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\");;\n"
    "    esac\n"
    "}\n"
    "complete -o filenames -F _muster muster torchrun\n";

static const char zsh[] =
    "#compdef muster torchrun\n"
    "# zsh completion for muster: source <(muster completion zsh)\n"
    "_muster() {\n"
    "    local kind line word\n"
    "    local -a lines whole shown open open_shown\n"
    "    lines=(\"${(@f)$(muster completion offer zsh \"${(@Q)words[1,CURRENT]}\" "
    "2>/dev/null)}\")\n"
    "    kind=$lines[1]\n"
    "    for line in \"${(@)lines[2,-1]}\"; do\n"
    "        word=${line%%$'\\t'*}\n"
    "        if [[ $line == *$'\\t'* ]]; then line=\"$word  -- ${line#*$'\\t'}\"; fi\n"
    "        if [[ $word == *= ]]; then open+=(\"$word\"); open_shown+=(\"$line\")\n"
    "        else whole+=(\"$word\"); shown+=(\"$line\"); fi\n"
    "    done\n"
    "    if (($#whole + $#open)); then\n"
    "        compadd -l -d shown -- \"${(@)whole}\"\n"
    "        compadd -l -S '' -d open_shown -- \"${(@)open}\"\n"
    "        return\n"
    "    fi\n"
    "    compset -P '--*='\n"
    "    case $kind in\n"
    "        files) _files;;\n"
    "        folders) _files -/;;\n"
    "    esac\n"
    "}\n"
    "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then\n"
    "    _muster \"$@\"\n"
    "else\n"
    "    compdef _muster muster torchrun\n"
    "fi\n";

static const char fish[] =
    "# fish completion for muster: muster completion fish | source\n"
    "function __muster_offer\n"
    "    set -l word (commandline -ct)\n"
    "    set -l lines (muster completion offer fish (commandline -opc) \"$word\" 2>/dev/null)\n"
    "    if test (count $lines) -gt 1\n"
    "        printf '%s\\n' $lines[2..-1]\n"
    "        return\n"
    "    end\n"
    "    set -l before (string match -r -- '^--?[^=]*=' $word)\n"
    "    set -l value (string replace -r -- '^--?[^=]*=' '' $word)\n"
    "    set -l found (complete -C \"'' $value\" | string replace -r '\\t.*' '')\n"
    "    switch \"$lines[1]\"\n"
    "        case files\n"
    "            printf '%s\\n' \"$before\"$found\n"
    "        case folders\n"
    "            printf '%s\\n' \"$before\"$found | string match '*/'\n"
    "    end\n"
    "end\n"
    "complete -c muster -c torchrun -f -k -a '(__muster_offer)'\n";

static const struct {
    const char *name, *script;
} shells[] = {
    [COMPLETION_BASH] = {"bash", bash},
    [COMPLETION_ZSH] = {"zsh", zsh},
    [COMPLETION_FISH] = {"fish", fish},
};

enum completion_shell completion_shell_of(const char *name) {
    for (size_t i = COMPLETION_BASH; i < ARRAY_SIZE(shells); i++)
        if (strcmp(name, shells[i].name) == 0)
            return (enum completion_shell)i;
    return 0;
}

const char *completion_script(enum completion_shell shell) { return shells[shell].script; }
