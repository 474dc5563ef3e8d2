/* Where the time of a job goes, and which rank the others wait for: samples in, findings out. Pure;
 * it knows no clock. The rules R2 to R8 are described at each function.
 *
 *     profile_infer(&job, &findings);      job: of all nodes (profile/samples.h)
 *     profile_findings_fini(&findings); */
#pragma once

#include "watchdog/profile/samples.h"
#include "watchdog/worker_signs.h"

/* What a rank does at one tick. First comes work, in the order in which the rules try it. */
enum profile_class {
    PROFILE_GC = 0,
    PROFILE_EVAL,
    PROFILE_CHECKPOINT,
    PROFILE_INIT,
    PROFILE_COMPILE,
    PROFILE_IMPORT,
    PROFILE_DATA,
    PROFILE_LOGGING,
    PROFILE_OPTIMIZER,
    PROFILE_BACKWARD,
    PROFILE_FORWARD,
    PROFILE_COMM, /* runs in torch.distributed */
    PROFILE_OTHER_WORK,
    PROFILE_START, /* no Python stack (yet) */
    /* ... and these are waits. */
    PROFILE_LATE,    /* some ranks wait, others do not */
    PROFILE_NETWORK, /* all ranks wait */
    PROFILE_DEVICE,  /* the host waits for its GPU */
    PROFILE_CLASS_COUNT,
};
#define PROFILE_FIRST_WAIT PROFILE_LATE
/* "data loading", "waits for a late rank"; in JSON "data", "late" */
extern const char *const profile_class_names[PROFILE_CLASS_COUNT];
extern const char *const profile_class_keys[PROFILE_CLASS_COUNT];

#define PROFILE_PLACE_MAX 160
struct profile_reason {
    enum profile_class cls;
    double share;                  /* of the time, 0 to 1, above the median of the other ranks */
    char place[PROFILE_PLACE_MAX]; /* "__getitem__ (loader.py:41)"; "": not one line */
};
enum profile_how {
    PROFILE_IS_LATE,  /* the others wait for it, step by step */
    PROFILE_PAUSES,   /* the same, but in few long pauses */
    PROFILE_MOST_WORK /* it waits less than the others: a pipeline's largest stage */
};
#define PROFILE_LATE_MAX 3
#define PROFILE_REASONS_MAX 2
struct profile_late {
    uint32_t rank;
    enum profile_how how;
    double share; /* of the time in which the others wait for it; PROFILE_MOST_WORK: its gap */
    double works, others_work; /* share of time in which it, and the median other, does not wait */
    uint32_t n_pauses;
    double pause_s; /* mean of those that were long enough */
    uint32_t n_reasons;
    struct profile_reason reasons[PROFILE_REASONS_MAX];
};

enum profile_limit {
    PROFILE_LIMIT_NONE = 0,
    PROFILE_LIMIT_DATA_HERE,    /* data loading in the main process: num_workers=0 */
    PROFILE_LIMIT_DATA_WORKERS, /* too few or too slow loader processes: always busy */
    PROFILE_LIMIT_DATA,         /* data loading, and its processes are not always busy */
    PROFILE_LIMIT_CPU,          /* main threads find no CPU */
    PROFILE_LIMIT_NETWORK,
    PROFILE_LIMIT_DEVICE,
};
struct profile_found_limit {
    enum profile_limit what;
    double share;
    char place[PROFILE_PLACE_MAX];
};
#define PROFILE_LIMITS_MAX 3
struct profile_row {
    uint32_t rank;
    double works, waits; /* they add up to 1 */
    uint32_t n_mostly;
    struct profile_reason mostly[2]; /* class and line with the largest shares of its time */
    const char *gap;                 /* why there is no more; borrowed from the profile; "" */
};
struct profile_findings {
    uint32_t n_ranks, n_ticks;          /* ticks at which all of these ranks were sampled */
    uint64_t span_ns;                   /* from the first of these through the last; 0: none */
    double shares[PROFILE_CLASS_COUNT]; /* of the average rank; they add up to 1, or all are 0 */
    /* Parallel efficiency is their product: mean(work) / max(work), and max(work); work is the
     * share of time in which a rank does not wait. */
    double load_balance, communication;
    uint32_t n_late;
    struct profile_late late[PROFILE_LATE_MAX]; /* the latest first */
    /* The rank with the largest z of lateness, late or not, so that weak signs of consecutive
     * windows can be added up; top_z 0: none */
    uint32_t top;
    double top_z, top_share;
    uint32_t n_limits;
    struct profile_found_limit limits[PROFILE_LIMITS_MAX];
    uint64_t begin_ns;           /* since 1970 */
    uint64_t step;               /* the last that a rank had announced then; 0: none */
    uint64_t first_step_wall_ns; /* 0: no rank was in backward or in the optimizer */
    struct attempt_start before; /* in this time; first_step_ns is not set */
    struct profile_row *rows;    /* [n_rows] of all ranks, those without samples too; owned */
    uint32_t n_rows;
    uint8_t *classes; /* [rank's index * the profile's n_ticks + tick's index] enum profile_class;
                       * owned */
};
/* No rank is named before 3 s (R6). Ticks at which a rank is absent or not read count for none. */
void profile_infer(const struct profile *p, struct profile_findings *ret);
void profile_findings_fini(struct profile_findings *f); /* frees rows and classes; the rest stays */

/* ---- the names of modules, functions and calls by which a stack is recognized ---- */

/* What a frame's names show, as bits; bits 0 to PROFILE_START are enum profile_class. */
enum {
    NAME_TRANSPARENT = 1 << 20, /* a wrapper: the frame outside of it is the leaf (R2) */
    NAME_COMM = 1 << 21,        /* a library of collectives: it waits if it sleeps (R3) */
    NAME_OVERLAPS = 1 << 22,    /* such a library that also computes: DDP, FSDP, pipelines */
    NAME_ENGINE = 1 << 23,      /* autograd's engine, whose own threads compute */
    NAME_DEVICE = 1 << 24,      /* a call that waits for the GPU */
    NAME_QUEUE = 1 << 25,       /* a loader process that waits for work */
    NAME_LIBRARY = 1 << 26,     /* not the user's own code */
    NAME_COMPILED = 1 << 27,    /* of the compiler, but only calls what was compiled */
};
unsigned profile_names_of(const struct profile_frame *f);

/* enum profile_calls of a source line, such as "    loss.item()". */
unsigned profile_calls_of(const char *line);
/* A thread of this name moves data for others: its work does not count as the rank's. */
bool profile_is_transport_thread(const char *name);
