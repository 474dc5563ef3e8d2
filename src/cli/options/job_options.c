#include "cli/options/job_options.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/signal_name.h"
#include "cli/options/job_reading.h"
#include "launcher/place/place.h"
#include "launcher/srun/slurm_job.h"
#include "topology/model/gpu_count.h"

/* More workers on each CPU are most likely a mistake: a port was given as N in HOST:N of -H. */
#define WORKERS_PER_CPU UINT64_C(4)

static int read_nnodes(struct job_reading *j) {
    const char *text = job_text(j, RUN_NNODES);
    const char *colon = strchr(text, ':');
    _cleanup_(freep) char *min =
        xstrndup(text, colon != NULL ? (size_t)(colon - text) : strlen(text));
    int32_t lo, hi;
    if (parse_python_i32(min, &lo) < 0 ||
        parse_python_i32(colon != NULL ? colon + 1 : min, &hi) < 0)
        return job_bad_value(j, RUN_NNODES, "a number of nodes, or MIN:MAX");
    if (lo < 1)
        return job_bad_value(j, RUN_NNODES, "at least 1");
    if (hi < lo)
        return job_bad_value(j, RUN_NNODES, "MIN:MAX with MIN not above MAX");
    if (hi > RDZV_NODES_MAX)
        return job_bad_value(j, RUN_NNODES, "at most 100000 nodes");
    j->spec->rdzv.min_nodes = (uint32_t)lo;
    j->spec->rdzv.max_nodes = (uint32_t)hi;
    return 0;
}

static int count_gpus(struct job_reading *j, bool must, uint32_t *ret) {
    const char *visible = env_get(j->envp, "CUDA_VISIBLE_DEVICES");
    struct err err = {0};
    uint32_t n = 0;
    int r = j->probes->count_gpus(&n, &err);
    if (must && r < 0)
        return err_set(j->err, -ENODEV, "--nproc-per-node=gpu: %s", err.text);
    if (must && n == 0)
        return err_set(j->err, -ENODEV,
                       "--nproc-per-node=gpu: no GPU is visible (CUDA_VISIBLE_DEVICES is %s)",
                       visible != NULL ? visible : "not set");
    const uint32_t each = MAX2(j->spec->gpus_per_worker, UINT32_C(1));
    if (r == 0 && n > 0 && n < each)
        return err_set(j->err, -ENODEV,
                       "--gpus-per-worker=%u: %u GPU%s visible, too few for one worker", each, n,
                       n == 1 ? " is" : "s are");
    *ret = r < 0 ? 0 : n / each;
    return 0;
}

const char *const job_nproc_words[JOB_NPROC_COUNT] = {[JOB_NPROC_NUMBER] = "number",
                                                      [JOB_NPROC_CPU] = "cpu",
                                                      [JOB_NPROC_GPU] = "gpu",
                                                      [JOB_NPROC_AUTO] = "auto"};

static int unknown_nproc(struct job_reading *j) {
    const char *text = job_text(j, RUN_NPROC_PER_NODE);
    struct suggest s = suggest_for(text);
    for (unsigned i = JOB_NPROC_CPU; i < JOB_NPROC_COUNT; i++)
        suggest_offer(&s, job_nproc_words[i]);
    bool guess = s.best != NULL && strcmp(text, "xpu") != 0;
    _cleanup_(freep) char *must =
        xasprintf("a number, or one of: auto, cpu, gpu%s%s%s", guess ? "; did you mean \"" : "",
                  guess ? s.best : "", guess ? "\"?" : "");
    return job_bad_value(j, RUN_NPROC_PER_NODE, must);
}

/* The number of workers on this node, as `nproc_by` says. */
static int count_nproc(struct job_reading *j) {
    enum job_nproc by = j->spec->nproc_by;
    uint32_t n = 0;
    int r = 0;
    if (by == JOB_NPROC_GPU || by == JOB_NPROC_AUTO)
        r = count_gpus(j, by == JOB_NPROC_GPU, &n);
    if (by == JOB_NPROC_CPU || (by == JOB_NPROC_AUTO && r == 0 && n == 0))
        n = j->probes->count_cpus();
    if (by != JOB_NPROC_NUMBER)
        j->spec->nproc = MIN2(n, (uint32_t)JOB_WORKERS_MAX);
    return r;
}

