/* Several tasks of one Slurm step on a node (srun --ntasks-per-node=4): the first is the agent, and
 * the others hold until the agent has ended, and end with its status. If they ended at once,
 * srun --wait would kill the step.
 *
 *     the first task                          the others
 *     hold_claim(name, &hold, &err);          exit(hold_wait(name, n_others, me,
 *                                                        HOLD_START_NS));
 *     status = job_start(…);
 *     hold_tell(hold, status);
 *
 * They meet in a small file of the run directory (rendezvous/operate/registry_io.h). The agent's
 * processes hold a lock on it (flock(2)), which the kernel releases when the last of them is gone;
 * the status is written into it at the end. Without a lock and a status the agent was killed.
 *
 * A step can have several runs, one after the other (a script with two lines "muster run"), and its
 * tasks reach the next at different times. So the file stays until every task has left every run
 * that began in it. It has a line "begin" and a line "status N" for each run, and a line "left ID"
 * whenever a task has left one: the next run of a task is the one after those it has left.
 *
 * slurmstepd and srun signal every task. One that holds ignores all signals but SIGKILL, because
 * the agent ends the job. */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define HOLD_NAME_MAX 240
/* How long the others wait for the first task: its program can be on a slow file system. */
#define HOLD_START_NS (60 * NS_PER_S)
/* Their status if the agent left none: the program is not to blame. EX_TEMPFAIL of sysexits.h */
#define HOLD_EXIT_LOST 75

/* The file's name: of a run and a node of it. Bytes that no file name should have become '_'. */
void hold_name(const char *run_id, uint32_t node_id, char ret[HOLD_NAME_MAX]);

/* Begins a run. *ret_fd (close-on-exec) is for hold_tell(). 0, or a negative errno and why. */
_must_use_ int hold_claim(const char *name, int *ret_fd, struct err *err);
/* The last call of the agent. Takes ownership of the descriptor; -1 is fine. */
void hold_tell(int fd, int status);

/* Blocks, and ignores all signals from then on. n_others: how many tasks of this node hold; the
 * last of them removes the file. me: which of them this is, SLURM_LOCALID. Returns the exit status,
 * and reports why if there is none from the agent. */
_must_use_ int hold_wait(const char *name, uint32_t n_others, uint32_t me, uint64_t start_ns);
