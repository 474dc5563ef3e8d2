/* Warns of options that do nothing here, and of an environment that most likely means something
 * else than what it does. */
#include <string.h>

#include "base/text/envlist.h"
#include "cli/options/job_options_priv.h"
#include "launcher/place/doubt.h"

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

/* On how many nodes of Slurm muster would run, or could. */
static void warn_of_one_node(struct job_reading *j) {
    const struct option_value *v = job_value(j, RUN_NNODES);
    const struct place *p = &j->spec->place;
    bool step = p->slurm == PLACE_SLURM_STEP;
    uint32_t nodes = step ? p->n_nodes : p->job_nodes;
    if (p->slurm == PLACE_SLURM_NONE || !v->from_env || j->spec->rdzv.max_nodes != 1 || nodes < 2)
        return;
    if (step)
        strbuf_printf(
            j->warnings,
            "PET_NNODES=%s, but this Slurm step has %u nodes: on each of them a job of its "
            "own runs; if it is to be one job: unset PET_NNODES\n",
            v->text, nodes);
    else
        strbuf_printf(
            j->warnings,
            "PET_NNODES=%s, but this Slurm job has %u nodes, and the others stay idle; if "
            "it is to use them: unset PET_NNODES\n",
            v->text, nodes);
}

/* scancel and time limits signal the task, and with control groups nothing else: a shell dies of
 * it, and Slurm then kills the rest at once. Said once for the step. */
static void warn_of_shell(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    if (p->slurm == PLACE_SLURM_STEP && p->task_is_shell && p->proc_id == 0)
        strbuf_add(j->warnings,
                   "Slurm will signal the shell that started muster, and not muster, so that "
                   "workers can be killed before they have saved anything; write \"exec muster "
                   "run\" in that shell\n");
}

/* Of a line for torchrun that runs in a step, or alone in a batch script. */
static void warn_of_line(struct job_reading *j, char *const *envp) {
    const struct job_spec *spec = j->spec;
    const char *environment = env_get(envp, "ENVIRONMENT"); /* BATCH: sbatch's own, inherited */
    const struct doubt_line line = {
        .min_nodes = spec->rdzv.min_nodes,
        .max_nodes = spec->rdzv.max_nodes,
        .one_agent = place_has_one_agent(spec->nodes),
        .spares = spec->rdzv.spares != UINT32_MAX,
        .host = spec->endpoint_host,
        .script = spec->script,
        .ranks_are_fixed = job_backend(spec)->ranks_are_chosen,
        .node_rank = spec->node_rank,
        .srun_host = spec->place.srun_host,
        .from_batch = environment != NULL && strcmp(environment, "BATCH") == 0,
    };
    if (spec->start_nodes == 0 && spec->starter == JOB_STARTER_AUTO)
        slurm_doubt(&spec->place, &j->given, &line, j->warnings);
}

/* ---- options that do nothing ---- */

static bool has_gpus(const struct job_reading *j) {
    return j->spec->start_nodes > 0 ||
           (j->probes->has_gpus != NULL && j->probes->has_gpus(j->probes->arg));
}

/* Neither variables nor options that need several nodes are checked: people use one environment and
 * one line for jobs of any size. */
void job_warn_of_idle_options(struct job_reading *j) {
    const struct job_spec *spec = j->spec;
    const bool one_node = spec->rdzv.max_nodes == 1, unwatched = spec->hang_action == JOB_HANG_OFF;
    const bool no_gpu = !has_gpus(j), cold = spec->warm == JOB_WARM_OFF;
    const bool no_restart = spec->rdzv.max_restarts == 0, no_tee = !job_given(j, RUN_TEE);
    const bool no_output = no_tee && !job_given(j, RUN_REDIRECTS);
    const bool no_file = spec->log_dir == NULL && no_output &&
                         (spec->event_log == NULL || strcmp(spec->event_log, "-") == 0);
    const struct {
        const char *name;
        bool is_idle;
        const char *why;
    } rows[] = {
        {"gpus-per-worker", no_gpu, "this node has no GPU"},
        {"virtual-local-rank", no_gpu, "this node has no GPU"},
        {"node-rank", one_node && spec->node_rank > 0,
         "no effect, the job has one node; see --nnodes"},
        {"master-addr", !job_backend(spec)->ranks_are_chosen && !job_given(j, RUN_MASTER_PORT),
         "no effect without --master-port"},
        {"rdzv-endpoint", job_value(j, RUN_STANDALONE)->times > 0, "no effect with --standalone"},
        {"warm", no_restart && one_node, "no effect without --max-restarts"},
        {"warm-after", cold, "no effect without --warm"},
        {"warm-skip", cold, "no effect without --warm"},
        {"hang-timeout", unwatched, "no effect with --hang-action=off"},
        {"hang-still", unwatched, "no effect with --hang-action=off"},
        {"hang-report", unwatched, "no effect with --hang-action=off"},
        {"restart-backoff", no_restart, "no effect without --max-restarts"},
        {"exclude-after", no_restart, "no effect without --max-restarts"},
        {"arbiter-lease", !job_backend(spec)->any_node_leads,
         "no effect unless nodes meet in a directory or etcd"},
        {"bind-memory", spec->bind == BIND_NONE || (spec->bind == 0 && no_gpu),
         "no effect without --bind"},
        {"log-line-prefix-template", spec->prefix == JOB_PREFIX_NEVER,
         "no effect with --prefix=never"},
        {"log-dir",
         no_output && !spec->nccl_debug &&
             (spec->log_dir == NULL || strcmp(spec->log_dir, "/dev/null") != 0),
         "the output of workers is not written there; add -t 3 (to files and terminal) or -r 3 (to "
         "files only)"},
        {"log-mode", no_file, "no effect, no file is written; see --log-dir and --event-log"},
        {"key-file", spec->auth == AUTH_NONE, "no effect with --auth=none"},
    };
    for (size_t i = 0; i < run_options.n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(rows) && j->parsed.values[i].times > 0; k++)
            if (rows[k].is_idle && !j->parsed.values[i].from_env &&
                strcmp(run_options.defs[i].name, rows[k].name) == 0)
                strbuf_printf(j->warnings, "--%s: %s\n", rows[k].name, rows[k].why);
}

/* ---- the environment ---- */

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
    warn_of_one_node(j);
    warn_of_shell(j);
    warn_of_line(j, envp);
}
