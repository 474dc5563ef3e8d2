#include "cli/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"

#define NO_ROW SIZE_MAX
#define AMBIGUOUS (SIZE_MAX - 1)

struct option_parser {
    const struct option_set *set;
    int argc;
    char *const *argv;
    int next; /* index of the next word */
    struct options_parsed *parsed;
    struct err *err;
};

static char folded(char c) { return c == '_' ? '-' : c; }

/* Whether `name` begins with the n bytes at `word`. */
static bool begins(const char *name, const char *word, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (name[i] == '\0' || name[i] != folded(word[i]))
            return false;
    return true;
}

/* Whether it is the name, where "_" can stand for "-". */
static bool is_name(const char *name, const char *word, size_t n) {
    return strlen(name) == n && begins(name, word, n);
}

static size_t find_beginning(const struct option_set *set, const char *word, size_t n, bool ours) {
    size_t found = NO_ROW;
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *def = &set->defs[i];
        if (((def->flags & OPTION_OURS) != 0) != ours || !begins(def->name, word, n))
            continue;
        if (found != NO_ROW)
            return AMBIGUOUS;
        found = i;
    }
    return found;
}

/* The row of a long name of n bytes, without its dashes. */
static size_t find_long(const struct option_set *set, const char *word, size_t n) {
    for (size_t i = 0; i < set->n; i++)
        if (is_name(set->defs[i].name, word, n))
            return i;
    if (n == 0)
        return NO_ROW;
    size_t row = find_beginning(set, word, n, false);
    return row == NO_ROW ? find_beginning(set, word, n, true) : row;
}

static size_t find_letter(const struct option_set *set, char letter) {
    for (size_t i = 0; i < set->n; i++)
        if (set->defs[i].letter == letter && letter != '\0')
            return i;
    return NO_ROW;
}

static bool is_negative_number(const char *word) {
    const char *p = word + 1;
    p += strspn(p, "0123456789");
    if (*p == '\0')
        return p > word + 1;
    return *p == '.' && p[1] != '\0' && p[1 + strspn(p + 1, "0123456789")] == '\0';
}

static size_t name_length(const char *word) { return strcspn(word, "="); }

/* argparse's rule for which words are options. */
static bool looks_like_option(const struct option_set *set, const char *word) {
    if (word[0] != '-' || word[1] == '\0')
        return false;
    size_t row = word[1] == '-' ? find_long(set, word + 2, name_length(word + 2))
                                : find_letter(set, word[1]);
    if (row != NO_ROW)
        return true;
    return !is_negative_number(word) && strchr(word, ' ') == NULL;
}

static void add_names(const struct option_set *set, bool ours, const char *word, size_t n,
                      struct strbuf *names) {
    for (size_t i = 0; i < set->n; i++)
        if (((set->defs[i].flags & OPTION_OURS) != 0) == ours && begins(set->defs[i].name, word, n))
            strbuf_printf(names, "%s--%s", names->len > 0 ? ", " : "", set->defs[i].name);
}

/* A beginning means torchrun's option if there is one, else ours. */
static int fail_ambiguous(struct option_parser *p, const char *word, size_t n) {
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    add_names(p->set, false, word, n, &names);
    if (names.len == 0)
        add_names(p->set, true, word, n, &names);
    return err_set(p->err, -EINVAL, "--%.*s could be any of %s", (int)n, word, strbuf_text(&names));
}

static int fail_unknown(struct option_parser *p, const char *word) {
    size_t n = name_length(word), dashes = word[1] == '-' ? 2 : 1;
    _cleanup_(freep) char *name = xstrndup(word + dashes, n - dashes);
    const char *best = NULL, *hint = option_hint(p->set, name);
    if (hint != NULL)
        return err_set(p->err, -EINVAL, "unknown option %.*s; %s", (int)n, word, hint);
    if (dashes == 2) {
        best = option_similar(p->set, name);
    } else {
        /* "-nnodes=2": one dash too few */
        size_t row = find_long(p->set, name, strlen(name));
        if (n > 2 && row < p->set->n)
            best = p->set->defs[row].name;
    }
    if (p->set->operands != NULL && strstr(p->set->operands, "[JOB]") != NULL &&
        begins("--rdzv-endpoint", word, n) && n > strlen("--rdzv-")) {
        const char *value = word[n] == '='      ? word + n + 1
                            : p->next < p->argc ? p->argv[p->next]
                                                : "HOST:PORT";
        return err_set(p->err, -EINVAL,
                       "unknown option %.*s; write the endpoint alone: muster %s%s %s", (int)n,
                       word, p->set->command, p->set->operands[0] == '[' ? "" : " NODE", value);
    }
    if (best != NULL)
        return err_set(p->err, -EINVAL, "unknown option %.*s; did you mean --%s?", (int)n, word,
                       best);
    char called[OPTION_TEXT_MAX];
    return err_set(p->err, -EINVAL, "unknown option %.*s; see \"%s --help-all\"", (int)n, word,
                   command_called(p->set->command, called));
}

