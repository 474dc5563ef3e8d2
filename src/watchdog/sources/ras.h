/* What NCCL's status service (RAS) says of a job: its communicators, and how many collectives each
 * rank has launched. Pure: reads both forms of the answer, and writes it in few lines for people.
 * ras_io.h asks for it.
 *
 *     _cleanup_(ras_fini) struct ras ras = {0};
 *     r = ras_read(answer, len, &ras, &err);
 *     ras_summary(&ras, &text);
 *
 * One answer describes the whole job: the service's threads of all processes that share a
 * communicator are connected with each other. The JSON form (NCCL 2.28.7 and newer) has every rank;
 * the text form (2.24 and newer) has only totals, and names ranks that differ from most others.
 * (NCCL user guide, "RAS"; the forms are those of src/ras/client_support.cc of 2.24 to 2.30.)
 *
 * A count is that of the launches by the host. A rank whose count is lower than that of others has
 * not come to a collective in which they wait. Sends and receives are not counted. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define RAS_ANSWER_MAX (1u << 20) /* bytes of an answer that are read */
#define RAS_SUMMARY_MAX 16384     /* bytes that ras_summary() adds at most */
#define RAS_COMMS_MAX 4096
#define RAS_RANKS_MAX 65536 /* of all communicators */
#define RAS_KINDS_MAX 8     /* kinds of collectives: NCCL counts five */
#define RAS_HOST_MAX 64
#define RAS_WORD_MAX 32

enum ras_state {
    RAS_STATE_UNKNOWN = 0,
    RAS_STATE_NOCOMM, /* its process answers, but has no such communicator (any more) */
    RAS_STATE_INIT,
    RAS_STATE_RUNNING,
    RAS_STATE_FINALIZE,
    RAS_STATE_ABORT,
};

struct ras_rank {
    uint32_t rank;           /* in its communicator */
    int32_t pid;             /* as its process sees it; -1: not known */
    char host[RAS_HOST_MAX]; /* the address of its RAS thread; "" not known */
    enum ras_state state;
    char error[RAS_WORD_MAX]; /* "Remote process error"; "" none */
    bool missing;             /* its process gave no answer for this communicator */
    bool dead;                /* the service has given it up (after 60 s) */
    uint32_t counted;         /* 1 << kind: counts[kind] is known */
    uint64_t counts[RAS_KINDS_MAX];
};

/* How many ranks have launched how many collectives of a kind, where ranks differ. */
struct ras_tally {
    uint32_t kind;
    uint64_t count;
    uint32_t ranks;
};

struct ras_comm {
    uint64_t hash;
    uint32_t size;      /* ranks; 0: not known */
    uint32_t n_missing; /* also those that are not named */
    uint32_t n_ranks;
    struct ras_rank *ranks; /* owned; of the text form only those that it names */
    uint32_t n_tallies;
    struct ras_tally *tallies; /* owned; by kind, the most frequent first; none: all are equal */
};

/* A process that gave no answer at all; of the text form. */
struct ras_process {
    int32_t pid;
    char host[RAS_HOST_MAX];
    bool dead;
};

struct ras {
    char version[RAS_WORD_MAX]; /* of NCCL, "2.28.7"; "" not known */
    bool whole;                 /* every rank is here: the JSON form */
    uint32_t n_kinds;
    char kinds[RAS_KINDS_MAX][RAS_WORD_MAX]; /* "AllReduce" */
    uint32_t n_comms_told; /* communicators of the job, also those that are not in comms */
    uint32_t n_comms;
    struct ras_comm *comms;    /* owned; of the text form only those with something wrong */
    uint32_t n_silent, n_dead; /* processes */
    uint32_t n_processes;
    struct ras_process *processes; /* owned; those of n_silent and n_dead that were named */
    uint32_t timeouts;             /* of the service itself, while it asked */
};

/* Reads an answer of either form, without the lines of the protocol before it. -EINVAL: it is
 * neither, -E2BIG: over a limit, -ENOMEM; *ret is empty then. */
_must_use_ int ras_read(const char *answer, size_t len, struct ras *ret, struct err *err);
void ras_fini(struct ras *r); /* frees what it owns; *r is empty then */

/* Adds at most RAS_SUMMARY_MAX bytes, whole lines: "communicator 0x1f (8 ranks): AllReduce: 120 in
 * 7 ranks; 119 in rank 2 (10.0.0.2, pid 12)". */
void ras_summary(const struct ras *r, struct strbuf *to);

/* A process of this job that is known otherwise. */
struct ras_own {
    uint32_t rank;
    int32_t pid;
};
/* How many collectives of all kinds each of `world` ranks has launched, in all communicators of
 * that size added up (PyTorch's default group; ranks are the global ones there); at least 1. 0: not
 * known. The text form tells only kinds in which ranks differ; numbers of one answer can be
 * compared. A communicator in which a rank of `own` has only other processes is another job's; of
 * the JSON form, one must be confirmed. Returns of how many ranks it is known. */
uint32_t ras_counts(const struct ras *r, uint32_t world, const struct ras_own *own, size_t n_own,
                    uint64_t *ret);
