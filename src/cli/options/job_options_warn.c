/* Warns of an environment that most likely means something else than what it does. */
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "cli/options/job_options_priv.h"

#define PREFIX "PET_"
#define WARNINGS_MAX 8 /* names; further ones are not told */

/* The option of a name without its prefix, in any case; NULL: there is none. */
static const struct option_def *option_of(const char *variable, size_t n) {
    for (size_t i = 0; i < run_options.n; i++) {
        char name[OPTION_TEXT_MAX];
        option_env_name(&run_options.defs[i], name);
        if (strlen(name) == n && strncmp(name, variable, n) == 0)
            return &run_options.defs[i];
    }
    return NULL;
}

static void warn_of_name(struct job_reading *j, const char *variable, size_t n) {
    const struct option_def *def = option_of(variable, n);
    if (def != NULL && (def->flags & OPTION_ENV) != 0)
        return;
    if (def != NULL) {
        strbuf_printf(j->warnings, "%.*s has no effect: --%s is taken from the command line only\n",
                      (int)n, variable, def->name);
        return;
    }
    _cleanup_(freep) char *word = xstrndup(variable + strlen(PREFIX), n - strlen(PREFIX));
    for (char *c = word; *c != '\0'; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    strbuf_printf(j->warnings, "%.*s: no such option", (int)MIN2(n, (size_t)OPTION_TEXT_MAX),
                  variable);
    const char *best = option_similar(&run_options, word);
    for (size_t i = 0; best != NULL && i < run_options.n; i++) {
        char name[OPTION_TEXT_MAX];
        option_env_name(&run_options.defs[i], name);
        if (strcmp(run_options.defs[i].name, best) == 0 &&
            (run_options.defs[i].flags & OPTION_ENV) != 0)
            strbuf_printf(j->warnings, "; did you mean %s?", name);
    }
    strbuf_add_char(j->warnings, '\n');
}

static uint32_t number_of(char *const *envp, const char *name) {
    const char *text = env_get(envp, name);
    uint32_t n;
    return text != NULL && parse_u32(text, &n) == 0 ? n : 0;
}

/* SLURM_STEP_NUM_NODES is of a step (srun), SLURM_NNODES of the whole job: srun(1), sbatch(1). */
static void warn_of_slurm(struct job_reading *j, char *const *envp) {
    uint32_t step = number_of(envp, "SLURM_STEP_NUM_NODES");
    uint32_t nodes = step != 0 ? step : number_of(envp, "SLURM_NNODES");
    const struct option_value *v = job_value(j, RUN_NNODES);
    if (!v->from_env || j->spec->rdzv.max_nodes != 1 || nodes < 2)
        return;
    strbuf_printf(j->warnings,
                  "PET_NNODES=%s, but this Slurm %s has %u nodes: on each of them a job of its own "
                  "would run; if it is to be one job: --nnodes=%u\n",
                  v->text, step != 0 ? "step" : "job", nodes, nodes);
}

void job_warn_of_environment(struct job_reading *j, char *const *envp) {
    unsigned warned = 0;
    for (char *const *e = envp; *e != NULL && warned < WARNINGS_MAX; e++) {
        const char *equals = strchr(*e, '=');
        if (equals == NULL || strncmp(*e, PREFIX, strlen(PREFIX)) != 0)
            continue;
        size_t before = j->warnings->len;
        warn_of_name(j, *e, (size_t)(equals - *e));
        warned += j->warnings->len > before;
    }
    warn_of_slurm(j, envp);
}
