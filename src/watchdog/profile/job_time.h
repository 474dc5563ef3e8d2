/* Where the time of a whole job went, from windows of samples at a low rate: the line `time` of
 * "muster status", and the line at the end of a job. Pure: times are arguments, of CLOCK_MONOTONIC
 * except those of ticks, which are of the wall clock.
 *
 *     job_time_started(&t, now_ns, wall_ns, n_ranks);      a group runs
 *     job_time_add(&t, &findings);                         of a window
 *     job_time_stopped(&t, now_ns);
 *     job_time_text(&t, now_ns, &text); */
#pragma once

#include "watchdog/profile/infer.h"

#define JOB_TIME_LATE_MAX 16

struct job_late {
    uint32_t rank;
    struct profile_reason why; /* cls PROFILE_CLASS_COUNT: not known */
    double s;                  /* for which the average rank waited for it */
};
/* Steps that workers announce with MUSTER_STEP, of one group. */
struct job_rate {
    uint32_t n_ranks;
    uint64_t first_step, last_step, first_ns, last_ns; /* since 1970 */
};
struct job_time {
    uint64_t began_ns;                    /* the first start; 0: none */
    uint64_t ran_ns;                      /* of workers, in earlier attempts */
    uint64_t started_ns, started_wall_ns; /* of the present attempt; 0: no workers run */
    struct attempt_start start;           /* of the present or last attempt */
    double sampled_s, s[PROFILE_CLASS_COUNT];
    uint32_t n_late;
    struct job_late late[JOB_TIME_LATE_MAX];
    struct job_late now;     /* late in the last windows; s: its share; 0: no rank */
    uint32_t top, n_top;     /* leads in so many windows one after the other */
    double top_z, top_share; /* sums over these */
    struct job_rate rate, smallest;
};
void job_time_started(struct job_time *t, uint64_t now_ns, uint64_t wall_ns, uint32_t n_ranks);
void job_time_stopped(struct job_time *t, uint64_t now_ns);
/* True: it has the first step of the attempt, and t->start is complete. */
bool job_time_add(struct job_time *t, const struct profile_findings *w);

/* The share of its time from the first start to now in which the job trained (forward, backward and
 * optimizer), and what else took most: "training 82 % of 6 h; 9 % waiting for rank 12 (data
 * loading, loader.py:41); 5 % checkpoint". With announced steps also their rate, and how it
 * compares with that of the smallest group, at the same work for each rank. Adds nothing before
 * 3 s were sampled. */
void job_time_text(const struct job_time *t, uint64_t now_ns, struct strbuf *ret);
/* "rank 12, 9 %, data loading"; nothing if no rank is late. */
void job_time_late_text(const struct job_time *t, struct strbuf *ret);
