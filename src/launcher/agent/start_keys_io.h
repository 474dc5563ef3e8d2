/* The keys with which this node starts, and whether it needs any. */
#pragma once

#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

/* Whether nobody on another machine has to reach this node. */
bool start_is_local(const struct job_spec *spec);

/* The keys that were given (NULL: none), or else those that are found, if this node needs any.
 * Borrows nothing. 0, or a negative errno and a sentence. */
_must_use_ int start_keys(const struct job_spec *spec, const struct keyring *given,
                          struct keyring **ret, struct err *err);
