/* An environment as a list that can be changed: "NAME=value" strings as execve(2) takes them.
 * Pure: never this process's own.
 *
 *     _cleanup_(envlist_fini) struct envlist env = {0};
 *     envlist_copy(&env, envp);
 *     envlist_setf(&env, "RANK", "%u", rank);
 *     execve(path, argv, envlist_items(&env));
 */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct envlist {
    char **items; /* owned, NULL-terminated once anything was set */
    size_t n, cap;
};

void envlist_fini(struct envlist *e);
/* Adds all of envp (NULL-terminated, may be NULL). Of a name that is there twice the first counts,
 * as with getenv(3); entries without "=" are left out. */
void envlist_copy(struct envlist *e, char *const *envp);
/* Sets or replaces; keeps the place of a name that is there. */
void envlist_set(struct envlist *e, const char *name, const char *value);
void envlist_setf(struct envlist *e, const char *name, const char *fmt, ...) _printf_(3, 4);
/* Removes one name, or all names that begin so. Names that are not there are fine. */
void envlist_unset(struct envlist *e, const char *name);
void envlist_unset_prefix(struct envlist *e, const char *prefix);
/* NULL when it is not set. Borrowed: valid until the next change. */
const char *envlist_get(const struct envlist *e, const char *name);
/* Never NULL; NULL-terminated. Borrowed: valid until the next change. */
char *const *envlist_items(const struct envlist *e);

/* The same look-up in a plain environment (may be NULL); borrowed from it. */
const char *env_get(char *const *envp, const char *name);
