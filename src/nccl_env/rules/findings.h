/* Warnings about a node, besides those about values that users set (lint.h): limits, devices that
 * are shared or missing, what a cloud needs and does not have. For resolve.c only. Pure. */
#pragma once

#include "nccl_env/rules/resolve.h"

/* Calls say() once for each, with a sentence without its full stop. */
void env_find(const struct env_input *in, void (*report)(void *arg, const char *text), void *arg);
