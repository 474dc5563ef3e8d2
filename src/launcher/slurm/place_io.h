/* Reads from /proc what slurm_place_read() and the choice of a folder need. No file system is asked
 * what it is: one that nodes share may not answer. */
#pragma once

#include "launcher/slurm/place.h"

#define SLURM_CGROUP_MAX 4096
#define SLURM_TITLE_MAX 256

/* The texts to which `facts` points. */
struct slurm_here {
    struct slurm_facts facts;
    char cgroup[SLURM_CGROUP_MAX], stepd[SLURM_TITLE_MAX], parent[17];
};

/* What can't be read is not known. */
void slurm_here_read(struct slurm_here *ret);

/* The name of the file system that nodes share and that has the folder, if this user can write
 * there; NULL: it is another one, or that is not known. A static text. */
const char *shared_folder(const char *path);
