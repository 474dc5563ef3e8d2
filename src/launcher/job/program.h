/* What this node runs, in the form that it sends to the leader when it joins, so that another job
 * under the same run id is detected. Pure.
 *
 *     struct rdzv_program p; program_of(spec, &p);     p.shown: "train.py --lr=... --resume ..."
 *
 * Names are compared, folders are not: a script can be in another folder on each host. Arguments
 * A step of Slurm that has as many agents as the group has nodes is all of the group: then its name
 * counts, too, so that two jobs of one script, with the same run id and endpoint, don't mix.
 * Arguments may contain secrets, so only the names of options are shown; the name of "-x5" is its
 * first letter. */
#pragma once

#include "launcher/job/job.h"
#include "rendezvous/protocol/messages.h"

void program_of(const struct job_spec *spec, struct rdzv_program *ret);
