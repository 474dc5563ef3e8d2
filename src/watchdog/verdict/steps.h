/* The steps that a worker announces (MUSTER_STEP=n): how long the next may take. Pure. The agent of
 * its node has one for each worker that announces, and sends the deadline with the signs.
 *
 *     steps_told(&s, now_ns, step);
 *     row.step = s.step; row.deadline_ns = steps_deadline(&s); row.since_announced_ns = ...; */
#pragma once

#include "base/util.h"

#define STEPS_KEPT 100
#define STEPS_TIMES 3
#define STEPS_DEADLINE_MIN_NS (10 * NS_PER_S)

struct steps {        /* zeroed: none was announced */
    uint64_t step;    /* the last; 0: none */
    uint64_t told_ns; /* when it was announced */
    uint32_t n;       /* durations that are kept */
    uint32_t next;    /* where the next one goes */
    uint64_t took_ns[STEPS_KEPT];
};

/* Only another number is a step: a repeated one is none. */
void steps_told(struct steps *s, uint64_t now_ns, uint64_t step);
/* From the last step on: three times the longest of the last 100, at least 10 s. 0: not known,
 * because fewer than two steps were announced. */
uint64_t steps_deadline(const struct steps *s);
