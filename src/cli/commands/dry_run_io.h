/* "muster run --dry-run": what each worker of this node would be started with; in a
 * head (spec->start_nodes), each of the first node. Starts nothing. */
#pragma once

#include "launcher/job/job.h"

/* Prints a command for each worker, as a shell takes it, and over ssh before these what runs on
 * each host. Returns the exit status. */
_must_use_ int dry_run(const struct job_spec *spec, char *const *envp);
