/* A folder that replaces "/": a synthetic tree from tools/make_tree.py, a recorded one, or what a test writes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TREE_PATH_MAX 4096

struct tree {
    char root[TREE_PATH_MAX]; /* "": none */
};

/* Each makes a new folder; the test fails if that is not possible. */
void tree_new(struct tree *t);
/* With one CPU per NUMA node: only the devices matter, and files take time. */
void tree_preset(struct tree *t, const char *preset);
/* With this many cores in each NUMA node. */
void tree_machine(struct tree *t, const char *preset, unsigned cores, unsigned smt);
/* Unpacks an archive of shared/topologies, without its top folder, into the folder `under` ("": the root). Returns
 * false and makes nothing if the archive is missing. CPUs and NUMA nodes are left out. */
bool tree_recorded(struct tree *t, const char *archive, const char *under);
/* Removes the folder and its contents; does nothing if there is none. */
void tree_remove(struct tree *t);

/* The path is relative to the root of the tree. An existing file is replaced; folders are made. */
void tree_write(const struct tree *t, const char *path, const char *text);
void tree_write_bytes(const struct tree *t, const char *path, const void *bytes, size_t len);
void tree_link(const struct tree *t, const char *path, const char *target);
void tree_delete(const struct tree *t, const char *path);
void tree_pipe(const struct tree *t, const char *path);

/* Runs a program from PATH to its end, and returns its exit status, or -1. */
int tree_run(const char *const argv[]);
