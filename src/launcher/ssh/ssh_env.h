/* Which variables of the head agents on other hosts get: --export. Pure.
 *
 *     r = ssh_env("ALL,NCCL_DEBUG=INFO", envp, &env, &err);
 *
 * Items, separated by commas, as those of srun's --export (srun(1)), and PREFIX*:
 *
 *     ALL           all but those that belong to this machine, this login or this job of Slurm
 *     NONE          nothing, if it is alone
 *     NAME          this one, if it is set, also if ALL leaves it out
 *     PREFIX*       all whose names begin so, the same
 *     NAME=VALUE    this value (which can have no comma)
 *
 * An empty item is none. Of two that give a variable a value, the later counts. What the relay's
 * own login has and none of these names stays as it is there. */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"

/* names: NULL is ALL. *ret must be empty; the caller owns it. -EINVAL: what is wrong with names. */
_must_use_ int ssh_env(const char *names, char *const *envp, struct envlist *ret, struct err *err);
/* Takes out what an agent that is started on this machine, but not by Slurm, must not see. */
void ssh_env_leave_slurm(struct envlist *env);
