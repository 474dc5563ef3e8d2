/* From a command line and an environment to what the user asked for: checked, with defaults filled
 * in. Pure: what must be looked up on the machine comes through struct job_probes.
 *
 *     r = job_options_read(argc, argv, environ, &probes, &warnings, &spec, &err);
 */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"

/* What the user did not set, besides job_spec_default. As torchrun has it. */
#define JOB_STATIC_TIMEOUT_NS (900 * NS_PER_S)
/* torchrun's keep-alive, when only one of its two keys is given. */
#define JOB_KEEP_ALIVE_INTERVAL_NS (5 * NS_PER_S)
#define JOB_KEEP_ALIVE_ATTEMPTS 3
#define JOB_C10D_PORT 29400
#define JOB_ENV_FILE_MAX ((size_t)1 << 20)
#define JOB_STATIC_PORT 29500

struct job_probes {
    /* CPUs this process may run on, >= 1. */
    uint32_t (*count_cpus)(void *arg);
    /* GPUs that workers would see. 0, or a negative errno with a sentence. */
    int (*count_gpus)(void *arg, uint32_t *ret, struct err *err);
    uint64_t (*random)(void *arg);
    /* The working directory, malloc'ed; NULL: not known. */
    char *(*cwd)(void *arg);
    /* The first line of a small file, malloc'ed. 0, or a negative errno with a sentence. */
    int (*read_secret)(void *arg, const char *path, char **ret, struct err *err);
    void *arg;
    /* A whole text file of at most JOB_ENV_FILE_MAX bytes, malloc'ed; NULL: none can be read. */
    int (*read_env_file)(void *arg, const char *path, char **ret, struct err *err);
    /* Whether there are GPUs, by a quick check. NULL: there are none. */
    bool (*has_gpus)(void *arg);
};

/* Outcomes that are no job to run. */
enum job_options_outcome {
    JOB_OPTIONS_HELP = 1,
    JOB_OPTIONS_VERSION,
    JOB_OPTIONS_PRINT_CONFIG, /* *ret is filled */
};

/* 0: *ret is the job, the caller frees it. A named outcome. Or a negative errno with a sentence:
 * exit status 2. `warnings` gets one line for each. */
_must_use_ int job_options_read(int argc, char *const *argv, char *const *envp,
                                const struct job_probes *probes, struct strbuf *warnings,
                                struct job_spec *ret, struct err *err);

/* The job as JSON lines, {"name":value} each: for people and tests. */
void job_print_config(const struct job_spec *spec, struct strbuf *out);
