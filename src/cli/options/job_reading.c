#include "cli/options/job_reading.h"

#include <errno.h>
#include <string.h>

#include "base/text/envlist.h"

const struct option_value *job_value(const struct job_reading *j, enum run_option row) {
    return &j->parsed.values[option_row(&run_options, row)];
}

const char *job_text(const struct job_reading *j, enum run_option row) {
    return job_value(j, row)->text;
}

unsigned job_choice(const struct job_reading *j, enum run_option row) {
    const struct option_def *def = &run_options.defs[option_row(&run_options, row)];
    return (unsigned)option_choice(def, job_text(j, row)); /* options_parse() has checked it */
}

bool job_given(const struct job_reading *j, enum run_option row) {
    return job_value(j, row)->times > 0 || job_value(j, row)->from_env;
}

bool job_is_on(const struct job_reading *j, enum run_option row) {
    return job_value(j, row)->times > 0;
}

int job_bad_value(struct job_reading *j, enum run_option row, const char *must) {
    char origin[OPTION_TEXT_MAX];
    return err_set(j->err, -EINVAL, "%s=%s: must be %s",
                   option_origin(&run_options, &j->parsed, option_row(&run_options, row), origin),
                   job_text(j, row), must);
}

void job_fill_in(struct job_reading *j, enum run_option row, const char *text) {
    j->parsed.values[option_row(&run_options, row)].text = text;
}

bool job_is_blank(const char *text) { return text == NULL || text[strspn(text, " \t")] == '\0'; }

bool job_env_is(const struct job_reading *j, const char *name, const char *value) {
    const char *got = env_get(j->envp, name);
    return got != NULL && strcmp(got, value) == 0;
}

enum job_backend job_backend_of(const char *name) {
    for (enum job_backend b = 1; b < JOB_BACKEND_COUNT; b++)
        if (strcmp(job_backends[b].name, name) == 0)
            return b;
    return strcmp(name, JOB_ETCD_V2) == 0 ? JOB_BACKEND_ETCD : 0;
}

int job_take_steps(struct job_reading *j, job_step *const *steps, size_t n) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = steps[i](j);
    return r;
}

void job_add_derived(struct job_reading *j, char *text) {
    size_t n = 0;
    while (j->spec->derived != NULL && j->spec->derived[n] != NULL)
        n++;
    words_add(&j->spec->derived, &n, text);
}
