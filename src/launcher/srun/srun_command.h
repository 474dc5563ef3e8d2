/* Whether muster starts its own step of Slurm, and by which command and environment. Pure.
 *
 *     r = srun_choose(spec->starter, &place, &given, &nodes, &err);
 *     if (nodes > 0) … srun_argv(&config), srun_env(&config, &env) … srun_run()
 *
 * One task on each node is muster itself, with the same arguments: there it finds that it is a task
 * of a step (launcher/place/place.h), and that a head waits for its word (MUSTER_HEAD). */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"
#include "launcher/job/job.h"
#include "launcher/place/place.h"

/* *ret_nodes: of how many nodes is the step that muster starts; 0: none, and this process starts
 * workers on this node, as without Slurm. 0, or -EINVAL with a sentence: it can't be as asked.
 *
 * By itself (JOB_STARTER_AUTO) muster starts a step where this process is in none, the job has
 * several nodes, and the user has not said where or how nodes meet, or that there is one. */
_must_use_ int srun_choose(enum job_starter wanted, const struct place *place,
                           const struct place_given *given, uint32_t *ret_nodes, struct err *err);

struct srun_command {
    uint32_t nodes;
    const char *program; /* muster, as a path that all nodes have */
    bool is_torchrun;    /* by that name it is `muster run` without the word */
    char *const *args;   /* all that followed "run", NULL-terminated */
    const struct place *place;
    bool binds_nothing; /* Slurm binds no task: srun would warn of --cpu-bind=none */
    char *const *envp;  /* this process's */
};

/* srun's words, NULL-terminated; freed with words_free(). */
_must_use_ char **srun_argv(const struct srun_command *config);

/* srun's environment: this one, without what srun would take for options of the step (srun(1),
 * INPUT ENVIRONMENT VARIABLES), the layout of the job's own tasks, and the user's own key, for
 * which starter_key_to_env() sets the job's. *ret must be empty; the caller owns it. */
void srun_env(const struct srun_command *config, struct envlist *ret);