const char *command_called(const char *command, char out[OPTION_TEXT_MAX]) {
    bool is_torchrun = strcmp(program_invocation_short_name, "torchrun") == 0;
    (void)snprintf(out, OPTION_TEXT_MAX, "%s%s%s", is_torchrun ? "torchrun" : "muster",
                   is_torchrun || command == NULL ? "" : " ",
                   is_torchrun || command == NULL ? "" : command);
    return out;
}

const struct option_def *option_model(const struct option_def *def) {
    for (size_t i = 0; def->as != NULL && i < def->as->n; i++)
        if (strcmp(def->as->defs[i].name, def->name) == 0)
            return &def->as->defs[i];
    assert(def->as == NULL);
    return def;
}

static int store(struct option_parser *p, size_t row, const char *text) {
    struct option_value *v = &p->parsed->values[row];
    const struct option_def *def = &p->set->defs[row];
    v->text = text;
    v->times++;
    if ((def->flags & OPTION_STOPS) != 0)
        p->parsed->stopped = true;
    if ((option_model(def)->flags & OPTION_REPEATS) == 0)
        return 0;
    if (p->parsed->n_repeated == OPTIONS_REPEATED_MAX)
        return err_set(p->err, -EINVAL, "--%s=%s: %d such options are the most", def->name, text,
                       OPTIONS_REPEATED_MAX);
    p->parsed->repeated[p->parsed->n_repeated].row = row;
    p->parsed->repeated[p->parsed->n_repeated++].text = text;
    return 0;
}

const char *option_repeated(const struct options_parsed *parsed, size_t row, size_t n) {
    for (size_t i = 0; i < parsed->n_repeated; i++)
        if (parsed->repeated[i].row == row && n-- == 0)
            return parsed->repeated[i].text;
    return NULL;
}

static int check_choice(const struct option_def *def, const char *text, const char *origin,
                        struct err *err) {
    const struct option_def *model = option_model(def);
    if (model->choices == NULL || option_choice(model, text) >= 0)
        return 0;
    return err_set(err, -EINVAL, "%s=%s: must be one of: %s", origin, text, model->choices);
}

/* "--warm process": the next word is a script, unless it is what was meant for a value. */
static int check_bare(const struct option_parser *p, const struct option_def *def) {
    const char *next = p->next < p->argc ? p->argv[p->next] : NULL;
    const struct option_def *model = option_model(def);
    if (next == NULL || model->choices == NULL || option_choice(model, next) < 0)
        return 0;
    return err_set(p->err, -EINVAL, "--%s %s: write --%s=%s", def->name, next, def->name, next);
}

/* Reads an option with a value; `glued` is the value in the same word, or NULL. */
static int take_value(struct option_parser *p, size_t row, const char *glued) {
    const struct option_def *def = &p->set->defs[row];
    const char *text = glued != NULL ? glued : option_model(def)->bare;
    if (glued == NULL && text != NULL && check_bare(p, def) < 0)
        return -EINVAL;
    if (text == NULL && p->next < p->argc && strcmp(p->argv[p->next], "--") != 0 &&
        !looks_like_option(p->set, p->argv[p->next]))
        text = p->argv[p->next++];
    if (text == NULL)
        return err_set(p->err, -EINVAL, "--%s needs a value: --%s=%s", def->name, def->name,
                       option_model(def)->arg);
    char origin[OPTION_TEXT_MAX];
    (void)snprintf(origin, sizeof origin, "--%s", def->name);
    int r = check_choice(def, text, origin, p->err);
    return r == 0 ? store(p, row, text) : r;
}

