/* The row of signs of one worker, from the node that sees them to the verdict of the leader: filled
 * in by look/signs_io.c, sent as a row of WIRE_SIGNS (rendezvous/protocol/wire.c), read by
 * watchdog/judge. And what that concludes, and what the user wants. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Flags of a row. */
enum {
    SIGN_MOVED = 1 << 0,   /* its main thread has run since the last second, and not only spun */
    SIGN_STOPPED = 1 << 1, /* T: a signal stopped it */
    SIGN_TRACED = 1 << 2,  /* t: a debugger stopped it */
    SIGN_SPINS = 1 << 3,   /* its main thread runs all the time, at an unchanged place */
    SIGN_BUSY = 1 << 4,    /* it, its other threads or its children use more CPU than waiters do */
    SIGN_BYTES = 1 << 5,   /* it, or a child, moves more bytes than waiters do */
    SIGN_GPU = 1 << 6,     /* its GPU's links move bytes */
    SIGN_ENDED = 1 << 7,   /* it has exited with 0 */
    /* It can wait for other ranks in NCCL, and the links of its GPU are watched: without SIGN_GPU
     * they are silent. A worker that spins without this flag may compute in a long kernel. */
    SIGN_GPU_SEEN = 1 << 8,
    SIGN_ASKS = 1 << 9,  /* it waits for input from a person: a debugger's prompt, input() */
    SIGN_HELD = 1 << 10, /* its output is not read, because the job's own output is not read */
    /* What else of it moves could not be checked for a while: it may do something. With SIGN_MOVED:
     * nor could its main thread, which is only assumed to move. */
    SIGN_UNSEEN = 1 << 11,
    SIGN_ALL = (1 << 12) - 1,
};

/* What a worker has announced (sd_notify(3)). */
struct worker_announced {
    uint64_t step;     /* the last; 0: none */
    uint64_t alive_ns; /* when it last announced something; 0: never */
    uint64_t limit_ns; /* for how long it may be silent; 0: it announced no limit */
    uint64_t since_ns; /* for how long it is */
};

struct worker_signs {
    uint32_t rank; /* global */
    uint32_t flags;
    uint64_t still_ns;    /* since its main thread last moved; at first: since its start */
    bool moved_once;      /* since its start; false: there was no beat of it yet */
    uint64_t step;        /* the last MUSTER_STEP that it reported; 0: none */
    uint64_t deadline_ns; /* from its last WATCHDOG=1 (or WATCHDOG_USEC) on; 0: it announced none */
    uint64_t since_announced_ns; /* since that; meaningful if deadline_ns is not 0 */
};

/* --hang-action: what is done when the job hangs. AUTO is RESTART where --max-restarts allows one,
 * else REPORT. */
enum hang_action {
    HANG_ACTION_AUTO = 0,
    HANG_ACTION_RESTART,
    HANG_ACTION_REPORT, /* reports it, and touches nothing */
    HANG_ACTION_OFF,    /* nothing is watched */
};
struct hang_limits {     /* 0: off, each; judge/hang.h describes them */
    uint64_t still_ns;   /* --hang-still */
    uint64_t timeout_ns; /* --hang-timeout */
    uint64_t report_ns;  /* --hang-report */
};
struct hang_settings {
    enum hang_action action;
    struct hang_limits limits;
    uint64_t evidence_timeout_ns; /* --evidence-timeout; 0: no evidence is taken */
};

/* How long the workers of an attempt took to begin training, from samples once a second, of the
 * average rank. Exact to about two seconds. */
struct attempt_start {
    uint64_t import_ns; /* Python imported modules */
    uint64_t init_ns;   /* torch.distributed made its groups */
    uint64_t load_ns;   /* a checkpoint was loaded */
    /* From the start of the workers to the first tick at which a rank is in backward or in the
     * optimizer; 0: there was none yet */
    uint64_t first_step_ns;
};

/* Of the workers of the job. */
enum watchdog_state {
    WATCHDOG_NONE = 0, /* none run, or nothing is watched */
    WATCHDOG_STARTING, /* most have not begun to work: there was no beat yet (judge/hang.h) */
    WATCHDOG_OK,
    WATCHDOG_QUIET, /* most have not moved for a while */
    WATCHDOG_HUNG,  /* for longer than a limit; until a beat, or until they are stopped */
    WATCHDOG_STATE_COUNT,
};
