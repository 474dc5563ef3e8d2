/* Which NCCL and which PyTorch the workers would load, from names of files and folders; nothing is
 * loaded. */
#pragma once

#include "nccl_env/facts/facts_io.h"

/* Folders of Python's packages, below the root. They are listed once, because a folder of a shared
 * file system can be slow to list. */
#define PACKAGE_FOLDERS_MAX 64
struct package_folders {
    char *list[PACKAGE_FOLDERS_MAX]; /* owned */
    uint32_t n;
};
void packages_find(const char *root, const struct nccl_facts_config *config,
                   struct package_folders *ret);
void packages_fini(struct package_folders *p);

/* Calls each() for every folder that can contain a library: those of LD_LIBRARY_PATH, then
 * Python's, then the known ones, all below `root` ("" or a prefix). */
void library_folders(const char *root, const struct nccl_facts_config *config,
                     const struct package_folders *packages,
                     void (*each)(void *arg, const char *folder), void *arg);

/* NCCL's library in one folder. Begin with {0}; call nccl_library_see() with each name in it, then
 * nccl_library_take(). */
struct nccl_library {
    char name[64]; /* "": none */
    uint32_t version;
};
void nccl_library_see(struct nccl_library *l, const char *name);
/* Fills nccl_version and nccl_path (below the root, too), if no folder before has filled them. */
void nccl_library_take(const struct nccl_library *l, const char *folder, struct nccl_facts *ret);
/* Fills torch_version. */
void torch_version_read(const struct package_folders *packages, struct nccl_facts *ret);