static int parse_nproc(struct job_reading *j) {
    const char *text = job_text(j, RUN_NPROC_PER_NODE);
    int32_t number;
    for (unsigned i = JOB_NPROC_CPU; i < JOB_NPROC_COUNT; i++)
        if (strcmp(text, job_nproc_words[i]) == 0) {
            j->spec->nproc_by = (enum job_nproc)i;
            return 0;
        }
    if (parse_python_i32(text, &number) < 0)
        return unknown_nproc(j);
    if (number < 1 || number > JOB_WORKERS_MAX)
        return job_bad_value(j, RUN_NPROC_PER_NODE, "from 1 to 4096");
    j->spec->nproc_by = JOB_NPROC_NUMBER;
    j->spec->nproc = (uint32_t)number;
    return 0;
}

static bool counts_elsewhere(const struct job_reading *j) {
    return j->spec->nproc_by != JOB_NPROC_NUMBER && j->spec->start_nodes > 0;
}

static int count_workers_by_launcher(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    const uint32_t each = p->nproc_is_gpus ? MAX2(spec->gpus_per_worker, UINT32_C(1)) : 1;
    if (p->nproc < each)
        return err_set(j->err, -ENODEV,
                       "--gpus-per-worker=%u: %s leaves %u GPU%s here, too few for one worker",
                       each, p->from.nproc, p->nproc, p->nproc == 1 ? "" : "s");
    spec->nproc = MIN2(p->nproc / each, (uint32_t)JOB_WORKERS_MAX);
    if (p->from.nproc != NULL)
        job_derived(j, "nproc_per_node: %u, from %s", spec->nproc, p->from.nproc);
    return 0;
}

/* Below a process manager, workers are counted by GPUs, and only without any by its tasks. */
static bool has_gpus_inside(const struct job_reading *j) {
    const struct launcher *by = j->spec->place.launcher;
    return j->fill.nproc && by != NULL && by->kind == LAUNCHER_INSIDE && j->probes->has_gpus();
}

static int read_nproc(struct job_reading *j) {
    if (has_gpus_inside(j)) {
        j->spec->nproc_by = JOB_NPROC_GPU;
        return count_nproc(j);
    }
    if (j->fill.nproc)
        return count_workers_by_launcher(j);
    int r = parse_nproc(j);
    if (r < 0 || !counts_elsewhere(j))
        return r < 0 ? r : count_nproc(j);
    j->spec->nproc = 1;
    return 0;
}

/* "-H host:2222" is most likely meant as a port. */
static int check_slots(struct job_reading *j) {
    uint32_t cpus = j->probes->count_cpus(), nproc = j->spec->nproc;
    if (job_given(j, RUN_NPROC_PER_NODE) || nproc <= WORKERS_PER_CPU * cpus)
        return 0;
    return err_set(j->err, -EINVAL,
                   "%u workers for %u CPU%s, from HOST:%u of -H or slots= of --hostfile; "
                   "for a port: --ssh \"ssh -p %u\", or Port in ~/.ssh/config; to start so "
                   "many workers: --nproc-per-node=%u",
                   nproc, cpus, cpus == 1 ? "" : "s", nproc, nproc, nproc);
}

/* A value in a word of its own that stands where SCRIPT is missing. */
static int no_script(struct job_reading *j) {
    const char *last = j->argv[j->argc - 1], *option = NULL;
    char called[OPTION_TEXT_MAX];
    (void)command_called(run_options.command, called);
    for (size_t i = 0; i < run_options.n && option == NULL; i++)
        if (j->parsed.values[i].text == last)
            option = run_options.defs[i].name;
    if (option == NULL)
        return err_set(j->err, -EINVAL, "no SCRIPT to run; usage: %s [OPTIONS] SCRIPT [ARGS...]",
                       called);
    return err_set(j->err, -EINVAL,
                   "no SCRIPT to run: \"%.200s\" was taken as the value of --%s; usage: %s "
                   "[OPTIONS] SCRIPT [ARGS...]",
                   last, option, called);
}

