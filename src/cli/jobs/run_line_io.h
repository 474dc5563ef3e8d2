/* The command line of "muster run" on a real machine: job_options.h with this process's
 * environment, CPUs, GPUs and random numbers, and its messages. */
#pragma once

#include "cli/jobs/run_keys_io.h"
#include "cli/options/job_options.h"
#include "launcher/job/job.h"

/* -1: *ret is the job to run; the caller must free it; the log level is set, and warnings are
 * printed; `keys` has the key of the tasks that a process manager started. Otherwise returns the
 * exit status: help, version or configuration was printed (0), or an error (2). */
_must_use_ int run_line_read(int argc, char **argv, struct run_keys *keys, struct job_spec *ret);

/* Probes of this process and machine, for other readers of such options. */
extern const struct job_probes run_line_probes;
