/* Reads from /proc the facts for place_read(), and finds a folder that nodes share. No file system
 * is asked what it is: one that nodes share may not answer. */
#pragma once

#include "launcher/place/place.h"

#define SLURM_CGROUP_MAX 4096
#define SLURM_TITLE_MAX 256

/* The texts to which `facts` points. */
struct place_here {
    struct place_facts facts;
    char cgroup[SLURM_CGROUP_MAX], stepd[SLURM_TITLE_MAX], parent[17], ancestor[17];
};

/* What can't be read is not known. */
void place_here_read(struct place_here *ret);

/* Whether the settings of this cluster bind no task to CPUs (place_files.h). They are read where
 * the environment names them (SLURM_CONF), else in /etc/slurm; false: that can't be told. */
bool slurm_binds_nothing(char *const *envp);
/* Where munged listens by the same settings, for the caller to free; NULL: they do not say it. */
char *slurm_munge_socket(char *const *envp);

/* The name of the file system that nodes share and that has the folder, or would have it, if this
 * user can meet others there: folder_is_usable(). NULL: there is none. A static text. */
const char *shared_folder(const char *path);
/* Whether a folder is this user's alone, or can be made. Another user's of the same name is common
 * where a team has one folder for all. */
bool folder_is_usable(const char *path);
