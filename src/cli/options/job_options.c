#include "cli/options/job_options.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/signal_name.h"
#include "cli/options/job_options_priv.h"
#include "cli/options/options_table.h"
#include "cli/options/suggest.h"
#include "launcher/place/place.h"

/* More workers on each CPU are most likely a mistake: a port was given as N in HOST:N of -H. */
#define WORKERS_PER_CPU UINT64_C(4)

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

static bool is_on(const struct job_reading *j, enum run_option row) {
    return job_value(j, row)->times > 0;
}

int job_bad_value(struct job_reading *j, enum run_option row, const char *must) {
    char origin[OPTION_TEXT_MAX];
    return err_set(j->err, -EINVAL, "%s=%s: must be %s",
                   option_origin(&run_options, &j->parsed, option_row(&run_options, row), origin),
                   job_text(j, row), must);
}

static int read_nnodes(struct job_reading *j) {
    const char *text = job_text(j, RUN_NNODES);
    const char *colon = strchr(text, ':');
    _cleanup_(freep) char *min =
        xstrndup(text, colon != NULL ? (size_t)(colon - text) : strlen(text));
    int32_t lo, hi;
    if (parse_python_i32(min, &lo) < 0 ||
        parse_python_i32(colon != NULL ? colon + 1 : min, &hi) < 0)
        return job_bad_value(j, RUN_NNODES, "a number of nodes, or MIN:MAX");
    if (lo < 1 || hi < lo)
        return job_bad_value(j, RUN_NNODES, "at least 1, and MIN not above MAX");
    if (hi > RDZV_NODES_MAX)
        return job_bad_value(j, RUN_NNODES, "at most 100000 nodes");
    j->spec->rdzv.min_nodes = (uint32_t)lo;
    j->spec->rdzv.max_nodes = (uint32_t)hi;
    return 0;
}

static int count_gpus(struct job_reading *j, bool must, uint32_t *ret) {
    struct err err = {0};
    uint32_t n = 0;
    int r = j->probes->count_gpus(j->probes->arg, &n, &err);
    if (must && r < 0)
        return err_set(j->err, -ENODEV, "--nproc-per-node=gpu: %s", err.text);
    if (must && n == 0)
        return err_set(j->err, -ENODEV,
                       "--nproc-per-node=gpu: no GPU is visible (CUDA_VISIBLE_DEVICES is %s)",
                       j->visible_devices != NULL ? j->visible_devices : "not set");
    const uint32_t each = MAX2(j->spec->gpus_per_worker, UINT32_C(1));
    if (r == 0 && n > 0 && n < each)
        return err_set(j->err, -ENODEV,
                       "--gpus-per-worker=%u: %u GPU%s visible, too few for one worker", each, n,
                       n == 1 ? " is" : "s are");
    *ret = r < 0 ? 0 : n / each;
    return 0;
}