static int read_program(struct job_reading *j) {
    bool run_path = job_is_on(j, RUN_RUN_PATH);
    if (job_is_on(j, RUN_MODULE) && job_is_on(j, RUN_NO_PYTHON) && !run_path)
        return err_set(j->err, -EINVAL, "--module and --no-python exclude each other");
    if (j->parsed.operand >= j->argc)
        return no_script(j);
    if (j->argv[j->parsed.operand][0] == '\0')
        return err_set(j->err, -EINVAL, "SCRIPT is empty");
    struct job_spec *spec = j->spec;
    spec->entry = run_path                      ? JOB_ENTRY_PYTHON
                  : job_is_on(j, RUN_MODULE)    ? JOB_ENTRY_MODULE
                  : job_is_on(j, RUN_NO_PYTHON) ? JOB_ENTRY_PROGRAM
                                                : JOB_ENTRY_PYTHON;
    spec->script = xstrdup(j->argv[j->parsed.operand]);
    size_t n = (size_t)(j->argc - j->parsed.rest);
    spec->args = xcalloc(n + 1, sizeof *spec->args);
    for (size_t i = 0; i < n; i++)
        spec->args[i] = xstrdup(j->argv[(size_t)j->parsed.rest + i]);
    return 0;
}

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
    size_t len;
    int r = j->probes->read_file(JOB_FILE_ENV, path, &text, &len, j->err);
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

static int read_env(struct job_reading *j) {
    _cleanup_(envlist_fini) struct envlist e = {0};
    struct job_spec *spec = j->spec;
    int r = read_files(j, &e);
    const char *text;
    for (size_t i = 0; r == 0 && (text = job_repeated(j, RUN_ENV, i)) != NULL; i++)
        r = add_env(j, &e, "--env", text);
    if (r == 0) {
        spec->env = e.items;
        e = (struct envlist){0};
    }
    return r;
}

/* torchrun's modes have no meaning without GPUs; a quick check shows whether there are any. */
static int check_gpus(struct job_reading *j) {
    const struct gpu_inventory any = {.n = GPUS_MAX};
    bool here = j->probes->has_gpus();
    if (here && gpu_count_visible(env_get(j->envp, "CUDA_VISIBLE_DEVICES"), &any) > 0)
        return 0;
    return err_set(j->err, -ENODEV,
                   "--numa-binding binds workers near their GPUs, and %s; --bind=numa binds "
                   "workers without GPUs",
                   here ? "CUDA_VISIBLE_DEVICES lets them see none" : "this node has none");
}

static int check_gpus_per_worker(struct job_reading *j) {
    if (j->spec->virtual_local_rank && j->spec->gpus_per_worker > 1)
        return err_set(j->err, -EINVAL,
                       "--virtual-local-rank gives each worker one GPU, --gpus-per-worker=%u more",
                       j->spec->gpus_per_worker);
    return 0;
}

static int read_binding(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (job_text(j, RUN_NUMA_BINDING) != NULL && job_text(j, RUN_NUMA_BINDING)[0] != '\0') {
        if (job_given(j, RUN_BIND))
            return err_set(j->err, -EINVAL, "--numa-binding and --bind exclude each other");
        if (job_given(j, RUN_BIND_MEMORY))
            return err_set(j->err, -EINVAL,
                           "--numa-binding binds to CPUs only, as torchrun does; "
                           "--bind-memory goes with --bind");
        spec->bind = BIND_TORCH_NODE + job_choice(j, RUN_NUMA_BINDING);
        spec->bind_memory = BIND_MEMORY_OFF;
        return check_gpus(j);
    }
    if (job_text(j, RUN_BIND) != NULL)
        spec->bind = BIND_NONE + job_choice(j, RUN_BIND);
    return 0;
}

static int resolve_binding(struct job_reading *j) {
    if (job_value(j, RUN_BIND)->from_env && !job_given(j, RUN_NUMA_BINDING))
        j->spec->bind = BIND_NONE + job_choice(j, RUN_BIND);
    return j->spec->bind >= BIND_TORCH_NODE ? check_gpus(j) : 0;
}

static int read_std(struct job_reading *j, enum run_option row, struct std_map *ret) {
    const char *text = job_text(j, row);
    if (text == NULL || std_map_parse(text, ret) == 0)
        return 0;
    return job_bad_value(j, row,
                         "0 (none), 1 (stdout), 2 (stderr), 3 (both), or by local rank: 0:3,1:1");
}

