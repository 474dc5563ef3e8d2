/* A folder that stands for "/": a synthetic tree of tools/make_tree.py, a recorded one, or what a test writes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TREE_PATH_MAX 4096

struct tree {
    char root[TREE_PATH_MAX]; /* "" none */
};

/* Each makes a fresh folder; a test fails where that does not work. */
void tree_new(struct tree *t);
/* With one CPU per NUMA node: devices are what matters, and files take time. */
void tree_preset(struct tree *t, const char *preset);
/* With that many cores in each NUMA node. */
void tree_machine(struct tree *t, const char *preset, unsigned cores, unsigned smt);
/* An archive of shared/topologies, its own top folder cut off, put into the folder `under` ("" the root). False, and
 * nothing made, where the archive is absent. CPUs and NUMA nodes are left out. */
bool tree_recorded(struct tree *t, const char *archive, const char *under);
/* With its contents; does nothing where there is none. */
void tree_remove(struct tree *t);

/* The path is from the root of the tree. What is there is replaced; folders are made. */
void tree_write(const struct tree *t, const char *path, const char *text);
void tree_write_bytes(const struct tree *t, const char *path, const void *bytes, size_t len);
void tree_link(const struct tree *t, const char *path, const char *target);
void tree_delete(const struct tree *t, const char *path);
void tree_pipe(const struct tree *t, const char *path);

/* Runs a program found in PATH to its end: its exit status, or -1. */
int tree_run(const char *const argv[]);
