/* The agents of this machine, with what their jobs report about themselves. */
#pragma once

#include "base/err.h"
#include "cli/jobs/operator_auth_io.h"
#include "cli/jobs/ps_text.h"

/* Those of this user, for root of all users, with heads, oldest first. auth: to ask their
 * jobs, or NULL. *ret: local_agents_free(). 0, or a negative errno with a sentence. */
_must_use_ int local_agents_list(struct operator_auth *auth, struct ps_row **ret, size_t *ret_n,
                                 struct err *err);
/* Asks one's job for its state: operator_ask(). */
_must_use_ int local_agents_ask(struct operator_auth *auth, const struct ps_row *row,
                                struct operator_reply *ret);
void local_agents_free(struct ps_row *rows, size_t n);