static int parse_long(struct option_parser *p, const char *word) {
    const char *name = word + 2;
    size_t n = name_length(name);
    size_t row = find_long(p->set, name, n);
    if (row == AMBIGUOUS)
        return fail_ambiguous(p, name, n);
    if (row == NO_ROW)
        return fail_unknown(p, word);
    const char *glued = name[n] == '=' ? name + n + 1 : NULL;
    if (option_model(&p->set->defs[row])->arg != NULL)
        return take_value(p, row, glued);
    if (glued != NULL)
        return err_set(p->err, -EINVAL, "--%s takes no value", p->set->defs[row].name);
    return store(p, row, NULL);
}

/* -m, -r3, -mr3, -r=3 */
static int parse_letters(struct option_parser *p, const char *word) {
    for (const char *c = word + 1; *c != '\0' && !p->parsed->stopped; c++) {
        size_t row = find_letter(p->set, *c);
        if (row == NO_ROW && c > word + 1)
            return err_set(p->err, -EINVAL, "%s: there is no option -%c", word, *c);
        if (row == NO_ROW)
            return fail_unknown(p, word);
        if (option_model(&p->set->defs[row])->arg != NULL)
            return take_value(p, row, c[1] == '\0' ? NULL : c + 1 + (c[1] == '='));
        if (c[1] == '=')
            return err_set(p->err, -EINVAL, "-%c takes no value", *c);
        int r = store(p, row, NULL);
        if (r < 0)
            return r;
    }
    return 0;
}

int options_parse(const struct option_set *set, int argc, char *const *argv,
                  struct options_parsed *ret, struct err *err) {
    assert(set->n <= OPTIONS_MAX);
    struct options_parsed parsed = {0};
    struct option_parser p = {
        .set = set, .argc = argc, .argv = argv, .next = 1, .parsed = &parsed, .err = err};
    bool separated = false;
    while (p.next < argc && !parsed.stopped && !separated) {
        const char *word = argv[p.next];
        separated = strcmp(word, "--") == 0;
        if (!separated && !looks_like_option(set, word))
            break;
        p.next++;
        if (separated)
            break;
        int r = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
        if (r < 0)
            return r;
    }
    parsed.operand = MIN2(p.next, argc);
    parsed.rest = MIN2(parsed.operand + 1, argc);
    if (!separated && parsed.rest < argc && strcmp(argv[parsed.rest], "--") == 0)
        parsed.rest++;
    *ret = parsed;
    return 0;
}

static void merge(const struct option_set *set, const struct options_parsed *from,
                  struct options_parsed *into) {
    for (size_t i = 0; i < set->n; i++) {
        uint32_t before = into->values[i].times;
        if (from->values[i].times > 0 || before == 0)
            into->values[i] = from->values[i];
        into->values[i].times = before + from->values[i].times;
    }
    into->stopped = from->stopped;
}

int options_parse_any(const struct option_set *set, int argc, char *const *argv,
                      const char **ret_operands, int max, struct options_parsed *ret,
                      struct err *err) {
    int n = 0;
    *ret = (struct options_parsed){0};
    for (int i = 0; i < max; i++)
        ret_operands[i] = NULL;
    for (;;) {
        struct options_parsed p;
        int r = options_parse(set, argc, argv, &p, err);
        if (r < 0)
            return r;
        merge(set, &p, ret);
        if (p.stopped || p.operand >= argc)
            return 0;
        if (n == max)
            return err_set(err, -EINVAL, "unknown argument \"%s\"", argv[p.operand]);
        ret_operands[n++] = argv[p.operand];
        argv += p.rest - 1;
        argc -= p.rest - 1;
    }
}

