/* In the agent that leads, when a job that hangs is about to be stopped: has the native stacks of
 * its suspects read, right before these are ended, and adds them to the files of the hang.
 *
 *     r = hang_native_new(loop, &ask, on_kept, me, &n);      … on_kept(me, error)
 *
 * The stop need not wait for it here: each node reads first, within its time (hang_watch_io.h). */
#pragma once

#include "io/loop.h"
#include "launcher/hang/hang_evidence_io.h"

struct hang_native_ask {            /* borrowed for the call */
    struct hang_evidence *evidence; /* for its life */
    const bool *suspects;           /* [world size] */
    uint64_t timeout_ns;            /* that the nodes have */
    const char *path;               /* of hang.txt */
    uint64_t files_timeout_ns;      /* after that, for the disk */
    /* This helper writes there, and the disk may hold it for ever. NULL: nobody wants to know. */
    void (*writes)(void *arg, pid_t pid);
};

struct hang_native;
/* arg is also that of ask->writes. error: why the files are without them, one sentence; NULL: they
 * have them, or the reasons why there are none. Called once, from the loop; it is freed then. */
typedef void hang_native_fn(void *arg, const char *error);
void hang_native_new(struct loop *loop, const struct hang_native_ask *ask, hang_native_fn *fn,
                     void *arg, struct hang_native **ret);
void hang_native_free(struct hang_native *n); /* cancels; takes NULL */
