/* Samples of what the workers of a job do: at each tick, each rank's state and Python stack. A node
 * fills one in (profile/sampler_io.h) and sends it as JSON; those of all nodes are read into one.
 *
 *     struct profile node = {.period_ns = 50 * NS_PER_MS, .first_tick = k};
 *     rank = profile_add_rank(&node, 12);
 *     stack = profile_add_stack(&node, frames, n);
 *     profile_add_sample(&node, rank, k, &(struct profile_sample){.stack = stack});
 *     profile_write(&node, max, &json);
 *
 *     profile_read(json, len, &job, &err);        for each node
 *     profile_infer(&job, &findings);             profile/infer.h
 *
 * A tick has a number: that of its period of the wall clock since 1970, so that equal ones are of
 * the same moment on all nodes, as far as their clocks agree. Everything has a limit, because one
 * node reads what another one has written. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/idmap.h"
#include "base/text/strbuf.h"

#define PROFILE_FRAMES_MAX 48           /* of a stack, innermost first */
#define PROFILE_TICKS_MAX 61000         /* 600 s at 100 Hz, on nodes that do not begin at once */
#define PROFILE_TABLE_MAX (1u << 20)    /* frames of a job, and stacks */
#define PROFILE_SAMPLES_MAX (64u << 20) /* of a job; of a node 1/64 of it */
#define PROFILE_CHILDREN_MAX 32         /* rows of struct profile_child of a rank */
#define PROFILE_TEXT_MAX 256            /* bytes of a function's or file's name; it is shortened */

/* What the source line of a frame calls, by the tables of profile/infer.c. */
enum profile_calls {
    PROFILE_CALLS_WAIT = 1 << 0,   /* .wait( .barrier( … */
    PROFILE_CALLS_DEVICE = 1 << 1, /* .item( .cpu( … */
};

struct profile_frame {
    char *function, *file; /* owned */
    uint32_t line;         /* 0: not known */
    unsigned calls;        /* enum profile_calls */
};
/* Its innermost frame, and the stack outside of it, which has a lower index; -1: none. */
struct profile_stack {
    int32_t outer;
    uint32_t frame; /* index */
    uint32_t depth;
};

/* What the main thread waits for in the kernel. */
enum profile_syscall {
    PROFILE_RUNS = 0, /* in no system call, or it is not known */
    PROFILE_FUTEX,
    PROFILE_SLEEP, /* nanosleep, clock_nanosleep */
    PROFILE_OTHER,
};

#define PROFILE_NOT_READ (-1) /* there is a process, but its stack could not be read (yet) */
#define PROFILE_ABSENT (-2)   /* no sample */
struct profile_sample {
    int32_t stack; /* index, PROFILE_NOT_READ or PROFILE_ABSENT */
    bool sleeps;   /* of the main thread: state S or I */
    bool gc;       /* Python's garbage collector runs */
    bool helped;   /* another thread, not of gloo or NCCL, is in state R or D */
    enum profile_syscall syscall;
};

/* Main threads of a rank's children (data loaders), as a histogram. */
struct profile_child {
    int32_t stack; /* PROFILE_NOT_READ: no Python, or none was read */
    uint32_t samples;
};
struct profile_rank {
    uint32_t rank;
    uint64_t step;                  /* the last MUSTER_STEP before the first tick; 0: none */
    struct profile_sample *samples; /* [room]; owned */
    uint32_t room;
    double delay;        /* share of the time in which the main thread could run and found no CPU */
    uint32_t n_children; /* the most at one time */
    struct profile_child *children; /* [n_rows]; owned */
    uint32_t n_rows;
    char gap[160]; /* why stacks, or all samples, are missing: "Python 3.8 is not known"; "" */
};
struct profile {
    uint64_t period_ns;
    uint64_t first_tick; /* its number */
    uint32_t n_ticks;
    uint32_t n_frames, n_stacks, n_ranks;
    struct profile_frame *frames;
    struct profile_stack *stacks;
    struct profile_rank *ranks;        /* in order of ranks */
    struct idmap frame_ids, stack_ids; /* by their content: the index and 1 */
};
void profile_fini(struct profile *p); /* frees what it owns; *p is empty then */

/* The index of this frame, which is added if it is new; names are copied, shortened at their front
 * (file) or end (function), and control characters become '?'. -E2BIG: a limit is reached. */
_must_use_ int64_t profile_add_frame(struct profile *p, const char *function, const char *file,
                                     uint32_t line, unsigned calls);
/* The same for a stack of indexes of frames, innermost first. n 1 to PROFILE_FRAMES_MAX. */
_must_use_ int32_t profile_add_stack(struct profile *p, const uint32_t *frames, uint32_t n);
/* Valid until the next is added. If it is there already, that one. */
struct profile_rank *profile_add_rank(struct profile *p, uint32_t rank);
/* tick: its number. -E2BIG: before the first tick, or too far behind it. Ticks between get
 * PROFILE_ABSENT; a second sample of a tick replaces the first. */
_must_use_ int profile_add_sample(struct profile *p, struct profile_rank *r, uint64_t tick,
                                  const struct profile_sample *s);
void profile_add_child(struct profile_rank *r, int32_t stack, uint32_t samples);

/* One JSON object; runs of equal samples are one entry. At most `max` bytes: if it would be longer,
 * the last ticks are left out, with the stacks that were added in these. */
void profile_write(const struct profile *p, size_t max, struct strbuf *ret);
/* Adds the ranks of a node to *job, from a peer that is not trusted; the job's ticks are the union.
 * *job {0} takes the period of the first node, another one is an error, and so is a rank that is
 * there already. -EINVAL, -E2BIG with what is wrong; *job is usable then, without this node. */
_must_use_ int profile_read(const char *text, size_t len, struct profile *job, struct err *err);

/* The sample of a tick's index (not number); PROFILE_ABSENT outside. */
struct profile_sample profile_at(const struct profile *p, const struct profile_rank *r,
                                 uint32_t tick);
