/* The keys with which this node starts, and whether it needs any. */
#pragma once

#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

/* Whether nobody on another machine has to reach this node. */
bool start_is_local(const struct job_spec *spec);

/* Takes the key out of the environment, in any case, and reads those of files, if this node needs
 * any. To be called before this process forks. Borrows nothing. 0, or a negative errno and a
 * sentence. */
_must_use_ int start_keys(const struct job_spec *spec, struct keyring **ret, struct err *err);
