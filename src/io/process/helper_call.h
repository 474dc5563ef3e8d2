/* Asks a helper (helper.h) one question: it runs a function, and everything that the function
 * writes until it ends, or until the deadline, is returned in one piece. For any call that can
 * hang.
 *
 *     struct helper_call_config config = {.name = "muster-discover", .run = discover, .arg = &what,
 *                                         .timeout_ns = 3 * NS_PER_S, .max_bytes = LOOK_MAX};
 *     r = helper_call_new(loop, &config, on_answer, me, &call);    … on_answer(me, &answer)
 *
 *     r = helper_call_new(NULL, &config, NULL, NULL, &call);       without a loop
 *     helper_call_wait(call, &answer); … helper_call_free(call);
 *
 * An answer in parts is read by on_more as the parts arrive.
 *
 * Without a loop there is no reaper. Then the caller may ignore SIGCHLD, but it must not reap
 * children that it did not start while it waits. */
#pragma once

#include "io/process/helper.h"

struct helper_call_config {
    const char *name; /* the name that ps shows */
    helper_fn *run;
    void *arg;           /* the helper has a copy of what it points to */
    uint64_t timeout_ns; /* from this call on */
    size_t max_bytes;    /* the longest answer */
    /* It may have children that hang: after the timeout it runs on until this process ends. */
    bool may_linger;
    /* Called with all that has arrived so far; must not free the call. NULL: not needed. */
    void (*on_more)(void *arg, const char *data, size_t len);
};

struct helper_answer { /* borrowed for the callback, or until helper_call_free() */
    int code;          /* 0: the answer is complete; -ETIMEDOUT; -EMSGSIZE; others of read(2) */
    const char *data;  /* also if the answer is not complete */
    size_t len;
};

struct helper_call;
/* The call is freed then. */
typedef void helper_call_fn(void *arg, const struct helper_answer *answer);

/* fn is called once, from the loop, later. 0, or a negative errno: no process, or no descriptor. */
_must_use_ int helper_call_new(struct loop *loop, const struct helper_call_config *config,
                               helper_call_fn *fn, void *arg, struct helper_call **ret);
/* The same for a command, NULL-terminated words, which the helper becomes. The answer is its
 * standard output, of 1 MiB at most; none, if it can't be run. errors: standard error, too. */
_must_use_ int helper_command(struct loop *loop, const char *const words[], bool errors,
                              uint64_t timeout_ns, helper_call_fn *fn, void *arg,
                              struct helper_call **ret);
/* Blocks until the answer is complete, or the deadline; then *ret has what has arrived. */
void helper_call_wait(struct helper_call *c, struct helper_answer *ret);
/* Whether the answer has exactly n bytes. If so, moves them to ret: erases the answer. */
bool helper_answer_take(const struct helper_answer *a, void *ret, size_t n);
/* All of this without a loop, for an answer of exactly max_bytes. Blocks. 0; -ETIMEDOUT; -EIO: the
 * helper has ended without an answer; other errnos of helper_call_new(). */
_must_use_ int helper_ask(const struct helper_call_config *config, void *ret);
/* The last whole line of an answer, of a helper that sends better and better ones; "": none. */
const char *helper_answer_line(const struct helper_answer *a, size_t *ret_len);
/* The helper's. */
pid_t helper_call_pid(const struct helper_call *c);
/* Why no helper started, or what became of it, for people: of helper_call_new() or an answer. */
const char *helper_call_why(int code);
/* Cancels the call: the helper is killed, and fn is not called. Takes NULL. */
void helper_call_free(struct helper_call *c);
