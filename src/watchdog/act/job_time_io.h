/* In the agent that leads: asks all nodes for samples once a second, window after window, and keeps
 * the record of the job's time (watchdog/profile/job_time.h). A helper compares the answers: they
 * can be long. A new leader begins a record of its own.
 *
 *     c = job_clock_new(loop, evidence, &ops, me);
 *     job_clock_begin(c, n_ranks);        workers run; windows begin JOB_CLOCK_FIRST_NS later
 *     job_clock_end(c);                   they are being stopped
 *     job_clock_state(c, &status);
 *     job_clock_report(c, &line);         at the end of the job */
#pragma once

#include "rendezvous/protocol/messages.h"
#include "watchdog/act/hang_evidence_io.h"

#define JOB_CLOCK_FIRST_NS NS_PER_S
#define JOB_CLOCK_PERIOD_NS NS_PER_S
/* The first window of an attempt, for its first step, and how much longer each next one is. */
#define JOB_CLOCK_WINDOW_NS (10 * NS_PER_S)
#define JOB_CLOCK_WINDOW_MAX_NS (60 * NS_PER_S)
/* A shorter job gets no line at its end. */
#define JOB_CLOCK_REPORT_NS (60 * NS_PER_S)

struct job_clock_ops {
    /* The workers of the present attempt train. Must not free the clock. */
    void (*first_step)(void *arg, const struct attempt_start *start);
};
struct job_clock;
/* evidence is borrowed for its life. */
_must_use_ struct job_clock *job_clock_new(struct loop *loop, struct hang_evidence *evidence,
                                           const struct job_clock_ops *ops, void *arg);
void job_clock_free(struct job_clock *c); /* takes NULL, as all of these */
void job_clock_begin(struct job_clock *c, uint32_t n_ranks);
void job_clock_end(struct job_clock *c);
void job_clock_state(void *job_clock, struct rdzv_time *ret);
/* Adds the line; nothing after a short job. */
void job_clock_report(const struct job_clock *c, struct strbuf *ret);
