/* Turns a command line and an environment into the user's settings: checked, with defaults filled
 * in. Pure: facts about the machine come through struct job_probes.
 *
 *     r = job_options_read(argc, argv, environ, &probes, &warnings, &spec, &err);
 */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"

/* More defaults, in addition to job_spec_default. The same as torchrun's. */
/* torchrun's keep-alive, if only one of its two keys is given. */
#define JOB_KEEP_ALIVE_INTERVAL_NS (5 * NS_PER_S)
#define JOB_KEEP_ALIVE_ATTEMPTS 3
#define JOB_C10D_PORT 29400
#define JOB_STATIC_PORT 29500
#define JOB_STAMP_MAX 32 /* bytes, with the NUL */

/* What a text file is for. */
enum job_file {
    JOB_FILE_SECRET, /* only its first line counts */
    JOB_FILE_ENV,
    JOB_FILE_HOSTS,
};

struct job_probes {
    /* The number of CPUs on which this process may run, >= 1. */
    uint32_t (*count_cpus)(void);
    /* The number of GPUs that workers would see. Returns 0, or a negative errno with a sentence. */
    int (*count_gpus)(uint32_t *ret, struct err *err);
    bool (*has_gpus)(void);
    /* The end of a run id that muster makes: "1126-1138-7c3f1a", local month and day, hour and
     * minute, and six random hexadecimal digits. */
    void (*stamp)(char ret[JOB_STAMP_MAX]);
    /* The working directory, malloc'ed; NULL: not known. */
    char *(*cwd)(void);
    /* A file's text, malloc'ed. Returns 0, or a negative errno with a sentence. */
    int (*read_file)(enum job_file what, const char *path, char **ret, size_t *ret_len,
                     struct err *err);
    /* This process is the agent for all tasks of a launcher on this node: takes their CPUs, too,
     * before any are counted. Returns how many it has now; 0: nothing is changed. */
    unsigned (*serve_node)(const struct place *place);
    /* The name of the file system that nodes share and that has the folder, or would have it, if
     * this user can meet others there; NULL: there is none. NULL: not known. */
    const char *(*shared_folder)(const char *path);
    /* Whether there is something at this path. NULL: not known. */
    bool (*is_there)(const char *path);
    struct place_probes place;
};

/* Outcomes other than a job to run. */
enum job_options_outcome {
    JOB_OPTIONS_HELP = 1,
    JOB_OPTIONS_HELP_ALL,
    JOB_OPTIONS_VERSION,
    JOB_OPTIONS_PRINT_CONFIG, /* *ret is filled in */
};

/* 0: *ret is the job; the caller must free it. Or one of the outcomes above. Or a negative errno
 * with a sentence: exit status 2. Each warning is a line in `warnings`. */
_must_use_ int job_options_read(int argc, char *const *argv, char *const *envp,
                                const struct job_probes *probes, struct strbuf *warnings,
                                struct job_spec *ret, struct err *err);

/* The job as the muster that starts this agent over ssh has sent it (job_write()), with what
 * depends on this node: PET_NAME there of options that the user has not given, the number of
 * workers, the place in Slurm and in the network. 0; or a negative errno with a sentence. */
_must_use_ int job_options_of_head(const char *text, size_t len, char *const *envp,
                                   const struct job_probes *probes, struct job_spec *ret,
                                   struct err *err);

/* Writes the job for an agent on another host, as one JSON object. */
void job_write(const struct job_spec *spec, struct strbuf *out);
/* Reads it into *ret, which has the defaults. -EINVAL, -E2BIG with a sentence; the caller frees
 * *ret in any case. */
_must_use_ int job_read(const char *text, size_t len, struct job_spec *ret, struct err *err);

/* The job as one JSON object, a line for each member. The keys of muster-files(5) do not change. */
void job_print_config(const struct job_spec *spec, struct strbuf *out);