void option_env_name(const struct option_def *def, char out[OPTION_TEXT_MAX]) {
    int n = snprintf(out, OPTION_TEXT_MAX, "PET_%s", def->name);
    assert(n > 0 && n < OPTION_TEXT_MAX);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

const char *option_origin(const struct option_set *set, const struct options_parsed *parsed,
                          size_t row, char out[OPTION_TEXT_MAX]) {
    if (parsed->values[row].from_variable)
        return set->defs[row].variable;
    if (parsed->values[row].from_env)
        option_env_name(&set->defs[row], out);
    else
        (void)snprintf(out, OPTION_TEXT_MAX, "--%s", set->defs[row].name);
    return out;
}

static int switch_from_env(const char *name, const char *text, struct option_value *v,
                           struct err *err) {
    int32_t number;
    if (parse_python_i32(text, &number) < 0)
        return err_set(err, -EINVAL, "%s=%s: must be 0 (off) or 1 (on)", name, text);
    v->times = number != 0;
    v->from_env = true;
    return 0;
}

int options_from_env(const struct option_set *set, char *const *envp, struct options_parsed *parsed,
                     struct err *err) {
    for (size_t i = 0; i < set->n; i++) {
        const struct option_def *def = &set->defs[i];
        struct option_value *v = &parsed->values[i];
        if (v->times > 0)
            continue;
        v->text = def->fallback;
        if ((def->flags & OPTION_ENV) == 0)
            continue;
        char name[OPTION_TEXT_MAX];
        option_env_name(def, name);
        const char *text = env_get(envp, name);
        bool other = text == NULL && def->variable != NULL;
        if (other)
            text = env_get(envp, def->variable);
        if (text == NULL)
            continue;
        bool is_switch = option_model(def)->arg == NULL;
        bool any = (def->flags & OPTION_ENV_FREE) != 0;
        int r = is_switch ? switch_from_env(name, text, v, err)
                : any     ? 0
                          : check_choice(def, text, name, err);
        if (r < 0)
            return r;
        if (!is_switch)
            *v = (struct option_value){.text = text, .from_env = true, .from_variable = other};
    }
    return 0;
}

size_t option_row(const struct option_set *set, unsigned id) {
    for (size_t i = 0; i < set->n; i++)
        if (set->defs[i].id == id)
            return i;
    assert_not_reached();
}

const char *option_nth_choice(const struct option_def *def, unsigned n, size_t *ret_len) {
    const char *c = def->choices;
    for (; n > 0 && *c != '\0'; n--) {
        c += strcspn(c, " ");
        c += *c == ' ';
    }
    *ret_len = strcspn(c, " ");
    return *c != '\0' ? c : NULL;
}

int option_choice(const struct option_def *def, const char *text) {
    const char *c;
    size_t n;
    for (unsigned i = 0; (c = option_nth_choice(def, i, &n)) != NULL; i++)
        if (strlen(text) == n && strncmp(c, text, n) == 0)
            return (int)i;
    return -1;
}

struct option_reading {
    const struct option_def *def;
    const char *text;
    const char *origin; /* "--name" or "PET_NAME" */
    struct err *err;
};

static int bad_value(const struct option_reading *o, const char *must) {
    return err_set(o->err, -EINVAL, "%s=%s: must be %s", o->origin, o->text, must);
}

static int read_count(const struct option_reading *o, uint32_t *ret) {
    uint32_t n;
    int32_t torch; /* torchrun's options can have a sign, as with Python's int() */
    int r = parse_python_u32(o->text, &n);
    if (r < 0 && (o->def->flags & OPTION_OURS) == 0 && parse_python_i32(o->text, &torch) == 0 &&
        torch >= 0) {
        n = (uint32_t)torch;
        r = 0;
    }
    if (r < 0 || n < o->def->least || n > o->def->most)
        return bad_value(o, o->def->must);
    *ret = n;
    return 0;
}

static int read_text(const struct option_reading *o, char **ret) {
    const struct option_def *def = o->def;
    int r = def->most > 0 ? utf8_check_line(o->origin, o->text, def->most, o->err) : 0;
    if (r < 0)
        return r;
    free(*ret);
    *ret = o->text[0] != '\0' || def->fallback != NULL ? xstrdup(o->text) : NULL;
    return 0;
}

static int read_field(const struct option_reading *o, void *field) {
    switch (o->def->kind) {
    case OPTION_BY_HAND:
    case OPTION_SWITCH: return 0;
    case OPTION_COUNT: return read_count(o, field);
    case OPTION_SECONDS:
        if (parse_python_seconds_ns(o->text, field) < 0 || *(uint64_t *)field < o->def->least)
            return bad_value(o, o->def->least > 0 ? "a number of seconds above 0"
                                                  : "a number of seconds, 0 or more");
        return 0;
    case OPTION_CHOICE:
        *(uint32_t *)field = o->def->values[option_choice(o->def, o->text)];
        return 0;
    case OPTION_TEXT: return read_text(o, field);
    }
    assert_not_reached();
}

int options_fill(const struct option_set *set, const struct options_parsed *parsed, bool from_env,
                 void *into, struct err *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < set->n; i++) {
        const struct option_def *def = &set->defs[i];
        const struct option_value *v = &parsed->values[i];
        void *field = (char *)into + def->at;
        char origin[OPTION_TEXT_MAX];
        if (from_env && !v->from_env)
            continue;
        if (def->kind == OPTION_SWITCH)
            *(bool *)field = v->times > 0;
        else if (v->text != NULL)
            r = read_field(
                &(struct option_reading){def, v->text, option_origin(set, parsed, i, origin), err},
                field);
    }
    return r;
}

