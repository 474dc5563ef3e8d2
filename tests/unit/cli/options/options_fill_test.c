/* Tests every ordinary option of muster run by its row, so a new option needs no test of its own here. */
#include "cli/help/help.h"
#include "cli/options/job_options.h"
#include "cli/options/options_table.h"
#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

/* A job with one option: given as an argument, or, if `variable` is not NULL, by the environment. */
struct filled {
    struct job_spec spec;
    struct err err;
    int r;
};

static struct filled fill(const struct option_def *def, const char *value, const char *variable) {
    char word[512], *argv[] = {TEXT("run"), word, TEXT("x"), NULL}, *envp[] = {NULL, NULL};
    struct options_parsed p;
    struct filled f = {.spec = job_spec_default};
    (void)snprintf(word, sizeof word, "--%s%s%s", def->name, value != NULL ? "=" : "", value != NULL ? value : "");
    if (variable != NULL) {
        (void)snprintf(word, sizeof word, "%s=%s", variable, value != NULL ? value : "1");
        envp[0] = word;
        argv[1] = TEXT("x");
        argv[2] = NULL;
    }
    f.r = options_parse(&run_options, variable != NULL ? 2 : 3, argv, &p, &f.err);
    if (f.r == 0)
        f.r = options_from_env(&run_options, envp, &p, &f.err);
    if (f.r == 0)
        f.r = options_fill(&run_options, &p, false, &f.spec, &f.err);
    return f;
}

static void expect(const struct option_def *def, const char *value, const char *variable, const char *expected) {
    struct filled f = fill(def, value, variable);
    char buffer[OPTION_TEXT_MAX];
    cr_assert_eq(f.r, 0, "%s: %s", def->name, f.err.text);
    const char *text = option_field_text(def, &f.spec, buffer);
    cr_assert_str_eq(text, expected, "%s=%s", def->name, value);
    job_spec_fini(&f.spec);
}

static void expect_refused(const struct option_def *def, const char *value, const char *part) {
    char name[OPTION_TEXT_MAX];
    option_env_name(def, name);
    bool env = (def->flags & OPTION_ENV) != 0 && (def->flags & OPTION_ENV_FREE) == 0;
    for (int i = 0; i <= env; i++) {
        struct filled f = fill(def, value, i > 0 ? name : NULL);
        cr_assert_eq(f.r, -EINVAL, "%s=%s", def->name, value);
        cr_assert_not_null(strstr(f.err.text, part), "%s=%s: %s", def->name, value, f.err.text);
        cr_assert(def->kind == OPTION_TEXT || i == 0 || strstr(f.err.text, name) != NULL, "%s", f.err.text);
        job_spec_fini(&f.spec);
    }
}

/* In every way to give the option. */
static void expect_all(const struct option_def *def, const char *value, const char *expected) {
    char name[OPTION_TEXT_MAX];
    option_env_name(def, name);
    expect(def, value, NULL, expected);
    if ((def->flags & OPTION_ENV) != 0)
        expect(def, value, name, expected);
    if (def->variable != NULL)
        expect(def, value, def->variable, expected);
}

static void check_count(const struct option_def *def) {
    char text[32];
    (void)snprintf(text, sizeof text, "%u", def->least);
    expect_all(def, text, text);
    (void)snprintf(text, sizeof text, "%u", def->least + 7);
    expect_all(def, text, text);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)def->most + 1);
    expect_refused(def, text, def->must);
    if (def->least > 0)
        expect_refused(def, "0", def->must);
    expect_refused(def, "x", def->must);
    expect_refused(def, "-1", def->must);
    expect_refused(def, "", def->must);
}

static void check_seconds(const struct option_def *def) {
    const char *must =
        def->least > 0 ? "must be a number of seconds above 0" : "must be a number of seconds, 0 or more";
    if (def->least > 0)
        expect_refused(def, "0", must);
    else
        expect_all(def, "0", "0");
    expect_all(def, "2.5", "2.5");
    expect_refused(def, "x", must);
    expect_refused(def, "-1", must);
    expect_refused(def, "", must);
}

static void check_choices(const struct option_def *def) {
    char choice[32];
    int offset = 0, n = 0;
    for (; sscanf(def->choices + offset, "%31s%n", choice, &n) == 1; offset += n)
        expect_all(def, choice, choice);
    expect_refused(def, "x", def->choices);
    expect_refused(def, "", def->choices);
}

static void check_text(const struct option_def *def) {
    char too_long[300];
    if (def->choices != NULL) {
        check_choices(def);
        return;
    }
    expect_all(def, "a b", "a b");
    struct filled f = fill(def, "", NULL);
    cr_assert_eq(f.r, 0);
    cr_assert_eq(*(char **)((char *)&f.spec + def->at) != NULL, def->fallback != NULL, "%s", def->name);
    job_spec_fini(&f.spec);
    if (def->most == 0)
        return;
    (void)snprintf(too_long, sizeof too_long, "%0*d", (int)def->most, 1);
    expect_all(def, too_long, too_long);
    (void)snprintf(too_long, sizeof too_long, "%0*d", (int)def->most + 1, 1);
    expect_refused(def, too_long, "at most");
}

