/* What `muster env` needs from the system: the leader's address, and the route to it. */
#pragma once

#include "base/err.h"
#include "nccl_env/facts/netif_choice.h"

/* The host of "HOST", "HOST:PORT" or "[ADDR]:PORT" as a literal address; a name is looked up, which
 * blocks for as long as the resolver needs. -EINVAL, -ENOENT with a sentence. */
_must_use_ int env_leader_address(const char *endpoint, char ret[46], struct err *err);

/* This process's environment. */
char *const *env_own(void);
