/* The command line of "muster run" on a real machine: job_options.h with this process's
 * environment, CPUs, GPUs and random numbers, and its messages. */
#pragma once

#include "cli/options/job_options.h"
#include "launcher/job/job.h"

/* -1: *ret is the job to run, the caller frees it, and log level and warnings are done. Otherwise
 * the exit status: help, version or configuration were printed (0), or an error was (2). */
_must_use_ int run_line_read(int argc, char **argv, struct job_spec *ret);

/* This process and machine, for others who read such options. */
extern const struct job_probes run_line_probes;
