/* Which NCCL and which PyTorch the workers would load, from names of files and folders; nothing is
 * loaded. */
#pragma once

#include "nccl_env/facts/facts_io.h"

/* Calls each() for every folder that can contain a library: those of LD_LIBRARY_PATH, then
 * Python's, then the known ones, all below `root` ("" or a prefix). If each() returns false, it
 * stops. */
void library_folders(const char *root, const struct nccl_facts_config *config,
                     bool (*each)(void *arg, const char *folder), void *arg);
/* Fills nccl_version, nccl_path and torch_version. */
void nccl_versions_read(const char *root, const struct nccl_facts_config *config,
                        struct nccl_facts *ret);
