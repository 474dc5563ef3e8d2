/* What the readers of the two forms share. */
#pragma once

#include "watchdog/sources/ras.h"

/* Each returns NULL, or a negative errno, if a limit is reached or memory is not enough. */
struct ras_comm *ras_add_comm(struct ras *r, uint64_t hash);
struct ras_rank *ras_add_rank(struct ras *r, struct ras_comm *c, uint32_t rank);
_must_use_ int ras_add_tally(struct ras_comm *c, uint32_t kind, uint64_t count, uint32_t ranks);
_must_use_ int ras_add_process(struct ras *r, const struct ras_process *p);
/* The number of a kind of collective, which is added if it is new; RAS_KINDS_MAX: no room. */
uint32_t ras_kind(struct ras *r, const char *name, size_t len);

_must_use_ int ras_read_json(const char *answer, size_t len, struct ras *ret, struct err *err);
_must_use_ int ras_read_text(const char *answer, size_t len, struct ras *ret, struct err *err);
