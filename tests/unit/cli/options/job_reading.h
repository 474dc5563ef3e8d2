/* One command line of muster run and its environment, read as a job: for the tests of its reader. */
#pragma once

#include "cli/options/job_options.h"
#include "rig/unit.h"

#define WORDS_MAX 64

/* The environment of task 2 of a step of Slurm on four nodes, one task on each; and of a batch script on four. */
#define STEP                                                                                                      \
    "SLURM_JOB_ID=28 SLURM_CLUSTER_NAME=c1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-4] SLURM_STEP_NUM_NODES=4 " \
    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=1(x4) SLURM_NNODES=4 SLURM_NTASKS=4 SLURM_NODEID=2 "        \
    "SLURM_PROCID=2 SLURM_LOCALID=0 "
#define BATCH                                                                                           \
    "SLURM_JOB_ID=28 SLURM_CLUSTER_NAME=c1 SLURM_JOB_NODELIST=node[1-4] SLURM_NNODES=4 SLURM_NTASKS=4 " \
    "SLURM_TASKS_PER_NODE=1(x4) SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 "

/* A machine of six CPUs without GPUs, at which it is always the same time. */
#define READING_STAMP "1126-1138-7c3f1a"
#define READING_PROBES                                                                                           \
    .count_cpus = reading_cpus, .count_gpus = reading_gpus, .has_gpus = reading_no_gpus, .stamp = reading_stamp, \
    .serve_node = reading_no_more_cpus

static inline uint32_t reading_cpus(void) { return 6; }

static inline int reading_gpus(uint32_t *ret, struct err *err) {
    *ret = 0;
    return 0;
}

static inline bool reading_no_gpus(void) { return false; }

static inline void reading_stamp(char ret[JOB_STAMP_MAX]) { (void)strcpy(ret, READING_STAMP); }

static inline unsigned reading_no_more_cpus(const struct place *place) { return 0; }

struct reading {
    struct job_spec spec;
    struct strbuf warnings;
    struct err err;
    int r;
};

static inline void reading_fini(struct reading *g) {
    job_spec_fini(&g->spec);
    strbuf_fini(&g->warnings);
}

static inline void split_words(char *text, char **out, int *n) {
    for (char *w = strtok(text, " "); w != NULL; w = strtok(NULL, " ")) {
        cr_assert_lt(*n, WORDS_MAX);
        out[(*n)++] = w;
    }
}

/* env: "NAME=VALUE NAME=VALUE"; line: the words after `run`. Words are parted by blanks. */
static inline struct reading read_job(const char *env, const char *line, const struct job_probes *probes) {
    char env_text[1024], words[1024], run[] = "run";
    cr_assert_lt(snprintf(env_text, sizeof env_text, "%s", env), (int)sizeof env_text);
    cr_assert_lt(snprintf(words, sizeof words, "%s", line), (int)sizeof words);
    char *envp[WORDS_MAX + 1] = {NULL}, *argv[WORDS_MAX + 1] = {run};
    int n_env = 0, argc = 1;
    split_words(env_text, envp, &n_env);
    split_words(words, argv, &argc);
    struct reading g = {0};
    g.r = job_options_read(argc, argv, envp, probes, &g.warnings, &g.spec, &g.err);
    return g;
}
/* Checks what --print-config shows of a job: "key=value key=value". A value has no blanks, a text no quotes, and the
 * texts of a list have single ones. */
static inline void assert_shown(const char *line, const struct job_spec *spec, const char *wanted) {
    _cleanup_(strbuf_fini) struct strbuf all = {0};
    char words[1024], *rest = words;
    job_print_config(spec, &all);
    cr_assert_lt(snprintf(words, sizeof words, "%s", wanted), (int)sizeof words);
    for (const char *word; (word = strsep(&rest, " ")) != NULL;) {
        size_t key_len = strcspn(word, "=");
        _cleanup_(freep) char *key = xasprintf("\n  \"%.*s\": ", (int)key_len, word);
        _cleanup_(strbuf_fini) struct strbuf value = {0};
        const char *s = strstr(strbuf_text(&all), key);
        cr_assert_not_null(s, "there is no %s", word);
        s += strlen(key);
        for (bool list = *s == '['; *s != '\n'; s++)
            if (*s == '"' && list)
                strbuf_add_char(&value, '\'');
            else if (*s != ' ' && *s != '"' && !(*s == ',' && s[1] == '\n'))
                strbuf_add_char(&value, *s);
        cr_expect_str_eq(strbuf_text(&value), word + key_len + 1, "%s: %s, not %s", line, strbuf_text(&value), word);
    }
}

#define READ(...)                                                      \
    _cleanup_(reading_fini) struct reading g = read_line(__VA_ARGS__); \
    cr_assert_geq(g.r, 0, "%s: %s", #__VA_ARGS__, g.err.text)
