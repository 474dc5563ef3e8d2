/* Shared by job_options.c (the job) and job_rendezvous.c (how its nodes meet) only. */
#pragma once

#include "cli/job_options.h"
#include "cli/options_table.h"

struct job_reading {
    struct options_parsed parsed;
    const struct job_probes *probes;
    struct strbuf *warnings;
    struct job_spec *spec; /* what is read so far */
    struct err *err;
    /* of the environment; NULL when not set */
    const char *visible_devices; /* CUDA_VISIBLE_DEVICES */
    const char *prefix_template; /* TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE */
    const char *shutdown_env;    /* TORCH_ELASTIC_SHUTDOWN_TIMEOUT */
};

/* The option's value, its default, or NULL. */
const char *job_text(const struct job_reading *j, enum run_option row);
/* By the user, on the command line or in the environment. */
bool job_given(const struct job_reading *j, enum run_option row);
/* Fills the error with "--name=value: must be …" and returns -EINVAL. */
int job_bad_value(struct job_reading *j, enum run_option row, const char *must);

/* Backend, endpoint, run id, node rank and all times but the shutdown's. Needs the numbers of
 * nodes. */
_must_use_ int job_read_rendezvous(struct job_reading *j);
