/* Compares lists of interfaces and HCAs in users' values with those that exist. For lint.c only.
 * Pure. */
#pragma once

#include "nccl_env/lint/lint.h"

struct linting {
    const char *name, *value, *where;
    const struct topology *t; /* NULL: not known */
    void (*report)(void *arg, const char *text);
    void *arg;
};
/* "NAME=VALUE (where): …" */
void lint_report(const struct linting *z, const char *fmt, ...) _printf_(2, 3);

void lint_socket_ifname(const struct linting *z);
void lint_gloo_ifname(const struct linting *z);
void lint_ib_hca(const struct linting *z);
void lint_gid_index(const struct linting *z);
