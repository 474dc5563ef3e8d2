/* Requests to an arbiter, and its answers, as plain data; arbiter_io.h has the guarantees. */
#pragma once

#include "base/util.h"
#include "rendezvous/protocol/messages.h"

enum arbiter_kind {
    ARBITER_READ = 1, /* the current state */
    ARBITER_CLAIM,    /* epoch, leader, idle: claim this epoch, if no agent has claimed it */
    /* epoch, leader: a READ, which also changes the beat if the epoch is still ours */
    ARBITER_BEAT,
    /* epoch, leader, outcome, reason: closes the job; claims `epoch`, which no agent leads */
    ARBITER_CLOSE,
    /* epoch, leader: it no longer leads, and no worker of this or an earlier epoch runs or ever
     * will. Claims the next epoch without a leader; the one after it can be claimed at once */
    ARBITER_VACATE,
    ARBITER_KIND_COUNT,
};

struct arbiter_request {
    enum arbiter_kind kind;
    uint32_t epoch;
    struct rdzv_peer leader; /* the claimant, and its address */
    bool idle;               /* CLAIM: as in the record */
    enum outcome outcome;
    char reason[RDZV_REASON_MAX];
};

enum arbiter_result {
    ARBITER_OK = 1, /* `record` is valid as of `started_ns` or later; CLAIM: won; CLOSE: done */
    /* CLAIM: `record` is of another agent, at least as high, or the close. CLOSE, VACATE: another
     * agent has claimed a higher epoch, or closed the job with another outcome */
    ARBITER_LOST,
    ARBITER_UNREACHABLE, /* nothing is known; `text`: what was tried, and why it failed */
    /* It can be reached, but data that was there is gone or can't be read: `text`. `record`: what
     * is in its place now; epoch 0: nothing */
    ARBITER_RUINED,
    ARBITER_RESULT_COUNT,
};

struct arbiter_record {
    uint32_t epoch;          /* the latest claimed; 0: none yet */
    struct rdzv_peer leader; /* of that epoch */
    /* differs from read to read while the leader lives; compare it only for equality */
    uint64_t beat;
    bool vacant; /* no agent leads, and nothing runs for which a new leader would have to wait */
    /* no group is formed in this epoch, and no worker of it or an earlier one runs or ever will:
     * the winner of the next epoch has nothing to wait for */
    bool idle;
    bool closed; /* the job is over: */
    enum outcome outcome;
    char reason[RDZV_REASON_MAX];
};

struct arbiter_answer {
    struct arbiter_request request; /* as it was asked */
    uint64_t started_ns;            /* when it was asked, our clock */
    enum arbiter_result result;
    struct arbiter_record record; /* not with UNREACHABLE */
    /* UNREACHABLE, RUINED: for people. Else: "", or a part that failed (a beat on a full disk),
     * which is logged */
    char text[RDZV_REASON_MAX / 4];
};

/* READ and BEAT are answered within this, or UNREACHABLE; CLAIM and CLOSE too. */
#define ARBITER_TIMEOUT_NS (5 * NS_PER_S)
/* How long an agent waits for a better answer, a lease at most: a user may be moving a directory.
 * Not if another job has begun there. */
#define ARBITER_RUIN_NS (5 * NS_PER_S)
static inline uint64_t arbiter_ruin_ns(const struct arbiter_answer *a, uint64_t lease_ns) {
    bool others = a->record.epoch > 0;
    return others ? 0 : MIN2(lease_ns, ARBITER_RUIN_NS);
}
/* The reason with which the job then ends; the answer's text completes the sentence. */
#define ARBITER_RUIN_TEXT \
    "the arbiter's data of this job is gone or damaged, so no agent can lead the job: %s"
/* The limit of pending requests; further ones are answered with UNREACHABLE. */
#define ARBITER_REQUESTS_MAX 8
