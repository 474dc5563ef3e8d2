/* The record of what the workers import, kept beside the logs for the next run of the same program:
 * a file that only its user may read or write. Both calls are helpers': a file system that hangs
 * holds nothing up.
 *
 *     warm_saved_load(loop, &place, on_loaded, me, &call);
 *     warm_saved_store(loop, &place, record, n, on_stored, me, &call);
 *     helper_call_free(call); */
#pragma once

#include "io/process/helper_call.h"
#include "launcher/warm/warm.h"

struct warm_saved_place {
    const char *dir;      /* --log-dir, borrowed */
    uint64_t program;     /* a hash of the interpreter and the script: names the file */
    uint64_t args;        /* a hash of the script's arguments */
    uint64_t incarnation; /* of the agent: two that write the same don't meet */
};

/* The answer is the file's text for warm_saved_read(); empty: there is none; or '!' and why it is
 * not read. */
_must_use_ int warm_saved_load(struct loop *loop, const struct warm_saved_place *place,
                               helper_call_fn *fn, void *arg, struct helper_call **ret);
/* The answer is empty, or says why it was not written. */
_must_use_ int warm_saved_store(struct loop *loop, const struct warm_saved_place *place,
                                const char *record, size_t n, helper_call_fn *fn, void *arg,
                                struct helper_call **ret);
