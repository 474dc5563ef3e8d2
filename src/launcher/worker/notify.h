/* The messages that a worker can send to the agent, in the form of sd_notify(3): a datagram with
 * lines VARIABLE=VALUE. Pure; notify_io.h has the socket. */
#pragma once

#include "base/util.h"

#define NOTIFY_BYTES_MAX 4096 /* of a datagram; longer ones are ignored */

struct notify_message {
    bool any;        /* at least one of these */
    bool safe_point; /* MUSTER_SAFE_POINT=1: if it is stopped now, the job loses no work */
    bool alive;      /* WATCHDOG=1 */
    bool has_step, has_limit;
    uint64_t step;     /* MUSTER_STEP=N: it has ended this step */
    uint64_t limit_ns; /* WATCHDOG_USEC=N, in ns: how long it may be silent; 0: no limit any more */
};

/* Unknown variables and lines without a good value are ignored, and a text as a whole that has a
 * NUL or is too long. Of a variable that occurs twice, the last counts. */
struct notify_message notify_parse(const char *data, size_t len);

/* ---- what one worker has announced since it was started ---- */

/* A step may take so many times as long as the longest of the last ANNOUNCED_STEPS, and the minimum
 * at least. Fewer than ANNOUNCED_STEPS_KNOWN prove nothing: the first are compiled. */
#define ANNOUNCED_STEPS 100
#define ANNOUNCED_STEPS_KNOWN 3
#define ANNOUNCED_STEP_TIMES 3
#define ANNOUNCED_STEP_MIN_NS UINT64_C(10000000000)

struct announced {
    uint64_t step;       /* the last; 0: none */
    uint64_t step_at_ns; /* when it was announced */
    uint64_t alive_ns;   /* when the worker last announced that it is alive, a limit, or a step */
    uint64_t limit_ns;   /* WATCHDOG_USEC; 0: none */
    uint64_t n_steps;    /* durations that are known */
    uint64_t took_ns[ANNOUNCED_STEPS]; /* of the last steps, in a ring */
};

/* A step is announced at its end. A repeated one does not count; a smaller one begins an epoch. */
void announced_take(struct announced *a, const struct notify_message *m, uint64_t now_ns);

/* How long it may be silent, by its own words, and for how long it is: a WATCHDOG_USEC counts
 * before steps do. False: it has announced nothing of the kind. */
bool announced_limit(const struct announced *a, uint64_t now_ns, uint64_t *ret_limit_ns,
                     uint64_t *ret_since_ns);
