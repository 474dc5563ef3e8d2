/* Asks the process manager that started this task how many tasks there are and on which nodes, and
 * hands the key of the job from rank 0 to all tasks. For place_probes.pmi. A PMI-1 server answers
 * once in the life of a task. */
#pragma once

#include "launcher/pmi/pmi_tasks.h"
#include "rendezvous/auth/keyring_io.h"

/* Returns as place_probes.pmi. The job's key is added to `key`, if rank 0 has OpenSSL. */
_must_use_ int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key,
                        struct place_pmi *ret, struct err *err);

/* PMIx, the process manager interface of Open MPI and jsrun: its server is asked with its own
 * library (libpmix.so.2), which is loaded in a child process with a deadline, as NVML is: nothing
 * of it remains in this process. A task can ask again in a later run.
 *
 * The child tells the server who it is, publishes a card, waits until all tasks have done so, and
 * reads the card of rank 0. The hosts of the others are what the server has recorded, without a
 * message to their nodes. At the end all wait again: a task that has gone cannot be read any more
 * (Open MPI 5.0.11: PMIx_Get then never returns). */

#define PMIX_SERVER_S 8u /* for each answer of the server */
#define PMIX_TASKS_S 60u /* until all tasks have asked: a script may prepare something first */

/* In: n, rank and own. Publishes `own`, waits for all tasks, fills in cards and run_id. Returns 0;
 * -ENOENT: variables name no server; another negative errno with a sentence. Blocks; a server that
 * does not answer is reported in less than 10 s. */
_must_use_ int pmix_read(char *const *envp, struct pmi_tasks *tasks, struct err *err);
