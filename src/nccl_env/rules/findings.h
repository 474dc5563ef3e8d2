/* What is worth a look on a node, beside the values that users set (lint.h): limits, devices that
 * are shared or missing, what a cloud wants and has not got. For resolve.c only. Pure. */
#pragma once

#include "nccl_env/rules/resolve.h"

/* One call of say() for each; a sentence without its full stop. */
void env_find(const struct env_input *in, void (*say)(void *arg, const char *text), void *arg);
