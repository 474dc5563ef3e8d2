/* What slurm.conf says, where that matters before srun runs. Pure: the text comes in.
 *
 *     slurm_conf_binds_nothing(text)      its tasks are never bound to CPUs
 *     slurm_conf_munge_socket(text)       where munged listens */
#pragma once

#include <stdbool.h>

/* Whether TaskPlugin is task/none. False: it is another, or is not written there, or the file
 * includes others, which may say more. Names and values have no case; of several lines the last
 * counts. slurm.conf(5) */
bool slurm_conf_binds_nothing(const char *text);
/* The path of "socket=" in AuthInfo, which the caller frees; NULL: it is the library's default. */
char *slurm_conf_munge_socket(const char *text);
