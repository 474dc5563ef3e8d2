/* The environment with which a worker was started: it says where to ask what it does. */
#pragma once

#include "watchdog/evidence/gather_io.h"

struct gather_env {
    char *text; /* NAME=VALUE, each with its NUL; owned; NULL: it can't be read */
    size_t len;
    struct envlist given; /* by muster: what /proc does not have is there */
};
/* The caller calls gather_env_fini(). Does not block. */
void gather_env_read(const struct gather_ask *ask, const struct evidence_worker *w,
                     struct gather_env *ret);
void gather_env_fini(struct gather_env *e);
/* Borrowed; NULL: it is not set, or empty. */
const char *gather_env_get(const struct gather_env *e, const char *name);