static int unknown_nproc(struct job_reading *j) {
    const char *text = job_text(j, RUN_NPROC_PER_NODE);
    struct suggest s = suggest_for(text);
    static const char *const words[] = {"auto", "cpu", "gpu"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        suggest_offer(&s, words[i]);
    if (s.best == NULL || strcmp(text, "xpu") == 0)
        return job_bad_value(j, RUN_NPROC_PER_NODE, "a number, or one of: auto, cpu, gpu");
    _cleanup_(freep) char *must =
        xasprintf("a number, or one of: auto, cpu, gpu; did you mean \"%s\"?", s.best);
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
        n = j->probes->count_cpus(j->probes->arg);
    if (by != JOB_NPROC_NUMBER)
        j->spec->nproc = MIN2(n, (uint32_t)JOB_WORKERS_MAX);
    return r;
}

/* Fills in a number, or from what it is to be counted. */
static int parse_nproc(struct job_reading *j) {
    static const char *const words[] = {
        [JOB_NPROC_CPU] = "cpu", [JOB_NPROC_GPU] = "gpu", [JOB_NPROC_AUTO] = "auto"};
    const char *text = job_text(j, RUN_NPROC_PER_NODE);
    int32_t number;
    for (unsigned i = JOB_NPROC_CPU; i < ARRAY_SIZE(words); i++)
        if (strcmp(text, words[i]) == 0) {
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

static int read_nproc(struct job_reading *j) {
    if (j->fill.nproc)
        return job_count_workers_by_slurm(j);
    int r = parse_nproc(j);
    if (r < 0 || !job_counts_elsewhere(j))
        return r < 0 ? r : count_nproc(j);
    j->spec->nproc = 1;
    return 0;
}

/* "-H host:2222" is most likely meant as a port. */
static int check_slots(struct job_reading *j) {
    uint32_t cpus = j->probes->count_cpus(j->probes->arg), nproc = j->spec->nproc;
    if (job_given(j, RUN_NPROC_PER_NODE) || nproc <= WORKERS_PER_CPU * cpus)
        return 0;
    return err_set(j->err, -EINVAL,
                   "%u workers for %u CPU%s, from HOST:%u of -H or slots= of --hostfile; "
                   "for a port: --ssh \"ssh -p %u\", or Port in ~/.ssh/config; to start so "
                   "many workers: --nproc-per-node=%u",
                   nproc, cpus, cpus == 1 ? "" : "s", nproc, nproc, nproc);
}

/* A value in a word of its own that stands where SCRIPT is missing. */
static int no_script(struct job_reading *j, int argc, char *const *argv) {
    const char *last = argv[argc - 1], *option = NULL;
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

static int read_program(struct job_reading *j, int argc, char *const *argv) {
    bool run_path = is_on(j, RUN_RUN_PATH);
    if (is_on(j, RUN_MODULE) && is_on(j, RUN_NO_PYTHON) && !run_path)
        return err_set(j->err, -EINVAL, "--module and --no-python exclude each other");
    if (j->parsed.operand >= argc)
        return no_script(j, argc, argv);
    if (argv[j->parsed.operand][0] == '\0')
        return err_set(j->err, -EINVAL, "SCRIPT is empty");
    struct job_spec *spec = j->spec;
    spec->entry = run_path                  ? JOB_ENTRY_PYTHON
                  : is_on(j, RUN_MODULE)    ? JOB_ENTRY_MODULE
                  : is_on(j, RUN_NO_PYTHON) ? JOB_ENTRY_PROGRAM
                                            : JOB_ENTRY_PYTHON;
    spec->script = xstrdup(argv[j->parsed.operand]);
    size_t n = (size_t)(argc - j->parsed.rest);
    spec->args = xcalloc(n + 1, sizeof *spec->args);
    for (size_t i = 0; i < n; i++)
        spec->args[i] = xstrdup(argv[(size_t)j->parsed.rest + i]);
    return 0;
}

static int read_std(struct job_reading *j, enum run_option row, struct std_map *ret) {
    const char *text = job_text(j, row);
    if (text == NULL || std_map_parse(text, ret) == 0)
        return 0;
    return job_bad_value(j, row,
                         "0 (none), 1 (stdout), 2 (stderr), 3 (both), or by local rank: "
                         "0:3,1:1");
}

static int read_ranks_filter(struct job_reading *j) {
    const char *s = job_text(j, RUN_LOCAL_RANKS_FILTER);
    const uint32_t n = job_counts_elsewhere(j) ? JOB_WORKERS_MAX : j->spec->nproc;
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

/* Up to a size that any file system can have. */
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

/* Splits a list at its commas; two of them are a comma in an item. As in torchrun, "" has one item,
 * which is in every line. */
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
static void read_event_log(struct job_reading *j) {
    const char *file = job_text(j, RUN_EVENT_LOG), *handler = job_text(j, RUN_EVENT_LOG_HANDLER);
    if (file != NULL && file[0] == '\0')
        file = NULL;
    if (file == NULL && handler != NULL && strcmp(handler, "console") == 0)
        file = "-";
    if (file == NULL)
        return;
    free(j->spec->event_log);
    j->spec->event_log = xstrdup(file);
}

static int read_output(struct job_reading *j) {
    const char *specs = job_text(j, RUN_LOGS_SPECS);
    if (specs != NULL && strcmp(specs, "default") != 0)
        return err_set(j->err, -ENOTSUP,
                       "--logs-specs=%s: must be default; others are plug-ins written in Python, "
                       "which muster can't load",
                       specs);
    struct job_spec *spec = j->spec;
    int r = read_std(j, RUN_REDIRECTS, &spec->redirects);
    if (r == 0)
        r = read_std(j, RUN_TEE, &spec->tee);
    if (r == 0)
        r = read_ranks_filter(j);
    if (r == 0)
        r = read_output_spool(j);
    if (r == 0)
        r = read_log_mode(j);
    if (r == 0)
        r = read_filters(j);
    if (r == 0)
        read_event_log(j);
    return r;
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

static int read_ending(struct job_reading *j) {
    double interval;
    const char *monitor = job_text(j, RUN_MONITOR_INTERVAL);
    if (monitor != NULL && (parse_python_double(monitor, &interval) < 0 || interval <= 0))
        return job_bad_value(j, RUN_MONITOR_INTERVAL, "a number of seconds above 0");
    if (j->spec->leave == JOB_LEAVE_DETACHED && j->spec->contain == JOB_CONTAIN_PIDNS)
        return err_set(j->err, -EINVAL,
                       "--leave=detached: nothing outlives a pid namespace; use another --contain "
                       "than pidns");
    return read_signals(j);
}

static int read_all(struct job_reading *j, int argc, char *const *argv) {
    int r = read_program(j, argc, argv);
    if (r == 0)
        r = options_fill(&run_options, &j->parsed, j->spec, j->err);
    if (r == 0)
        r = read_nnodes(j);
    if (r == 0)
        r = job_read_slurm(j);
    if (r == 0)
        r = job_read_starter(j);
    if (r == 0)
        r = job_read_requeue(j);
    if (r == 0)
        r = job_check_gpus_per_worker(j);
    if (r == 0)
        r = read_nproc(j);
    if (r == 0)
        r = job_read_binding(j);
    if (r == 0)
        r = job_read_rendezvous(j);
    if (r == 0)
        r = read_output(j);
    j->spec->verbose = (int)MIN2(job_value(j, RUN_VERBOSE)->times, 9u);
    if (r == 0)
        job_share_output(j);
    if (r == 0)
        r = job_read_env(j);
    return r < 0 ? r : read_ending(j);
}

static struct job_reading reading_of(char *const *envp, const struct job_probes *probes,
                                     struct strbuf *warnings, struct job_spec *spec,
                                     struct err *err) {
    return (struct job_reading){
        .probes = probes,
        .warnings = warnings,
        .spec = spec,
        .err = err,
        .visible_devices = env_get(envp, "CUDA_VISIBLE_DEVICES"),
        .share_off_env = env_get(envp, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"),
        .etcd_user_env = env_get(envp, "MUSTER_ETCD_USER"),
        .etcd_password_env = env_get(envp, "MUSTER_ETCD_PASSWORD"),
        .envp = envp,
    };
}

static void reading_fini(struct job_reading *j) {
    free(j->run_id);
    free(j->first_host);
}

static void list_given(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    size_t n = 0;
    words_free(spec->given);
    spec->given = xcalloc(run_options.n + 1, sizeof *spec->given);
    for (size_t i = 0; i < run_options.n; i++)
        if (j->parsed.values[i].times > 0 || j->parsed.values[i].from_env)
            spec->given[n++] = xstrdup(run_options.defs[i].name);
}

static void read_place(struct job_reading *j) {
    const struct place_probes probes = {
        .facts = j->probes->place_facts, .hosts = j->probes->read_hosts, .arg = j->probes->arg};
    j->place_code = place_read(j->envp, &probes, &j->spec->place, &j->place_err);
}

/* ---- a job that was read elsewhere ---- */

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

static int resolve_nproc(struct job_reading *j) {
    int r = job_value(j, RUN_NPROC_PER_NODE)->from_env ? parse_nproc(j) : 0;
    if (r == 0)
        r = count_nproc(j);
    return r < 0 ? r : check_slots(j);
}

/* What depends on this node. */
static int resolve_here(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    int r = options_fill_from_env(&run_options, &j->parsed, spec, j->err);
    list_given(j);
    read_place(j);
    if (r == 0)
        r = resolve_nproc(j);
    if (r == 0)
        r = job_check_gpus_per_worker(j);
    if (r == 0)
        r = job_resolve_binding(j);
    if (r == 0)
        r = read_output(j);
    if (r == 0)
        r = read_ending(j);
    if (r < 0)
        return r;
    job_share_output(j);
    job_read_topology(j);
    spec->workers_store = job_shares_no_store(j);
    return 0;
}

int job_options_of_head(const char *text, size_t len, char *const *envp,
                        const struct job_probes *probes, struct job_spec *ret, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf unused = {0}; /* the head has warned */
    _cleanup_(job_spec_fini) struct job_spec spec = job_spec_default;
    struct job_reading j = reading_of(envp, probes, &unused, &spec, err);
    int r = job_read(text, len, &spec, err);
    if (r < 0) {
        err_prefix(err, "the job that this agent was given");
        return r;
    }
    r = mark_given(&j);
    if (r == 0)
        r = options_from_env(&run_options, envp, &j.parsed, err);
    if (r == 0)
        r = resolve_here(&j);
    if (r < 0)
        return r;
    *ret = spec;
    spec = (struct job_spec){0};
    return 0;
}

/* ---- a command line ---- */

int job_options_read(int argc, char *const *argv, char *const *envp,
                     const struct job_probes *probes, struct strbuf *warnings, struct job_spec *ret,
                     struct err *err) {
    _cleanup_(job_spec_fini) struct job_spec spec = job_spec_default;
    _cleanup_(reading_fini) struct job_reading j = reading_of(envp, probes, warnings, &spec, err);
    int r = options_parse(&run_options, argc, argv, &j.parsed, err);
    if (r < 0)
        return r;
    if (is_on(&j, RUN_HELP))
        return JOB_OPTIONS_HELP;
    if (is_on(&j, RUN_HELP_ALL))
        return JOB_OPTIONS_HELP_ALL;
    if (is_on(&j, RUN_VERSION))
        return JOB_OPTIONS_VERSION;
    r = options_from_env(&run_options, envp, &j.parsed, err);
    if (r < 0)
        return r;
    list_given(&j);
    read_place(&j);
    r = read_all(&j, argc, argv);
    if (r < 0)
        return r;
    job_warn_of_idle_options(&j);
    job_warn_of_environment(&j, envp);
    *ret = spec;
    spec = (struct job_spec){0};
    return is_on(&j, RUN_PRINT_CONFIG) ? JOB_OPTIONS_PRINT_CONFIG : 0;
}
