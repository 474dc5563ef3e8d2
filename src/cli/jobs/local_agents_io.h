/* The agents of this machine, with what their jobs report about themselves. */
#pragma once

#include "base/err.h"
#include "cli/jobs/ps_text.h"
#include "io/loop.h"

#define LOCAL_AGENTS_TIMEOUT_NS (2 * NS_PER_S)

struct operator_auth;

/* Those of this user, for root of all users, with heads, oldest first. loop, auth: to ask their
 * jobs, or NULL. *ret: local_agents_free(). 0, or a negative errno with a sentence. */
_must_use_ int local_agents_list(struct loop *loop, struct operator_auth *auth, struct ps_row **ret,
                                 size_t *ret_n, struct err *err);
void local_agents_free(struct ps_row *rows, size_t n);
