/* The agents of this machine, with what their jobs report about themselves. */
#pragma once

#include "base/err.h"
#include "cli/jobs/ps_text.h"
#include "io/loop.h"

/* How long each agent may take to answer. */
#define LOCAL_AGENTS_TIMEOUT_NS (2 * NS_PER_S)

struct operator_auth;

/* Lists the agents and heads of this user, for root those of all users, oldest first. loop, auth:
 * to ask their jobs; NULL: they are not asked. *ret must be freed with local_agents_free(). Returns
 * 0, or a negative errno with a sentence: a run directory can't be used. */
_must_use_ int local_agents_list(struct loop *loop, struct operator_auth *auth, struct ps_row **ret,
                                 size_t *ret_n, struct err *err);
void local_agents_free(struct ps_row *rows, size_t n);
