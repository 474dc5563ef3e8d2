/* Asks the process manager that started this task for tasks and nodes, and hands the job's key from
 * rank 0 to all tasks. For place_probes.pmi. A PMI-1 server answers once in the life of a task. */
#pragma once

#include "launcher/pmi/pmi.h"
#include "rendezvous/auth/keyring_io.h"

/* Returns as place_probes.pmi. The job's key is added to `key`, if rank 0 has OpenSSL. */
_must_use_ int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key,
                        struct place *ret, char **ret_run_id, struct err *err);

/* PMIx, of Open MPI and jsrun: its server is asked with its own library (libpmix.so.2), which is
 * loaded in a child process with a deadline, as NVML is. A task can ask again in a later run.
 *
 * The child publishes a card, waits until all tasks have done so, and reads the card of rank 0. The
 * hosts of the others are what the server has recorded, without a message to their nodes. At the
 * end all wait again: a task that has gone cannot be read any more (Open MPI 5.0.11: PMIx_Get then
 * never returns). */

#define PMIX_SERVER_S 8u /* for each answer of the server */
#define PMIX_TASKS_S 60u /* until all tasks have asked: a script may prepare something first */

/* In: n, rank and own. Fills in cards and run_id. Returns 0; -ENOENT: variables name no server;
 * another negative errno with a sentence. Blocks, less than 10 s if the server does not answer. */
_must_use_ int pmix_read(char *const *envp, struct pmi_tasks *tasks, struct err *err);
