/* Asks a helper (helper.h) one question: it runs a function, and what that writes until it ends, or
 * until the deadline, comes back in one piece. For whatever may hang.
 *
 *     struct helper_call_config config = {.name = "muster-look", .run = look, .arg = &what,
 *                                         .timeout_ns = 3 * NS_PER_S, .max_bytes = LOOK_MAX};
 *     r = helper_call_new(loop, &config, on_answer, me, &call);    … on_answer(me, &answer)
 *
 *     r = helper_call_new(NULL, &config, NULL, NULL, &call);       without a loop
 *     helper_call_wait(call, &answer); … helper_call_free(call);
 *
 * Without a loop, which has a reaper, the caller may ignore SIGCHLD, but must not reap children
 * that are not its own meanwhile. */
#pragma once

#include "io/process/helper.h"

struct helper_call_config {
    const char *name; /* that ps shows */
    helper_fn *run;
    void *arg;           /* the helper has a copy of what it points to */
    uint64_t timeout_ns; /* from here on */
    size_t max_bytes;    /* of the answer */
    /* It may have children of its own, which hang: when its time is over it is not killed, but left
     * alone until this process ends. */
    bool may_linger;
};

struct helper_answer { /* borrowed for the callback, or until helper_call_free() */
    int code;          /* 0: the answer is complete; -ETIMEDOUT; -EMSGSIZE; others of read(2) */
    const char *data;  /* also where that was not all */
    size_t len;
};

struct helper_call;
/* The call is freed then. */
typedef void helper_call_fn(void *arg, const struct helper_answer *answer);

/* fn is called once, from the loop, never from inside. 0, or a negative errno: no process, no
 * descriptor. */
_must_use_ int helper_call_new(struct loop *loop, const struct helper_call_config *config,
                               helper_call_fn *fn, void *arg, struct helper_call **ret);
/* Blocks until the answer is there, or the deadline; what has come by the deadline is taken. */
void helper_call_wait(struct helper_call *c, struct helper_answer *ret);
/* Gives it up: the helper is killed, fn is not called. NULL is fine. */
void helper_call_free(struct helper_call *c);