static int read_ranks_filter(struct job_reading *j) {
    const char *s = job_text(j, RUN_LOCAL_RANKS_FILTER);
    const uint32_t n = counts_elsewhere(j) ? JOB_WORKERS_MAX : j->spec->nproc;
    if (s == NULL || *s == '\0')
        return 0;
    free(j->spec->console_ranks);
    bool *shown = j->spec->console_ranks = xcalloc(JOB_WORKERS_MAX, sizeof *shown);
    for (; s != NULL; s = strchr(s, ','), s = s != NULL ? s + 1 : NULL) {
        _cleanup_(freep) char *item = xstrndup(s, strcspn(s, ","));
        int32_t rank;
        if (parse_python_i32(item, &rank) < 0)
            return job_bad_value(j, RUN_LOCAL_RANKS_FILTER, "local ranks with commas: 0,1,2");
        if (rank >= 0 && (uint32_t)rank < n)
            shown[rank] = true;
        else
            strbuf_printf(j->warnings, "--local-ranks-filter: there is no local rank %d\n", rank);
    }
    return 0;
}

#define SPOOL_MAX (UINT64_C(1) << 42)

static int read_output_spool(struct job_reading *j) {
    static const char units[] = "KMGT";
    const char *s = job_text(j, RUN_OUTPUT_SPOOL);
    if (s == NULL)
        return 0;
    size_t digits = strspn(s, "0123456789");
    const char *unit = s[digits] != '\0' ? strchr(units, toupper((unsigned char)s[digits])) : NULL;
    _cleanup_(freep) char *number = xstrndup(s, digits);
    uint64_t n;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    bool ok =
        parse_u64(number, &n) == 0 && n <= SPOOL_MAX >> shift && s[digits + (unit != NULL)] == '\0';
    if (!ok)
        return job_bad_value(j, RUN_OUTPUT_SPOOL,
                             "a number of bytes, also with K, M, G or T: 512M; at most 4T");
    j->spec->output_spool = n << shift;
    return 0;
}

/* The user always reads and writes; others may read, the group may write, too. */
int job_log_mode_parse(const char *text, uint32_t *ret) {
    uint32_t mode = 0;
    size_t n = strspn(text, "01234567");
    for (size_t i = 0; i < n && n <= 4; i++)
        mode = mode << 3 | (uint32_t)(text[i] - '0');
    if (text[n] != '\0' || (mode & 0600) != 0600 || (mode & ~0664u) != 0)
        return -EINVAL;
    *ret = mode;
    return 0;
}

static int read_log_mode(struct job_reading *j) {
    const char *text = job_text(j, RUN_LOG_MODE);
    if (text == NULL || job_log_mode_parse(text, &j->spec->log_mode) == 0)
        return 0;
    return job_bad_value(j, RUN_LOG_MODE,
                         "the octal mode of a file: 0600, 0640, 0660, 0644 or 0664");
}

/* Splits a list at its commas; two are a comma in an item. As in torchrun, "" has one item. */
static char **split_filters(const char *list) {
    size_t most = strlen(list) + 2, n = 0;
    char **items = xcalloc(most, sizeof *items);
    struct strbuf item = {0};
    for (const char *s = list;; s++) {
        bool escaped = s[0] == ',' && s[1] == ',';
        if (*s == '\0' || (*s == ',' && !escaped))
            items[n++] = strbuf_take(&item);
        else
            strbuf_add_char(&item, *s);
        if (*s == '\0')
            return items;
        s += escaped;
    }
}

/* Needs the streams and the folder. */
static int read_filters(struct job_reading *j) {
    static const enum run_option rows[] = {RUN_DUPLICATE_STDOUT_FILTERS,
                                           RUN_DUPLICATE_STDERR_FILTERS};
    const struct job_spec *spec = j->spec;
    for (int k = 0; k < 2; k++) {
        const char *name = run_options.defs[option_row(&run_options, rows[k])].name;
        unsigned tee = STD_NONE;
        if (!job_given(j, rows[k]) || job_text(j, rows[k]) == NULL)
            continue;
        if (spec->log_dir != NULL && strcmp(spec->log_dir, "/dev/null") == 0)
            return err_set(j->err, -EINVAL,
                           "--%s writes a file, but --log-dir=/dev/null means none", name);
        words_free(j->spec->filters[k]);
        j->spec->filters[k] = split_filters(job_text(j, rows[k]));
        for (uint32_t i = 0; i < spec->nproc; i++)
            tee |= std_map_get(&spec->tee, i);
        if ((tee & (k == 0 ? STD_OUT : STD_ERR)) == 0)
            strbuf_printf(j->warnings, "--%s has no effect: only streams of --tee are filtered\n",
                          name);
    }
    return 0;
}

