/* All ranks in a ring of TCP connections, and the sum of a vector over them.
 *
 * Each rank listens, and stores its address under the key "ring/RANK" in the store. It connects to
 * the next rank, and the previous rank connects to it. A sum is the usual ring all-reduce: every
 * rank sends and receives 2 (size - 1) / size of the vector. The order of additions depends only on
 * the number of ranks, and all ranks get the same bits. */
#pragma once

#include <stddef.h>

#include "muster/store.h"

struct ring {
    unsigned rank, size;
    int next, prev;  /* sockets; -1 in a ring of one */
    int timeout_ms;  /* how long a peer may neither send nor receive */
    float *received; /* one part of the vector */
    size_t received_n;
    char error[256]; /* why the last failed call failed */
};

/* store is used only during the call, and may be NULL for a ring of one. 0, or -1 with r->error. */
int ring_open(struct ring *r, struct muster_store *store, unsigned rank, unsigned size,
              int timeout_ms);
/* v becomes the sum of all ranks' v; n must be the same on all. 0, or -1 with r->error: a peer is
 * gone or silent, and the ring can't be used any more. */
int ring_sum(struct ring *r, float *v, size_t n);
void ring_close(struct ring *r);
