#include <string.h>

#include "cli/help/completion_priv.h"

/* Inside single quotes, where fish knows only \' and \\. */
static void add_quoted(struct strbuf *out, const char *s) {
    strbuf_add_char(out, '\'');
    for (; *s != '\0'; s++) {
        if (*s == '\'' || *s == '\\')
            strbuf_add_char(out, '\\');
        strbuf_add_char(out, *s);
    }
    strbuf_add_char(out, '\'');
}

/* __muster_at_run: the word at the cursor is one of muster run, before the script. */
static void add_place(const struct option_set *set, struct strbuf *out) {
    strbuf_printf(out, "function __muster_at_%s\n    __muster_at %s %s", set->command, set->command,
                  strstr(set->operands, "SCRIPT") != NULL ? "script" : "any");
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *model = option_model(&set->defs[i]);
        if (model->arg == NULL || model->bare != NULL) /* takes no word of its own */
            continue;
        strbuf_printf(out, " --%s", set->defs[i].name);
        if (set->defs[i].letter != '\0')
            strbuf_printf(out, " -%c", set->defs[i].letter);
    }
    strbuf_add(out, "\nend\n");
}

static void add_option(const struct option_set *set, const struct option_def *def, const char *also,
                       struct strbuf *out) {
    const struct option_def *model = option_model(def);
    strbuf_printf(out, "complete -c muster%s -n __muster_at_%s -l %s", also, set->command,
                  def->name);
    if (def->letter != '\0')
        strbuf_printf(out, " -s %c", def->letter);
    const char *words = completion_words(model), *question = completion_question(model->offer);
    if (words != NULL && model->bare != NULL) { /* not -x: only behind a "=" */
        strbuf_add(out, " -f -a ");
        add_quoted(out, words);
    } else if (words != NULL && (model->flags & OPTION_COMMAS) != 0) {
        strbuf_printf(out, " -x -a '(__muster_list %s)'", words);
    } else if (words != NULL) {
        strbuf_add(out, " -x -a ");
        add_quoted(out, words);
    } else if (question != NULL) {
        strbuf_printf(out, " -x -a '(__muster_words %s)'", question);
    } else if (model->arg != NULL && strcmp(model->arg, "DIR") == 0) {
        strbuf_add(out, " -x -a '(__fish_complete_directories)'");
    } else if (model->arg != NULL && strcmp(model->arg, "FILE") == 0) {
        strbuf_add(out, " -r -F");
    } else if (model->arg != NULL) {
        strbuf_add(out, " -x");
    }
    strbuf_add(out, " -d ");
    add_quoted(out, def->help);
    strbuf_add_char(out, '\n');
}

void completion_fish(const char *const *names, const struct option_set *const *sets,
                     struct strbuf *out) {
    strbuf_add(out, "# fish completion for muster: muster completion fish | source\n"
                    "function __muster_at\n"
                    "    set -l words (commandline -opc)\n"
                    "    set -l program (string replace -r '.*/' '' -- $words[1])\n"
                    "    set -e words[1]\n"
                    "    if test \"$program\" = torchrun\n"
                    "        test $argv[1] = run; or return 1\n"
                    "    else\n"
                    "        test \"$words[1]\" = $argv[1]; or return 1\n"
                    "        set -e words[1]\n"
                    "    end\n"
                    "    test $argv[2] = script; or return 0\n"
                    "    set -l is_value 0\n"
                    "    for word in $words\n"
                    "        if test $is_value = 1\n"
                    "            set is_value 0\n"
                    "        else if contains -- $word $argv[3..-1]\n"
                    "            set is_value 1\n"
                    "        else if not string match -q -- '-*' $word\n"
                    "            return 1\n" /* the script: what follows is its own */
                    "        end\n"
                    "    end\n"
                    "    return 0\n"
                    "end\n"
                    "function __muster_list\n" /* one more item of a list with commas */
                    "    set -l word (commandline -ct | string replace -r '^--?[^=]*=' '')\n"
                    "    set -l before (string match -r '.*,' -- $word)\n"
                    "    printf '%s\\n' \"$before\"$argv\n"
                    "end\n"
                    "function __muster_words\n" /* muster may be started by a path */
                    "    command -q muster; and muster completion words $argv 2>/dev/null\n"
                    "end\n"
                    "function __muster_at_command\n"
                    "    set -l words (commandline -opc)\n"
                    "    test (count $words) -eq 1\n"
                    "    and not string match -q -r '(^|/)torchrun$' -- $words[1]\n"
                    "end\n");
    for (size_t i = 0; names[i] != NULL; i++)
        strbuf_printf(out, "complete -c muster -n __muster_at_command -f -a %s\n", names[i]);
    for (size_t i = 0; sets[i] != NULL; i++) {
        add_place(sets[i], out);
        if (completion_question(sets[i]->offer) != NULL)
            strbuf_printf(out,
                          "complete -c muster -n __muster_at_%s -f -a "
                          "'(__muster_words %s)'\n",
                          sets[i]->command, completion_question(sets[i]->offer));
        if (completion_offers_folders(sets[i]))
            strbuf_printf(out,
                          "complete -c muster -n __muster_at_%s -f -a "
                          "'(__fish_complete_directories)'\n",
                          sets[i]->command);
        for (size_t k = 0; k < sets[i]->n; k++)
            add_option(sets[i], &sets[i]->defs[k], i == 0 ? " -c torchrun" : "", out);
    }
}
