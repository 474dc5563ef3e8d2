/* Reads struct nccl_facts of this node, or below a root prefix (for tests: DMI files, conf files,
 * plugins). Loads neither CUDA nor NCCL: a version is read from the library's file name and bytes,
 * those of Python packages from their metadata folders. Limits and /dev/shm are those of this
 * process; for a recorded tree they are not known. */
#pragma once

#include "nccl_env/facts/facts.h"

struct nccl_facts_config {
    const char *sysroot; /* NULL: "/" */
    char *const *set;    /* NAME=VALUE, as --env has them, before those of envp; or NULL */
    char *const *envp;   /* HOME, NCCL_*, LD_LIBRARY_PATH, VIRTUAL_ENV */
    const char *python;  /* full path of the workers' python, for torch and NCCL; or NULL */
};
/* Always fills *ret; what can't be read counts as absent. */
void nccl_facts_read(const struct nccl_facts_config *config, struct nccl_facts *ret);
/* Reads the limits again: those of this process as it is now. */
void nccl_limits_read(struct nccl_facts *facts);