/* console is the same as --event-log=-. */
static int read_event_log(struct job_reading *j) {
    const char *file = job_text(j, RUN_EVENT_LOG), *handler = job_text(j, RUN_EVENT_LOG_HANDLER);
    if (file != NULL && file[0] == '\0')
        file = NULL;
    if (file == NULL && handler != NULL && strcmp(handler, "console") == 0)
        file = "-";
    if (file == NULL)
        return 0;
    free(j->spec->event_log);
    j->spec->event_log = xstrdup(file);
    return 0;
}

static int read_streams(struct job_reading *j) {
    const char *specs = job_text(j, RUN_LOGS_SPECS);
    if (specs != NULL && strcmp(specs, "default") != 0)
        return err_set(j->err, -ENOTSUP,
                       "--logs-specs=%s: must be default; others are plug-ins written in Python, "
                       "which muster can't load",
                       specs);
    int r = read_std(j, RUN_REDIRECTS, &j->spec->redirects);
    return r < 0 ? r : read_std(j, RUN_TEE, &j->spec->tee);
}

static int read_output(struct job_reading *j) {
    static job_step *const steps[] = {read_streams,  read_ranks_filter, read_output_spool,
                                      read_log_mode, read_filters,      read_event_log};
    return job_take_steps(j, steps, ARRAY_SIZE(steps));
}

/* Needs the streams, and the numbers of nodes after the backend has changed them. */
static int share_output(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const bool has_own =
        job_given(j, RUN_TEE) || job_given(j, RUN_REDIRECTS) || spec->place.srun_labels;
    const struct launcher *by = spec->place.launcher;
    const bool own = by != NULL && by->kind == LAUNCHER_NODES; /* each node's output by itself */
    if (((spec->nodes == PLACE_NODES_STEP && !own) || place_has_starter(&spec->place)) &&
        spec->rdzv.max_nodes > 1)
        spec->output = has_own ? JOB_OUTPUT_SHARED : JOB_OUTPUT_PREFIXED;
    return 0;
}

int job_signal_by_name(const char *name) {
    for (int i = 1; i < NSIG; i++) {
        const char *abbreviation = signal_abbrev(i);
        if (abbreviation != NULL && strncmp(name, "SIG", 3) == 0 &&
            strcmp(abbreviation, name + 3) == 0)
            return i;
    }
    return 0;
}

static int read_signals(struct job_reading *j) {
    const char *s = job_text(j, RUN_SIGNALS_TO_HANDLE);
    struct job_spec *spec = j->spec;
    if (s == NULL)
        return 0;
    spec->n_signals = 0;
    while (*s != '\0') {
        s += strspn(s, " ,");
        size_t n = strcspn(s, " ,");
        if (n == 0)
            break;
        _cleanup_(freep) char *name = xstrndup(s, n);
        s += n;
        int signo = job_signal_by_name(name);
        if (signo == 0 || signo == SIGKILL || signo == SIGSTOP) {
            strbuf_printf(j->warnings, "--signals-to-handle: %s \"%s\" is ignored\n",
                          signo == 0 ? "unknown signal" : "a signal that can't be caught,", name);
        } else if (!job_is_ended_by(spec, signo)) {
            if (spec->n_signals == JOB_SIGNALS_MAX)
                return job_bad_value(j, RUN_SIGNALS_TO_HANDLE, "at most 16 signals");
            spec->signals[spec->n_signals++] = signo;
        }
    }
    return 0;
}

static int read_requeue(struct job_reading *j) {
    const char *text = job_text(j, RUN_REQUEUE);
    if (text[0] == '\0') {
        if (job_value(j, RUN_MAX_REQUEUES)->times > 0)
            strbuf_add(j->warnings, "--max-requeues has no effect without --requeue\n");
        return 0;
    }
    if (requeue_parse(text, &j->spec->requeue) < 0)
        return job_bad_value(j, RUN_REQUEUE, "one or more of preempt, node-fail, timeout");
    bool is_ssh = j->spec->hosts.list.n > 0;
    if (is_ssh && j->spec->hosts.by != NULL && j->spec->hosts.by->again != 0)
        return 0;
    if (j->spec->place.slurm == PLACE_SLURM_NONE || is_ssh) {
        strbuf_printf(j->warnings, "--requeue: %s, so it has no effect\n",
                      is_ssh ? "over ssh muster is not a job of Slurm"
                             : "this is not a job of Slurm, Grid Engine or OAR");
        j->spec->requeue = 0;
    }
    return 0;
}

