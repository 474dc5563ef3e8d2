/* Asks the process manager that started this task for tasks and nodes, and hands the job's key from
 * rank 0 to all tasks. For place_probes.pmi. A PMI-1 server answers once in the life of a task. */
#pragma once

#include "launcher/pmi/pmi.h"
#include "rendezvous/auth/keyring_io.h"

/* Returns as place_probes.pmi. The job's key is added to `key`, if rank 0 has OpenSSL. */
_must_use_ int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key,
                        struct place *ret, char **ret_run_id, struct err *err);

/* ==== PMI-1 ====
 *
 * The client's side. It publishes this task's card and reads those of all tasks.
 *
 * Each line has words NAME=VALUE, separated by blanks; the first is "cmd=". The client sends one
 * line and waits for the answer, in which "rc", if there, is 0.
 *
 *     the line sent                                    the answer
 *     cmd=init pmi_version=1 pmi_subversion=1          response_to_init
 *     cmd=get_my_kvsname                               my_kvsname kvsname=
 *     cmd=put kvsname= key=muster-RANK value=CARD      put_result
 *     cmd=barrier_in                                   barrier_out, from all tasks
 *     cmd=get kvsname= key=muster-0, -1, …             get_result value=CARD
 *     cmd=finalize                                     finalize_ack
 *
 * After "finalize" the server closes the connection for the life of the task; without it, the end
 * of a task is a crash to Hydra. Sources: flux-core, rfc 13; MPICH, src/pmi (wire protocol 1.1) and
 * hydra's pmip_pmi_v1.c. */

/* Bytes of a line with its newline: what a get_result of a card needs, and the rest of its words.
 * PMIU_MAXLINE of MPICH is 1,024. */
#define PMI1_LINE_MAX 2048

/* tasks: n, rank and own are filled in. until_ns: one deadline for all of it. -EPROTO with a
 * sentence: an answer is not the one that is expected; -ETIMEDOUT, and *ret_waits: because other
 * tasks are late; -ECONNRESET: the server has closed the connection. */
_must_use_ int pmi1_ask(int fd, struct pmi_tasks *tasks, uint64_t until_ns, bool *ret_waits,
                        struct err *err);

/* ==== PMIx ====
 *
 * Of Open MPI and jsrun: its server is asked with its own library (libpmix.so.2), which is
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
