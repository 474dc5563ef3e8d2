/* The result of node discovery, as bytes that one process of this program sends to another: the
 * structs as they are in memory, then the data that their pointers own. It is never stored. Pure.
 *
 * A member of these structs that owns something must be added in snapshot_codec.c. */
#pragma once

#include "base/text/strbuf.h"
#include "nccl_env/facts/facts.h"
#include "topology/model/topology.h"

#define SNAPSHOT_MAX ((size_t)64 << 20)

void snapshot_encode(const struct topology *t, const struct nccl_facts *f, struct strbuf *to);
/* Both must be zeroed. 0; -EBADMSG: the data is incomplete, or exceeds a limit. */
_must_use_ int snapshot_decode(const void *data, size_t len, struct topology *t,
                               struct nccl_facts *f);
