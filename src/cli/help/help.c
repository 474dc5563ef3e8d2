#include "cli/help/help.h"

#include <string.h>

#include "cli/options/commands.h"

#define WIDTH HELP_SCREEN_COLUMNS
#define INDENT 10
#define BRIEF_COLUMN 28 /* where the texts of -h begin */

/* The default in brackets; `of` has the fields of ordinary options. NULL: there is none. */
static char *shown_default(const struct option_def *def, const void *of) {
    char text[OPTION_TEXT_MAX];
    const char *fallback = def->kind == OPTION_BY_HAND || def->kind == OPTION_TEXT
                               ? def->fallback
                               : option_field_text(def, of, text);
    bool none = def->kind == OPTION_COUNT && def->least > 0 && fallback != NULL &&
                strcmp(fallback, "0") == 0;
    if (fallback == NULL || fallback[0] == '\0' || none)
        return NULL;
    return def->variable != NULL ? xasprintf("(%s, or %s)", def->variable, fallback)
                                 : xasprintf("(%s)", fallback);
}

/* "-r, --redirects=STREAMS", "--warm[=HOW]". with_choices: the words that it takes. */
static void add_name(struct strbuf *out, const struct option_def *def, bool with_choices) {
    if (def->letter != '\0')
        strbuf_printf(out, "-%c, ", def->letter);
    strbuf_printf(out, "--%s", def->name);
    const struct option_def *model = option_model(def);
    if (model->bare != NULL)
        strbuf_add_char(out, '[');
    if (model->choices != NULL && with_choices) {
        strbuf_add_char(out, '=');
        for (const char *c = model->choices; *c != '\0'; c++)
            strbuf_add_char(out, *c == ' ' ? '|' : *c);
    } else if (model->arg != NULL) {
        strbuf_printf(out, "=%s", model->arg);
    }
    if (model->bare != NULL)
        strbuf_add_char(out, ']');
}

static void add_option(struct strbuf *out, const struct option_def *def, const void *defaults) {
    if (def->section != NULL)
        strbuf_printf(out, "\n%s:\n", def->section);
    strbuf_add(out, "  ");
    add_name(out, def, true);
    strbuf_printf(out, "\n%*s", INDENT, "");
    size_t column = strbuf_add_wrapped(out, def->help, INDENT, INDENT, WIDTH);
    _cleanup_(freep) char *fallback = shown_default(def, defaults);
    if (fallback != NULL)
        (void)strbuf_add_wrapped(out, fallback, column, INDENT, WIDTH);
    strbuf_add_char(out, '\n');
}

static bool reads_environment(const struct option_set *set) {
    bool reads = false;
    for (size_t i = 0; i < set->n; i++)
        reads = reads || (set->defs[i].flags & OPTION_ENV) != 0;
    return reads;
}

static void add_usage(const struct option_set *set, struct strbuf *out) {
    char called[OPTION_TEXT_MAX];
    strbuf_printf(out, "usage: %s [OPTIONS]%s%s\n\n", command_called(set->command, called),
                  set->operands[0] != '\0' ? " " : "", set->operands);
    (void)strbuf_add_wrapped(out, set->about, 0, 0, WIDTH);
    strbuf_add_char(out, '\n');
}

static void add_more(const struct option_set *set, struct strbuf *out) {
    strbuf_printf(out, "More: man muster-%s\n", set->page != NULL ? set->page : set->command);
}

static void add_brief(struct strbuf *out, const struct option_def *def) {
    size_t begin = out->len;
    strbuf_add(out, "  ");
    add_name(out, def, false);
    size_t width = out->len - begin;
    int pad = width < BRIEF_COLUMN - 1 ? (int)(BRIEF_COLUMN - width) : 1;
    strbuf_printf(out, "%*s%s\n", pad, "", def->brief != NULL ? def->brief : def->help);
}

/* The rows with OPTION_SHORT, one line each: at most one screen. */
static void help_short(const struct option_set *set, struct strbuf *out) {
    add_usage(set, out);
    strbuf_add_char(out, '\n');
    size_t shown = 0;
    const struct option_def *last = NULL; /* --help, wherever a command has it */
    for (size_t i = 0; i < set->n; i++) {
        if ((set->defs[i].flags & OPTION_SHORT) == 0)
            continue;
        shown++;
        if (set->defs[i].letter == 'h')
            last = &set->defs[i];
        else
            add_brief(out, &set->defs[i]);
    }
    if (last != NULL)
        add_brief(out, last);
    char called[OPTION_TEXT_MAX];
    (void)command_called(set->command, called);
    strbuf_add_char(out, '\n');
    if (set->example != NULL)
        strbuf_printf(out, "Example: %s %s\n", called, set->example);
    if (set->more != NULL)
        strbuf_printf(out, "%s\n  %s %s\n", set->more_of, called, set->more);
    if (shown + 1 < set->n) /* more than --help-all itself is left out */
        strbuf_printf(out, "All %zu options: %s --help-all. ", set->n, called);
    add_more(set, out);
}

void help_all(const struct option_set *set, struct strbuf *out) {
    add_usage(set, out);
    if (set->n > 0 && set->defs[0].section == NULL)
        strbuf_add_char(out, '\n');
    for (size_t i = 0; i < set->n; i++)
        add_option(out, &set->defs[i], set->defaults);
    strbuf_add_char(out, '\n');
    size_t column =
        strbuf_add_wrapped(out,
                           "Option names can be written with \"_\" instead of \"-\", and "
                           "shortened to any prefix that matches only one option.",
                           0, 0, WIDTH);
    if (reads_environment(set))
        (void)strbuf_add_wrapped(out, "PET_NAME in the environment is the default of most options.",
                                 column, 0, WIDTH);
    strbuf_add_char(out, '\n');
    add_more(set, out);
}

int help_print(const struct option_set *set, bool all) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (all)
        help_all(set, &text);
    else
        help_short(set, &text);
    return print_text(&text);
}

int help_answer(const struct option_set *set, const struct options_parsed *parsed) {
    for (size_t i = 0; i < set->n; i++) {
        bool all = strcmp(set->defs[i].name, "help-all") == 0;
        if (parsed->values[i].times > 0 && (all || strcmp(set->defs[i].name, "help") == 0))
            return help_print(set, all);
    }
    return -1;
}

int help_or_parse(const struct option_set *set, int argc, char **argv, const char **ret_operands,
                  int max, struct options_parsed *ret) {
    struct err err = {0};
    if (options_parse_any(set, argc, argv, ret_operands, max, ret, &err) < 0)
        return usage_error(set->command, "%s", err.text);
    return help_answer(set, ret);
}

enum output_format output_format(const struct option_value *json,
                                 const struct option_value *output) {
    if (json->times > 0 || (output->text != NULL && strcmp(output->text, "json") == 0))
        return OUTPUT_JSON;
    if (output->text != NULL && strcmp(output->text, "prometheus") == 0)
        return OUTPUT_PROMETHEUS;
    return output->text != NULL ? OUTPUT_WIDE : OUTPUT_TEXT;
}