/* Signals by which a batch system announces the end, unless the user gives others. */
static void add_launcher_signals(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct launcher *by = spec->hosts.by != NULL ? spec->hosts.by : spec->place.launcher;
    if (by == NULL || job_given(j, RUN_SIGNALS_TO_HANDLE))
        return;
    for (size_t i = 0; i < LAUNCHER_SIGNALS_MAX; i++)
        if (by->save[i] != 0 && spec->n_signals < JOB_SIGNALS_MAX)
            spec->signals[spec->n_signals++] = by->save[i];
}

static int read_ending(struct job_reading *j) {
    double interval;
    const char *monitor = job_text(j, RUN_MONITOR_INTERVAL);
    if (monitor != NULL && (parse_python_double(monitor, &interval) < 0 || interval <= 0))
        return job_bad_value(j, RUN_MONITOR_INTERVAL, "a number of seconds above 0");
    if (j->spec->leave == JOB_LEAVE_DETACHED && j->spec->contain == JOB_CONTAIN_PIDNS)
        return err_set(j->err, -EINVAL,
                       "--leave=detached: nothing outlives a pid namespace; use another --contain "
                       "than pidns");
    int r = read_signals(j);
    if (r == 0)
        add_launcher_signals(j);
    return r;
}

static bool has_gpus(const struct job_reading *j) {
    return j->spec->start_nodes > 0 || j->probes->has_gpus();
}

/* Not variables, nor options for several nodes: people use one line for jobs of any size. */
static int warn_of_idle_options(struct job_reading *j) {
    const struct job_spec *spec = j->spec;
    const bool one_node = spec->rdzv.max_nodes == 1,
               unwatched = spec->hang.action == HANG_ACTION_OFF;
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
        {"rdzv-endpoint", job_is_on(j, RUN_STANDALONE), "no effect with --standalone"},
        {"warm", no_restart && one_node, "no effect without --max-restarts"},
        {"warm-after", cold, "no effect without --warm"},
        {"warm-skip", cold, "no effect without --warm"},
        {"health-timeout", spec->health_check == NULL, "no effect without --health-check"},
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
    return 0;
}

/* ---- an environment that most likely means something else than what it does ---- */

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
 * it, and Slurm then kills the rest at once. Logged once for the step. */
static void warn_of_shell(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    if (p->slurm == PLACE_SLURM_STEP && p->task_is_shell && p->proc_id == 0)
        strbuf_add(j->warnings,
                   "Slurm will signal the shell that started muster, and not muster, so that "
                   "workers can be killed before they have saved anything; write \"exec muster "
                   "run\" in that shell\n");
}

/* Of a line for torchrun that runs in a step, or alone in a batch script. */
static void warn_of_line(struct job_reading *j) {
    const struct job_spec *spec = j->spec;
    const bool from_batch = job_env_is(j, "ENVIRONMENT", "BATCH"); /* sbatch's own, inherited */
    if (spec->start_nodes == 0 && spec->starter == JOB_STARTER_AUTO)
        slurm_doubt(spec, &j->given, from_batch, j->warnings);
}

static int warn_of_environment(struct job_reading *j) {
    unsigned warned = 0;
    for (char *const *e = j->envp; *e != NULL && warned < WARNINGS_MAX; e++) {
        const char *equals = strchr(*e, '=');
        if (equals == NULL || strncmp(*e, PREFIX, strlen(PREFIX)) != 0)
            continue;
        size_t before = j->warnings->len;
        warn_of_name(j, *e, (size_t)(equals - *e));
        warned += j->warnings->len > before;
    }
    warn_of_one_node(j);
    warn_of_shell(j);
    warn_of_line(j);
    return 0;
}

static void reading_fini(struct job_reading *j) {
    free(j->run_id);
    rdzv_conf_fini(&j->conf);
}

static int read_environment(struct job_reading *j) {
    return options_from_env(&run_options, j->envp, &j->parsed, j->err);
}

static int fill_ordinary(struct job_reading *j) {
    j->spec->verbose = (int)MIN2(job_value(j, RUN_VERBOSE)->times, 9u);
    return options_fill(&run_options, &j->parsed, false, j->spec, j->err);
}

static int list_given(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    size_t n = 0;
    words_free(TAKE_PTR(spec->given));
    for (size_t i = 0; i < run_options.n; i++)
        if (j->parsed.values[i].times > 0 || j->parsed.values[i].from_env)
            words_add(&spec->given, &n, xstrdup(run_options.defs[i].name));
    return 0;
}

