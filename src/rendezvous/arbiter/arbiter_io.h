/* The arbiter, a shared directory or etcd, decides which agent leads epoch E. This is the
 * interface; arbiter_dir_io.h and arbiter_etcd_io.h implement it.
 *
 *     arbiter_dir_new(loop, &config, &a, &err);
 *     arbiter_ask(a, &(struct arbiter_request){.kind = ARBITER_READ}, on_answer, me);
 *     … on_answer(me, &answer), with answer.request
 *     arbiter_free(a);
 *
 * Guarantees, whatever fails: at most one winner per epoch, ever; a closed job stays closed, with
 * one outcome; a record is never changed. A claim that is answered with UNREACHABLE may have been
 * won: ask again, with the same claimant. The record is then that of the first claim. */
#pragma once

#include "base/list.h"
#include "io/loop.h"
#include "rendezvous/arbiter/arbiter_messages.h"

/* Called from the loop, never from inside arbiter_ask(). May ask again, or free the arbiter. */
typedef void arbiter_answer_fn(void *arg, const struct arbiter_answer *answer);

struct arbiter;

/* Copies the request. */
void arbiter_ask(struct arbiter *a, const struct arbiter_request *request, arbiter_answer_fn *fn,
                 void *arg);
/* The asker with this arg no longer exists: its answers are dropped. */
void arbiter_cancel(struct arbiter *a, const void *arg);
/* NULL is fine. Requests under way are never answered. */
void arbiter_free(struct arbiter *a);

/* ---- for implementations: what they have in common is here, the requests and the answers ---- */

struct arbiter_asked {
    struct list link;
    uint64_t deadline_ns;
    struct arbiter_answer answer; /* the part that is known already */
    arbiter_answer_fn *fn;
    void *arg;
};

/* The struct of an implementation begins with this one. */
struct arbiter {
    const struct arbiter_ops *ops;
    struct loop_timer *timer;
    uint64_t timeout_ns;
    struct list waiting; /* struct arbiter_asked, in the order of the requests */
    struct list ready;   /* answers to be passed on */
};
struct arbiter_ops {
    /* There may be something to do: the first of `waiting`. */
    void (*work)(struct arbiter *a);
    /* This one of `waiting` will be freed: its asker is gone. */
    void (*gone)(struct arbiter *a, struct arbiter_asked *q);
    /* This one has no answer in time: calls arbiter_done(). NULL: it sees to that itself. */
    void (*late)(struct arbiter *a, struct arbiter_asked *q);
    void (*free)(struct arbiter *a);
};
/* timeout_ns: 0: ARBITER_TIMEOUT_NS. */
void arbiter_init(struct arbiter *a, const struct arbiter_ops *ops, struct loop *loop,
                  uint64_t timeout_ns);
/* The answer to one of `waiting` is known, its record is set. It is passed on in a later turn. */
void arbiter_done(struct arbiter *a, struct arbiter_asked *q, enum arbiter_result result,
                  const char *text);