static void check_switch(const struct option_def *def) {
    char name[OPTION_TEXT_MAX];
    option_env_name(def, name);
    for (int i = 0; i < 2; i++) {
        struct filled f = fill(def, NULL, i > 0 ? name : NULL);
        cr_assert_eq(f.r, 0);
        bool on = *(const bool *)((const char *)&f.spec + def->at);
        cr_assert_eq(on, i == 0 || (def->flags & OPTION_ENV) != 0, "%s", def->name);
        job_spec_fini(&f.spec);
    }
}

Test(options_fill, every_ordinary_option_reaches_its_field) {
    uint32_t n = 0;
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        n += def->kind != OPTION_BY_HAND;
        cr_assert(def->kind == OPTION_BY_HAND || (def->arg == NULL) == (def->kind == OPTION_SWITCH), "%s", def->name);
        switch (def->kind) {
        case OPTION_BY_HAND: cr_assert_neq(def->id, 0, "nothing reads --%s", def->name); break;
        case OPTION_SWITCH: check_switch(def); break;
        case OPTION_COUNT: check_count(def); break;
        case OPTION_SECONDS: check_seconds(def); break;
        case OPTION_CHOICE: check_choices(def); break;
        case OPTION_TEXT: check_text(def); break;
        }
    }
    cr_assert_geq(n, 20);
}

Test(options_fill, no_two_options_have_one_field) {
    for (size_t i = 0; i < run_options.n; i++)
        for (size_t j = 0; j < i; j++) {
            const struct option_def *a = &run_options.defs[i], *b = &run_options.defs[j];
            cr_assert(a->kind == OPTION_BY_HAND || b->kind == OPTION_BY_HAND || a->at != b->at, "%s, %s", a->name,
                      b->name);
        }
}

Test(options_fill, what_was_not_given_is_the_default_that_the_help_shows) {
    _cleanup_(strbuf_fini) struct strbuf help = {0};
    help_all(&run_options, &help);
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        if (def->kind != OPTION_COUNT && def->kind != OPTION_SECONDS && def->kind != OPTION_CHOICE)
            continue;
        char *argv[] = {TEXT("run"), TEXT("x"), NULL}, *envp[] = {NULL}, buffer[OPTION_TEXT_MAX], shown[80], head[80];
        struct options_parsed p;
        struct err err;
        struct job_spec spec = job_spec_default;
        cr_assert_eq(options_parse(&run_options, 2, argv, &p, &err), 0);
        cr_assert_eq(options_from_env(&run_options, envp, &p, &err), 0);
        cr_assert_eq(options_fill(&run_options, &p, false, &spec, &err), 0);
        const char *text = option_field_text(def, &spec, buffer);
        (void)snprintf(shown, sizeof shown, def->variable != NULL ? "or %s)" : "(%s)", text != NULL ? text : "-");
        (void)snprintf(head, sizeof head, "  --%s%s=", def->name, def->bare != NULL ? "[" : "");
        const char *row = strstr(strbuf_text(&help), head), *next = row != NULL ? strstr(row, "\n  -") : NULL;
        const char *found = row != NULL ? strstr(row, shown) : NULL;
        bool none = text == NULL || (def->kind == OPTION_COUNT && def->least > 0 && strcmp(text, "0") == 0);
        cr_assert_eq(found != NULL && (next == NULL || found < next), !none, "--%s: %s", def->name, shown);
        job_spec_fini(&spec);
    }
}

Test(options_fill, a_number_of_torchruns_may_have_a_sign_and_one_of_ours_has_none) {
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        if (strcmp(def->name, "max-restarts") == 0)
            expect_all(def, "+3", "3");
        if (strcmp(def->name, "spares") == 0)
            expect_refused(def, "+3", def->must);
        if (strcmp(def->name, "max-restarts") == 0 || strcmp(def->name, "spares") == 0) {
            expect_all(def, " 3 ", "3");
            expect_all(def, "1_000", "1000");
        }
    }
}

/* argparse checks the choices of what stands on the command line, and no default from PET_NAME. */
Test(options_fill, the_start_method_of_the_environment_may_be_any) {
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        if ((def->flags & OPTION_ENV_FREE) == 0)
            continue;
        cr_assert_str_eq(def->name, "start-method");
        expect(def, "thread", "PET_START_METHOD", "thread");
        expect(def, "", "PET_START_METHOD", "");
        expect_refused(def, "thread", "must be one of: spawn fork forkserver");
    }
}

Test(options_fill, every_ordinary_option_is_printed_once_under_its_key) {
    struct job_spec spec = job_spec_default;
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    spec.backend = JOB_BACKEND_C10D;
    spec.entry = JOB_ENTRY_PYTHON;
    spec.nproc = 1;
    job_print_config(&spec, &out);
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        char *key = rig_text("\n  \"%s\":", def->key != NULL ? def->key : def->name);
        for (char *c = key; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        const char *first = strstr(strbuf_text(&out), key);
        if (def->kind == OPTION_BY_HAND)
            continue;
        cr_assert_not_null(first, "%s", key);
        cr_assert_null(strstr(first + 1, key), "%s", key);
    }
}
