/* Ordinary options: turns words into the fields of a struct, and back into words. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "cli/options/options.h"

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

/* What is needed to read one row. */
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
        return parse_python_seconds_ns(o->text, field) < 0
                   ? bad_value(o, "a number of seconds, 0 or more")
                   : 0;
    case OPTION_CHOICE:
        *(uint32_t *)field = o->def->values[option_choice(o->def, o->text)];
        return 0;
    case OPTION_TEXT: return read_text(o, field);
    }
    assert_not_reached();
}

static int fill(const struct option_set *set, const struct options_parsed *parsed, bool from_env,
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

int options_fill(const struct option_set *set, const struct options_parsed *parsed, void *into,
                 struct err *err) {
    return fill(set, parsed, false, into, err);
}

int options_fill_from_env(const struct option_set *set, const struct options_parsed *parsed,
                          void *into, struct err *err) {
    return fill(set, parsed, true, into, err);
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