/* A process that is to be a job of its own asks no process manager: other tasks may not, either. */
static bool is_alone(const struct job_reading *j) {
    const struct job_spec *spec = j->spec;
    return job_is_on(j, RUN_STANDALONE) || spec->starter == JOB_STARTER_NONE ||
           (job_given(j, RUN_NNODES) && spec->rdzv.max_nodes == 1);
}

static int read_place(struct job_reading *j) {
    struct place_probes probes = j->probes->place;
    if (is_alone(j))
        probes.pmi = NULL;
    j->place_code = place_read(j->envp, &probes, &j->spec->place, &j->place_err);
    return 0;
}

/* An option that the user of the head has given counts: its value is in the job, and its text is
 * NULL here. A node's own PET_NAME counts for the others. */
static int mark_given(struct job_reading *j) {
    for (char *const *name = j->spec->given; name != NULL && *name != NULL; name++) {
        size_t i = 0;
        while (i < run_options.n && strcmp(run_options.defs[i].name, *name) != 0)
            i++;
        if (i == run_options.n)
            return err_set(j->err, -EINVAL, "there is no option \"%.64s\"", *name);
        j->parsed.values[i].times = 1;
    }
    return 0;
}

static int fill_from_environment(struct job_reading *j) {
    return options_fill(&run_options, &j->parsed, true, j->spec, j->err);
}

static int resolve_nproc(struct job_reading *j) {
    int r = job_value(j, RUN_NPROC_PER_NODE)->from_env ? parse_nproc(j) : 0;
    if (r == 0)
        r = count_nproc(j);
    return r < 0 ? r : check_slots(j);
}

int job_options_of_head(const char *text, size_t len, char *const *envp,
                        const struct job_probes *probes, struct job_spec *ret, struct err *err) {
    static job_step *const steps[] = {
        mark_given,    read_environment,       fill_from_environment, list_given,  read_place,
        resolve_nproc, check_gpus_per_worker,  resolve_binding,       read_output, read_ending,
        share_output,  job_read_workers_store, job_read_topology};
    _cleanup_(strbuf_fini) struct strbuf unused = {0}; /* the head has warned */
    _cleanup_(job_spec_fini) struct job_spec spec = job_spec_default;
    struct job_reading j = {
        .envp = envp, .probes = probes, .warnings = &unused, .spec = &spec, .err = err};
    int r = job_read(text, len, &spec, err);
    if (r < 0) {
        err_prefix(err, "the job that this agent was given");
        return r;
    }
    r = job_take_steps(&j, steps, ARRAY_SIZE(steps));
    if (r < 0)
        return r;
    *ret = spec;
    spec = (struct job_spec){0};
    return 0;
}

int job_options_read(int argc, char *const *argv, char *const *envp,
                     const struct job_probes *probes, struct strbuf *warnings, struct job_spec *ret,
                     struct err *err) {
    static job_step *const steps[] = {read_environment,    list_given,
                                      read_program,        fill_ordinary,
                                      read_nnodes,         read_place,
                                      job_read_launcher,   job_read_starter,
                                      read_requeue,        check_gpus_per_worker,
                                      read_nproc,          read_binding,
                                      job_read_rendezvous, read_output,
                                      share_output,        read_env,
                                      read_ending,         warn_of_idle_options,
                                      warn_of_environment};
    _cleanup_(job_spec_fini) struct job_spec spec = job_spec_default;
    _cleanup_(reading_fini) struct job_reading j = {.argc = argc,
                                                    .argv = argv,
                                                    .envp = envp,
                                                    .probes = probes,
                                                    .warnings = warnings,
                                                    .spec = &spec,
                                                    .err = err};
    int r = options_parse(&run_options, argc, argv, &j.parsed, err);
    if (r < 0)
        return r;
    if (job_is_on(&j, RUN_HELP))
        return JOB_OPTIONS_HELP;
    if (job_is_on(&j, RUN_HELP_ALL))
        return JOB_OPTIONS_HELP_ALL;
    if (job_is_on(&j, RUN_VERSION))
        return JOB_OPTIONS_VERSION;
    r = job_take_steps(&j, steps, ARRAY_SIZE(steps));
    if (r < 0)
        return r;
    *ret = spec;
    spec = (struct job_spec){0};
    return job_is_on(&j, RUN_PRINT_CONFIG) ? JOB_OPTIONS_PRINT_CONFIG : 0;
}
