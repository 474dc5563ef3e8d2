/* What NCCL's RAS service reports about a job: its communicators, and how many collectives each
 * rank has launched. ras.c is pure; source_io.c asks for it.
 *
 *     r = source_ras(address, deadline_ns, &ras, &err);      which calls ras_read()
 *     ras_summary(&ras, &text);
 *     ras_fini(&ras);
 *
 * One answer describes the whole job. NCCL answers in JSON since 2.28.7.
 * (NCCL user guide, "RAS"; src/ras/client_support.cc of 2.28.7 to 2.30.)
 *
 * The host counts the launches. A rank with a lower count than others has not reached a collective
 * in which they wait. Sends and receives are not counted. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define RAS_ANSWER_MAX (8u << 20) /* bytes; a rank of a communicator takes about 500 */
#define RAS_SUMMARY_MAX 16384     /* bytes that ras_summary() adds at most */
#define RAS_COMMS_MAX 4096
#define RAS_RANKS_MAX 65536 /* of all communicators */
#define RAS_KINDS_MAX 8     /* kinds of collectives: NCCL counts five */
#define RAS_HOST_MAX 64
#define RAS_WORD_MAX 32

/* What a rank does that has a line of its own. */
enum ras_condition {
    RAS_FINE = 0,
    RAS_DEAD,   /* the service has given it up (after 60 s) */
    RAS_SILENT, /* its process gave no answer */
    RAS_GONE,   /* its process answers, but has no such communicator (any more) */
    RAS_INITIALIZING,
    RAS_FINALIZING,
    RAS_ABORTED,
    RAS_CONDITIONS,
};

struct ras_rank {
    uint32_t rank;           /* in its communicator */
    int32_t pid;             /* as its process sees it; -1: not known */
    char host[RAS_HOST_MAX]; /* the address of its RAS thread; "" not known */
    enum ras_condition condition;
    char error[RAS_WORD_MAX]; /* "remote process error"; "" none */
    bool missing;             /* dead, silent or gone */
    uint32_t counted;         /* 1 << kind: counts[kind] is known */
    uint64_t counts[RAS_KINDS_MAX];
};

struct ras_comm {
    uint64_t hash;
    uint32_t size; /* ranks; 0: not known */
    uint32_t n_ranks;
    struct ras_rank *ranks; /* owned; in order */
};

struct ras {
    char version[RAS_WORD_MAX]; /* of NCCL, "2.28.7"; "" not known */
    uint32_t n_kinds;
    char kinds[RAS_KINDS_MAX][RAS_WORD_MAX]; /* "AllReduce" */
    uint32_t n_comms;
    struct ras_comm *comms; /* owned */
    uint32_t n_ranks;       /* of all of these */
    uint32_t timeouts;      /* of the service itself, while it collected the answer */
};

/* Reads an answer, without the lines of the protocol before it. -EINVAL: it is not one, -E2BIG:
 * over a limit; *ret is empty then. */
_must_use_ int ras_read(const char *answer, size_t len, struct ras *ret, struct err *err);
void ras_fini(struct ras *r); /* frees what it owns; *r is empty then */

/* Adds at most RAS_SUMMARY_MAX bytes, whole lines: "communicator 0x1f (8 ranks): AllReduce: 120 in
 * ranks 0-1, 3-7; 119 in rank 2 (10.0.0.2, pid 12)". */
void ras_summary(const struct ras *r, struct strbuf *to);

/* A process of this job, known from elsewhere. */
struct ras_own {
    uint32_t rank;
    int32_t pid;
};
/* How many collectives of all kinds each of `world` ranks has launched, added up over all
 * communicators of that size (PyTorch's default group; ranks are the global ones there); at least
 * 1. 0: not known. A communicator counts if one of its processes is in `own`, and none of its ranks
 * that `own` lists is another process: else it is another job's. */
void ras_counts(const struct ras *r, uint32_t world, const struct ras_own *own, size_t n_own,
                uint64_t *ret);

/* Asks the service on this node. Each process that uses NCCL listens on the same address
 * (SO_REUSEPORT), and any of them answers for the whole job, so one node asks, not all.
 *
 * address: NCCL_RAS_ADDR of the workers. A name other than "localhost" is not
 * resolved, because a resolver can block for long. Blocks until deadline_ns (CLOCK_MONOTONIC) at
 * most. 0: the caller calls ras_fini(). -ECONNREFUSED: no worker offers the service; -ETIMEDOUT;
 * -ENOTSUP: NCCL before 2.28.7; -EINVAL: the address, or not an answer of RAS; others from the
 * kernel. err has the reason as a sentence, and *ret is empty then. */
_must_use_ int source_ras(const char *address, uint64_t deadline_ns, struct ras *ret,
                          struct err *err);
