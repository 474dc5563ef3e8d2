/* What an arbiter is asked, and what it answers: plain data, which the pure machines send and take.
 * Who is asked is arbiter.h, which says what is promised. */
#pragma once

#include "base/util.h"
#include "rendezvous/protocol/messages.h"

enum arbiter_kind {
    ARBITER_READ = 1, /* what is so now */
    ARBITER_CLAIM,    /* epoch, leader, idle: make it so, if nobody has claimed that epoch */
    ARBITER_BEAT,     /* epoch, leader: a READ; and the beat is moved on where it is still ours */
    ARBITER_CLOSE,    /* epoch, leader, outcome, reason: the last word; claims `epoch` for nobody */
    /* epoch, leader: it leads no more, and no worker of this epoch or of any before it runs or ever
     * will; claims the next epoch for nobody, and the one after that may be claimed at once */
    ARBITER_VACATE,
    ARBITER_KIND_COUNT,
};

struct arbiter_request {
    enum arbiter_kind kind;
    uint64_t id; /* of the asker's; comes back */
    uint32_t epoch;
    struct rdzv_peer leader; /* the claimant, and where it is reached */
    bool idle;               /* CLAIM: as in the record */
    enum outcome outcome;
    char reason[RDZV_REASON_MAX];
};

enum arbiter_result {
    ARBITER_OK = 1, /* `record` is so, as of `started_ns` or later; CLAIM: won; CLOSE: done */
    /* CLAIM: `record` names an epoch as high, of another, or the close; CLOSE, VACATE: a higher
     * epoch was claimed by another, or the job was closed with another outcome (record.closed) */
    ARBITER_LOST,
    ARBITER_UNREACHABLE, /* nothing is known; `text` says what was tried and why not */
    /* It can be reached, and what has once been seen there is not there any more, or nobody can
     * read it: removed, or changed by others; `text` says what. `record` is what others have put
     * in its place; epoch 0: nothing. */
    ARBITER_RUINED,
    ARBITER_RESULT_COUNT,
};

struct arbiter_record {
    uint32_t epoch;          /* the latest claimed; 0: none yet */
    struct rdzv_peer leader; /* of it */
    /* of it: differs from read to read while the leader lives; compare for equality only */
    uint64_t beat;
    bool vacant; /* nobody leads, and nothing runs that a new leader has to wait for */
    /* its leader gathers nodes, and forms no group in this epoch: no worker of it or of any before
     * it runs or ever will. So who wins the next has nothing to wait for */
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
    /* UNREACHABLE, RUINED: for people. OK: "", or what did not work all the same (a beat on a full
     * disk) */
    char text[RDZV_REASON_MAX / 4];
};

/* READ and BEAT are answered within this, or UNREACHABLE; CLAIM and CLOSE too. */
#define ARBITER_TIMEOUT_NS (5 * NS_PER_S)
/* Whoever is answered with RUINED waits so long, but no longer than a lease, for a better answer:
 * somebody may be moving a directory. Not where others lead in its place already. */
#define ARBITER_RUIN_NS (5 * NS_PER_S)
static inline uint64_t arbiter_ruin_ns(const struct arbiter_answer *a, uint64_t lease_ns) {
    bool others = a->record.epoch > 0;
    return others ? 0 : MIN2(lease_ns, ARBITER_RUIN_NS);
}
/* With which a job ends then, as a sentence that goes on with the answer's text. */
#define ARBITER_RUIN_TEXT "the arbiter's data of this job is gone, nobody can lead it any more: %s"
/* At most so many requests are under way; more are answered UNREACHABLE. */
#define ARBITER_REQUESTS_MAX 8
