/* Asks the process manager that started this task how many tasks there are and on which nodes, and
 * hands the key of the job from rank 0 to all tasks. For place_probes.pmi. A PMI-1 server answers
 * once in the life of a task. */
#pragma once

#include "launcher/place/place.h"
#include "rendezvous/auth/keyring_io.h"

/* Returns as place_probes.pmi. The job's key is added to `key`, if rank 0 has OpenSSL. */
_must_use_ int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key,
                        struct place_pmi *ret, struct err *err);
