/* The result of node discovery, as bytes for another process of this program: the structs as in
 * memory, then what their pointers own: add a new pointer in snapshot_codec.c, too. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "nccl_env/facts/facts.h"
#include "topology/model/topology.h"

#define SNAPSHOT_MAX ((size_t)64 << 20)

void snapshot_encode(const struct topology *t, const struct nccl_facts *f, struct strbuf *to);
/* Both must be zeroed. 0; -EBADMSG: the data is incomplete, or exceeds a limit. */
_must_use_ int snapshot_decode(const void *data, size_t len, struct topology *t,
                               struct nccl_facts *f);