/* The text of the choice for a value. There must be one. */
static void choice_text(const struct option_def *def, uint32_t value, char out[OPTION_TEXT_MAX]) {
    const char *c;
    size_t n;
    for (unsigned i = 0; (c = option_nth_choice(def, i, &n)) != NULL; i++)
        if (def->values[i] == value)
            (void)snprintf(out, OPTION_TEXT_MAX, "%.*s", (int)n, c);
}

const char *option_field_text(const struct option_def *def, const void *of,
                              char out[OPTION_TEXT_MAX]) {
    const void *field = (const char *)of + def->at;
    out[0] = '\0';
    switch (def->kind) {
    case OPTION_BY_HAND:
    case OPTION_SWITCH: return NULL;
    case OPTION_COUNT:
        (void)snprintf(out, OPTION_TEXT_MAX, "%u", *(const uint32_t *)field);
        return *(const uint32_t *)field == UINT32_MAX ? NULL : out;
    case OPTION_SECONDS:
        (void)snprintf(out, OPTION_TEXT_MAX, "%.9g", (double)*(const uint64_t *)field / 1e9);
        return out;
    case OPTION_CHOICE: choice_text(def, *(const uint32_t *)field, out); return out;
    case OPTION_TEXT: return *(char *const *)field;
    }
    assert_not_reached();
}

/* The option with the longest beginning in common with a word, if that is much of it. */
static const char *longest_common(const struct option_set *set, const char *word) {
    const char *best = NULL;
    size_t best_n = 3;
    for (size_t i = 0; i < set->n; i++) {
        const char *name = set->defs[i].name;
        size_t n = 0;
        while (name[n] != '\0' && name[n] == folded(word[n]))
            n++;
        if (n > best_n) {
            best_n = n;
            best = name;
        }
    }
    return best;
}

/* The first option whose name ends with the word: "endpoint" for "rdzv-endpoint". */
static const char *ending_of(const struct option_set *set, const char *word) {
    for (size_t i = 0; i < set->n; i++)
        for (const char *dash = strchr(set->defs[i].name, '-'); dash != NULL;
             dash = strchr(dash + 1, '-'))
            if (is_name(dash + 1, word, strlen(word)))
                return set->defs[i].name;
    return NULL;
}

const char *option_similar(const struct option_set *set, const char *word) {
    struct suggest s = suggest_for(word);
    for (size_t i = 0; i < set->n; i++)
        suggest_offer(&s, set->defs[i].name);
    if (s.best != NULL)
        return s.best;
    const char *name = ending_of(set, word);
    return name != NULL ? name : longest_common(set, word);
}

const char *option_hint(const struct option_set *set, const char *word) {
    for (const struct option_hint *h = set->hints; h != NULL && h->word != NULL; h++)
        if (is_name(h->word, word, strlen(word)))
            return h->hint;
    return NULL;
}

/* ---- similar words ---- */

/* Restricted Damerau-Levenshtein distance, with three rows of the table. */
size_t suggest_distance(const char *a, const char *b) {
    size_t rows[3][SUGGEST_WORD_MAX + 1];
    size_t na = strnlen(a, SUGGEST_WORD_MAX), nb = strnlen(b, SUGGEST_WORD_MAX);
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = rows[i % 3];
        const size_t *up = rows[(i - 1) % 3];
        const size_t *up2 = rows[(i + 1) % 3];
        char ca = folded(a[i - 1]);
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            char cb = folded(b[j - 1]);
            size_t best = MIN2(up[j], now[j - 1]) + 1;
            best = MIN2(best, up[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == folded(b[j - 2]) && folded(a[i - 2]) == cb)
                best = MIN2(best, up2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

struct suggest suggest_for(const char *word) {
    /* A third of the letters can be wrong, but at least one. */
    size_t n = strnlen(word, SUGGEST_WORD_MAX);
    return (struct suggest){.word = word, .distance = MAX2(n / 3, (size_t)1) + 1};
}

void suggest_offer(struct suggest *s, const char *known) {
    size_t d = suggest_distance(s->word, known);
    /* "x" is one edit away from every one-letter word, but not similar to it. */
    if (d < s->distance && d < strnlen(known, SUGGEST_WORD_MAX)) {
        s->distance = d;
        s->best = known;
    }
}
