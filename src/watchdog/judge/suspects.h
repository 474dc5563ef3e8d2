/* Compares what all nodes saw of a job that seems to hang, and names who the others wait for. Pure.
 *
 *     suspects_find(&in, &found);
 *     suspects_line(&found, &line);        for a terminal
 *     suspects_text(&found, &text);        hang.txt
 *     suspects_json(&found, &json);        hang.json
 *     for (i < found.n_suspects) found.suspects[i].rank, .node ...
 *     suspects_fini(&found);
 *
 * Ranks are grouped by the Python stack of their main thread, by what it waits for in the kernel
 * and by its state. The largest group waits if it is more than half; the rest are suspects. If
 * there is no such group, coarser ones are tried: the same stack, then the same line of the user's
 * own code. Still none: no suspect, and all groups are shown.
 *
 * Stronger than the groups are the reasons of enum suspect_reason up to SUSPECT_STEPS; only the
 * strongest that is there names suspects. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"
#include "watchdog/evidence/evidence.h"
#include "watchdog/judge/hang.h"

#define SUSPECTS_NODES_MAX 65536
#define SUSPECTS_KEPT 64 /* in the list; n_all counts the others, too */
#define SUSPECTS_PARENTS_MAX 65
#define SUSPECTS_WHERE_MAX (PYSTACK_FUNCTION_MAX + 144)
#define SUSPECTS_LINE_MAX 1024              /* of suspects_line() */
#define SUSPECTS_TEXT_MAX (4 * 1024 * 1024) /* of suspects_text(); what is over is left out */
#define SUSPECTS_JSON_MAX (32 * 1024 * 1024)

struct suspects_node {
    const char *name;                /* for messages; borrowed */
    const struct evidence *evidence; /* borrowed; NULL: none came */
    const char *missing;             /* why none came; borrowed; NULL: it did not answer in time */
};

/* All borrowed. */
struct suspects_input {
    uint32_t n_ranks;         /* world size, at most HANG_RANKS_MAX */
    const uint32_t *nodes_of; /* of each rank, its node's number. Never NULL */
    uint32_t n_nodes;
    const struct suspects_node *nodes;
    /* Of each rank: it had not moved for long when rank `failed` failed. NULL: none failed.
     * Otherwise the still_ns of a worker must be that at the end of the gathering (gather_io.h),
     * and of workers that have ended only those in `signs` count as ended with 0. */
    const bool *waited;
    uint32_t failed;
    /* The job, its generation ("1.2"), and when the nodes were asked (since 1970): text and JSON
     * begin with these, but not the text for an operator. NULL: they don't */
    const char *job, *generation;
    uint64_t wall_ns;
    const char *what; /* the verdict's sentence, struct hang_update.text; may be NULL */
    uint64_t quiet_ns;
    const struct hang_suspect *signs; /* the verdict's own suspects: ended, busy */
    uint32_t n_signs;
    const bool *chosen; /* of each rank; others are left out; NULL: all are */
    /* For an operator, and the job may be well: the text has the groups, with what is
     * missing, and the nodes without evidence. */
    bool on_request;
};

enum suspect_reason {
    SUSPECT_ENDED = 1,   /* exited with 0 while others wait for other ranks */
    SUSPECT_UNENDED,     /* others have exited with 0, and no rank waits for those */
    SUSPECT_STOPPED,     /* T */
    SUSPECT_ABSENT,      /* has no connection to the store, others have */
    SUSPECT_COLLECTIVES, /* has enqueued fewer than others */
    SUSPECT_STEPS,       /* has announced fewer */
    SUSPECT_UNMOVED,     /* others moved when a worker failed, and this one did not */
    SUSPECT_CHILD,       /* waits elsewhere, and so does a child of it: a data loader */
    SUSPECT_ELSEWHERE,   /* not where the largest group waits */
    SUSPECT_THREAD,      /* most have a thread that waits in torch.distributed, this one has not */
    SUSPECT_BUSY, /* by its signs: it does something while others wait; if nothing else shows one */
};

