/* One case of a hang, in the agent that leads: what all ranks do is asked, compared and kept in
 * files, from the question to the answer within --evidence-timeout and HANG_CASE_LATE_NS.
 *
 *     struct hang_case_ask ask = {.what = text, …};
 *     r = hang_case_new(&config, &ask, on_seen, me, &c);      … on_seen(me, &compared)
 *
 * Nobody is disturbed. (What is asked when a worker has failed delays the stop of the others.) */
#pragma once

#include "launcher/hang/hang_compare_io.h"
#include "launcher/job/job.h"

#define HANG_CASE_LATE_NS NS_PER_S

struct hang_case_config { /* all borrowed for the life of a case */
    struct loop *loop;
    const struct job_spec *spec;
    struct hang_evidence *evidence;
    /* The folder of the run's logs on this node; NULL: there is none. Borrowed; asked once. */
    const char *(*dir)(void *arg);
    /* This helper writes there, and the disk may hold it for ever. NULL: nobody wants to know. */
    void (*writes)(void *arg, pid_t pid);
    void *arg; /* for both */
};
struct hang_case_ask { /* copied */
    const char *what;  /* the verdict's sentence; may be NULL */
    uint64_t quiet_ns;
    const struct hang_suspect *signs;
    uint32_t n_signs;
    /* [world size] and who failed: struct suspects_input; the workers are about to be stopped then,
     * which waits for the evidence. NULL: nobody */
    const bool *waited;
    uint32_t failed;
    /* The group will be stopped for it: a part of the time is left for the native stacks. */
    bool ends;
};

struct hang_case;
/* fn is called once, from the loop; code of struct hang_compared is not 0 if there is no
 * comparison. The case is freed then. Returns 0; -ECANCELED: --evidence-timeout is 0; -ESRCH: no
 * workers run. */
_must_use_ int hang_case_new(const struct hang_case_config *config, const struct hang_case_ask *ask,
                             hang_compared_fn *fn, void *arg, struct hang_case **ret);
/* That part: a quarter of --evidence-timeout. */
uint64_t hang_case_native_ns(const struct job_spec *spec);
void hang_case_free(struct hang_case *c); /* cancels; takes NULL */
/* The nodes are not asked any more: what they have answered is being compared. */
bool hang_case_has_answers(const struct hang_case *c);
