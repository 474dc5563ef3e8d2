/* From a job to its exit status: splits this process into a guardian and an agent, and runs the
 * agent. It is the last step of `muster run`. */
#pragma once

#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

/* envp: what the workers inherit; given: keys, NULL: none; both borrowed, as the job is. Only the
 * agent keeps keys. Returns only in the agent. The result is the exit status for the process (128+n
 * after a signal); failures have been reported. */
int job_start(const struct job_spec *spec, char *const *envp, struct keyring *given);

/* Whether no other machine has to reach this node. */
bool start_is_local(const struct job_spec *spec);