struct suspect {
    uint32_t rank, node; /* node: its number in the input */
    int32_t pid;         /* 0: not known */
    enum suspect_reason reason;
    /* "rank 2 (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s" */
    char text[384];
};

/* Ranks that are at the same place. */
struct suspects_group {
    uint32_t n;     /* how many */
    uint32_t first; /* its lowest rank */
    /* "all_reduce from backward (train.py:76)", "futex()", "" */
    char where[SUSPECTS_WHERE_MAX];
};

struct suspects {
    const struct suspects_input *in; /* borrowed */
    bool majority;                   /* groups[0] waits for the others */
    uint32_t n_groups;
    struct suspects_group *groups; /* owned; the largest first */
    uint32_t *group_of;            /* of each rank; UINT32_MAX: no evidence, or ended; owned */
    uint32_t n_all;                /* suspects */
    uint32_t n_suspects;           /* of them in the list, by rank */
    struct suspect *suspects;      /* owned */
    uint32_t n_debugged;           /* ranks at a debugger's prompt, or that wait for one */
    uint32_t debugged;             /* the first of them */
    uint32_t n_missing;            /* ranks without evidence that have not ended or reacted */
    uint32_t n_reacted;
    /* Ranks that wait for other ranks: in a collective, for the job's store, on a connection to
     * another rank, or stopped. Without one, it is not known that the job hangs: it may wait for
     * work from outside. */
    uint32_t n_together;
    bool any_ended;     /* with 0 */
    bool any_at_store;  /* connected to it: only then one that is not stands out */
    uint32_t n_at_exit; /* ranks that hang at the exit of their Python, where others have ended */
    uint64_t used_ns;   /* by any main thread since it last moved, at most */
    /* Of each rank; owned. The evidence is borrowed from the input; NULL: none */
    const struct evidence_worker **worker_of;
    bool *ended;           /* with 0 */
    uint64_t *collectives; /* by NCCL RAS; 0: not known */
    bool *reacted;         /* it failed, or waited and moved then: where it is now proves nothing */
    bool *is_suspect;      /* also those that are not in the list */
    /* The first ranks that have children, with which those of a rank are compared */
    uint32_t n_parents, parents[SUSPECTS_PARENTS_MAX];
};

/* Ranks of an evidence that are not of its node are ignored. */
void suspects_find(const struct suspects_input *in, struct suspects *ret);
void suspects_fini(struct suspects *s);

extern const char *const suspect_reason_names[]; /* "stopped", "elsewhere" */

/* One line without a newline: "ranks 0-1,3 wait in all_reduce from backward (train.py:76); rank 2
 * (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s". */
void suspects_line(const struct suspects *s, struct strbuf *ret);
void suspects_text(const struct suspects *s, struct strbuf *ret);
/* One JSON object. */
void suspects_json(const struct suspects *s, struct strbuf *ret);

/* The innermost frame of the user's own code: not of Python's library, of an installed package, or
 * frozen. If there is none, the innermost. NULL: no stack. Borrowed. */
const struct pystack_frame *suspects_user_frame(const struct evidence_stack *stack);
/* "0-1,3": ascending numbers, folded; at most `max` bytes, then "..." */
void suspects_ranges(const uint32_t *ranks, uint32_t n, size_t max, struct strbuf *ret);

/* ---- native stacks of suspects, which are read right before these are ended ---- */

#define SUSPECTS_NATIVE_MAX 16 /* further ones are left out, and counted */

struct suspects_native {
    uint32_t rank;
    const char *node;                     /* borrowed */
    const struct evidence_worker *worker; /* only native_stack and gaps; borrowed; NULL: none */
    const char *missing;                  /* why there is none; borrowed */
};

/* The part of hang.txt, with a blank line before it. */
void suspects_native_text(const struct suspects_native *list, uint32_t n, struct strbuf *ret);
/* A member of the object in hang.json, after others: ,"native_stacks":[{"rank":2,"node":"b",
 * "pid":12,"stack":"thread 12:\n  pause\n","gaps":[]}]; stack and pid can be null. */
void suspects_native_json(const struct suspects_native *list, uint32_t n, struct strbuf *ret);
