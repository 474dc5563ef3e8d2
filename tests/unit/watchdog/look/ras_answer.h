/* Answers of NCCL's RAS service, made up in its form: what NCCL 2.28.7 and newer write for a job in a given state. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

struct answer_rank {
    uint64_t all_reduces, broadcasts;
    int init_state, async_error;
    int pid; /* 0: 100 and the rank */
    bool finalized, aborted;
    bool missing, dead, left; /* no answer; given up; its process answers, but not for this communicator */
};

#define ANSWER_RANKS_MAX 32
struct answer {
    uint32_t ranks; /* of the one communicator */
    struct answer_rank at[ANSWER_RANKS_MAX];
    uint32_t others; /* communicators in which all is well, with the same ranks */
    uint32_t timeouts;
};

/* All ranks run, with these counts. */
static inline struct answer answer_of(uint32_t ranks, uint64_t all_reduces, uint64_t broadcasts) {
    struct answer a = {.ranks = ranks};
    for (uint32_t i = 0; i < ranks; i++)
        a.at[i] = (struct answer_rank){.all_reduces = all_reduces, .broadcasts = broadcasts};
    return a;
}

void answer_json(const struct answer *a, struct strbuf *to);
