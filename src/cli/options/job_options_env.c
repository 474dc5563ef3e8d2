#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text/envlist.h"
#include "cli/options/job_options_priv.h"

/* Variables that muster itself sets for its workers: another value would break the group. */
static bool is_ours(const char *name, size_t n) {
    for (const struct job_worker_variable *known = job_worker_variables; known->name != NULL;
         known++)
        if (strlen(known->name) == n && strncmp(known->name, name, n) == 0)
            return true;
    return strncmp(name, "MUSTER_", 7) == 0;
}

static bool is_name(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isascii(text[i]) || !(isalnum((unsigned char)text[i]) || text[i] == '_'))
            return false;
    return n > 0 && !isdigit((unsigned char)text[0]);
}

/* where: "--env", or "FILE:LINE". */
static int add_env(struct job_reading *j, struct envlist *e, const char *where, const char *text) {
    size_t n = strcspn(text, "=");
    if (text[n] == '\0' || !is_name(text, n))
        return err_set(j->err, -EINVAL, "%s: \"%.*s\" is not NAME=VALUE", where,
                       (int)MIN2(strlen(text), (size_t)80), text);
    if (is_ours(text, n))
        return err_set(j->err, -EINVAL, "%s: muster itself sets %.*s for each worker", where,
                       (int)n, text);
    _cleanup_(freep) char *name = xstrndup(text, n);
    envlist_set(e, name, text + n + 1);
    return 0;
}

static int add_file(struct job_reading *j, struct envlist *e, const char *path) {
    _cleanup_(freep) char *text = NULL;
    int r = j->probes->read_env_file != NULL
                ? j->probes->read_env_file(j->probes->arg, path, &text, j->err)
                : err_set(j->err, -ENOTSUP, "can't read %s", path);
    if (r < 0) {
        err_prefix(j->err, "--env-file");
        return r;
    }
    uint32_t number = 1, returns = 0; /* the first line with a carriage return */
    for (char *line = text; r == 0 && *line != '\0'; number++) {
        size_t n = strcspn(line, "\n");
        bool last = line[n] == '\0';
        line[n] = '\0';
        _cleanup_(freep) char *where = xasprintf("--env-file: %s, line %u", path, number);
        if (n > 0 && line[n - 1] == '\r') {
            line[n - 1] = '\0';
            returns = returns > 0 ? returns : number;
        }
        if (line[0] != '#' && line[strspn(line, " \t\r")] != '\0')
            r = add_env(j, e, where, line);
        line += n + !last;
    }
    if (r == 0 && returns > 0)
        strbuf_printf(j->warnings,
                      "--env-file: %s, line %u: the carriage return at the end was removed; the "
                      "file has Windows line endings\n",
                      path, returns);
    return r;
}

static const char *job_repeated(const struct job_reading *j, enum run_option row, size_t n) {
    return option_repeated(&j->parsed, option_row(&run_options, row), n);
}

static int read_files(struct job_reading *j, struct envlist *e) {
    const struct option_value *v = job_value(j, RUN_ENV_FILE);
    if (v->from_env)
        return v->text[0] != '\0' ? add_file(j, e, v->text) : 0;
    int r = 0;
    const char *path;
    for (size_t i = 0; r == 0 && (path = job_repeated(j, RUN_ENV_FILE, i)) != NULL; i++)
        r = add_file(j, e, path);
    return r;
}

int job_read_env(struct job_reading *j) {
    _cleanup_(envlist_fini) struct envlist e = {0};
    struct job_spec *spec = j->spec;
    int r = read_files(j, &e);
    const char *text;
    for (size_t i = 0; r == 0 && (text = job_repeated(j, RUN_ENV, i)) != NULL; i++)
        r = add_env(j, &e, "--env", text);
    if (r < 0 || e.n == 0)
        return r;
    spec->env = xcalloc(e.n + 1, sizeof *spec->env);
    for (size_t i = 0; i < e.n; i++)
        spec->env[i] = xstrdup(e.items[i]);
    return 0;
}
