/* What env_resolve() chose, for people (muster env --explain) and as JSON. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "nccl_env/rules/resolve.h"

/* NAME=VALUE lines, as env(1) prints them; only variables that are set. A value that is known only
 * at the start becomes a comment, so that the lines can be used as a file of variables. */
void env_write_plain(const struct env_result *r, struct strbuf *to);
/* For each variable: the action, its value, the reason, the source. width: columns. */
void env_write_explained(const struct env_result *r, uint32_t width, struct strbuf *to);
/* One JSON object: {"rank", "local_rank", "variables": [{"name", "value", "action", "reason",
 * "source"}], "warnings": []}. */
void env_write_json(const struct env_result *r, uint32_t rank, uint32_t local_rank,
                    struct strbuf *to);
