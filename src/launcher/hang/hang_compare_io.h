/* Compares what all nodes have answered (hang_evidence_io.h), and writes it into files, in a helper
 * with a deadline: the answers come from other nodes, they can be long, and the disk can hang.
 *
 *     struct hang_compare_ask ask = {.answers = answers, .what = text, .dir = dir, …};
 *     r = hang_compare_new(loop, &ask, on_compared, me, &c);       … on_compared(me, &compared)
 *
 * The line is known before the files are written: a dead disk costs only the rest of the time. */
#pragma once

#include "io/loop.h"
#include "launcher/hang/hang_evidence_io.h"
#include "watchdog/judge/suspects.h"

struct hang_compare_ask { /* all borrowed for the call of hang_compare_new() */
    const struct hang_answers *answers;
    const char *what; /* the verdict's sentence; may be NULL */
    uint64_t quiet_ns;
    const struct hang_suspect *signs; /* whom the verdict suspects by signs alone */
    uint32_t n_signs;
    const bool *waited; /* of each rank, and who failed: struct suspects_input; NULL: nobody */
    uint32_t failed;
    const char *job;             /* its name, for the files */
    const char *dir;             /* of the run's logs; NULL: no files */
    uint32_t log_mode;           /* of the files */
    bool wants_text, wants_json; /* what would be in the files is wanted back */
    uint64_t timeout_ns;
};

struct hang_compared { /* borrowed for the callback */
    /* 0; or a negative errno, and all but files_error is empty: -ETIMEDOUT, -ENOMEM, … */
    int code;
    const char *line;     /* suspects_line() */
    uint32_t n_suspects;  /* all; 0: nobody stands out */
    struct suspect first; /* the first of them */
    uint32_t n_debugged;  /* ranks at a debugger's prompt, or that wait for one */
    uint32_t debugged;    /* the first of them */
    /* Ranks that wait for others, or hang at their exit (struct suspects): a reason to end it. */
    bool reason;
    uint64_t used_ns; /* CPU time of any main thread since it last moved, at most */
    uint32_t n_ranks;
    const uint64_t *places; /* [n_ranks] where its main thread is, suspects_place(); 0: not known */
    const bool *suspects;   /* [n_ranks] */
    const bool *ended;      /* [n_ranks] it has exited with 0 */
    const char *text, *json; /* as wanted; else "" */
    size_t text_len, json_len;
    const char *path;        /* of hang.txt; NULL: there are no files */
    const char *files_error; /* why there are none, or not all; NULL: no error */
    int32_t stuck; /* the helper, which the disk still held at the deadline; 0: it did not */
};

struct hang_compare;
typedef void hang_compared_fn(void *arg, const struct hang_compared *compared);
/* fn is called once, from the loop: when the files are written, or at the deadline. It is freed
 * then. A helper that a disk holds is left alone. Returns 0, or a negative errno. */
_must_use_ int hang_compare_new(struct loop *loop, const struct hang_compare_ask *ask,
                                hang_compared_fn *fn, void *arg, struct hang_compare **ret);
/* The helper, whose name is SPARE_COMPARE_NAME (launcher/supervise/spare_io.h). */
pid_t hang_compare_pid(const struct hang_compare *c);
void hang_compare_free(struct hang_compare *c); /* cancels; takes NULL */
