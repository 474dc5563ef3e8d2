/* Whether muster starts its own step of Slurm, and by which command and environment. Pure.
 *
 *     r = starter_choose(spec->starter, &place, &said, &nodes, &err);
 *     if (r == STARTER_SRUN) … starter_argv(&config), starter_env(&config, &env) … head_run()
 *
 * One task on each node is muster itself, with the same arguments: there it finds that it is a task
 * of a step (launcher/slurm/place.h), and that a head waits for its word (MUSTER_HEAD). */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"
#include "launcher/job/job.h"
#include "launcher/slurm/fill.h"

/* How the head tells the agents where it is, by their environment. muster takes these out of the
 * workers' (worker_env.h: all MUSTER_*). */
/* "10.0.0.1,fd77::1:4711": addresses and port; over ssh "fd:3": a connected socket */
#define STARTER_HEAD_ENV "MUSTER_HEAD"
#define STARTER_FD_PREFIX "fd:"
#define STARTER_TOKEN_ENV "MUSTER_HEAD_TOKEN" /* HEAD_TOKEN_CHARS hexadecimal digits */
/* The key of the job (head_key_io.h): as auth_key.h writes it, or STARTER_NO_KEY. muster takes it
 * out of its own environment, too, when it begins. */
#define STARTER_KEY_ENV "MUSTER_HEAD_KEY"
#define STARTER_NO_KEY "none"
/* Over ssh: "1" on the node where the others meet, "0" on these. What --rdzv-conf says of is_host
 * comes first. Two hosts may have one address (names of one machine, NAT), so addresses don't tell.
 */
#define STARTER_FIRST_ENV "MUSTER_HEAD_FIRST"
/* The python that would run the workers on the head's machine. */
#define STARTER_PYTHON_ENV "MUSTER_HEAD_PYTHON"
/* Over ssh: how many words behind "run" are the head's own, before the user's. */
#define STARTER_WORDS_ENV "MUSTER_HEAD_WORDS"
/* What the job has asked for, and the step's own variables can't tell: its tasks on each node, and
 * the user's SLURM_CPUS_PER_TASK, which programs read. */
#define STARTER_TASKS_ENV SLURM_HEAD_TASKS_ENV
#define STARTER_CPUS_ENV "MUSTER_STEP_CPUS_PER_TASK"

enum starter_choice {
    STARTER_HERE = 1, /* this process starts workers on this node, as without Slurm */
    STARTER_SRUN,     /* it starts a step of *ret_nodes nodes */
};

/* Returns a choice, or -EINVAL with a sentence: what was asked for can't be.
 *
 * By itself (JOB_STARTER_AUTO) muster starts a step where this process is in none, the job has
 * several nodes, and the user has not said where or how nodes meet, or that there is one. */
_must_use_ int starter_choose(enum job_starter wanted, const struct slurm_place *place,
                              const struct slurm_said *said, uint32_t *ret_nodes, struct err *err);

struct starter_config {
    uint32_t nodes;
    const char *program; /* muster, as a path that all nodes have */
    bool is_torchrun;    /* by that name it is `muster run` without the word */
    char *const *args;   /* all that followed "run", NULL-terminated */
    const struct slurm_place *place;
    bool binds_nothing; /* Slurm binds no task: srun says so in a line, if it is told not to */
    char *const *envp;  /* this process's */
    const char *head, *token; /* values of the two variables */
    const char *python;       /* NULL: none is needed, or there is none here */
};

/* srun's words, NULL-terminated; freed with words_free(). */
_must_use_ char **starter_argv(const struct starter_config *config);

/* srun's environment: this one, without what srun would take for options of the step (srun(1),
 * INPUT ENVIRONMENT VARIABLES), what says how the job's own tasks are laid out, and the user's own
 * key, instead of which head_key_to_env() adds the job's. *ret must be empty; the caller owns it.
 */
void starter_env(const struct starter_config *config, struct envlist *ret);
