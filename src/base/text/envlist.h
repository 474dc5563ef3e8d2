/* An environment as a list that can be changed: "NAME=value" strings, as execve(2) takes them.
 * Pure: it never reads or changes the environment of this process.
 *
 *     _cleanup_(envlist_fini) struct envlist env = {0};
 *     envlist_copy(&env, envp);
 *     envlist_setf(&env, "RANK", "%u", rank);
 *     execve(path, argv, envlist_items(&env)); */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct envlist {
    char **items; /* owned; NULL-terminated once something is set */
    size_t n, cap;
};

void envlist_fini(struct envlist *e);
/* Adds all of envp (NULL-terminated, may be NULL). If a name occurs twice, the first counts, as
 * with getenv(3). Entries without "=" are left out. */
void envlist_copy(struct envlist *e, char *const *envp);
/* Adds "NAME=value", whose name is new, and owns it. */
void envlist_add(struct envlist *e, char *item);
/* Sets or replaces a value. A name that exists keeps its position. */
void envlist_set(struct envlist *e, const char *name, const char *value);
void envlist_setf(struct envlist *e, const char *name, const char *fmt, ...) _printf_(3, 4);
/* Remove one name, or all names with a prefix. Names that are not set are ignored. */
void envlist_unset(struct envlist *e, const char *name);
void envlist_unset_prefix(struct envlist *e, const char *prefix);
/* Removes a name, and overwrites its value in memory: a secret. */
void envlist_forget(struct envlist *e, const char *name);
/* NULL if it is not set. Borrowed: valid until the next change. */
const char *envlist_get(const struct envlist *e, const char *name);
/* Never NULL; NULL-terminated. Borrowed: valid until the next change. */
char *const *envlist_items(const struct envlist *e);

/* The same look-up in a plain environment (may be NULL). The result is borrowed from it. */
const char *env_get(char *const *envp, const char *name);
