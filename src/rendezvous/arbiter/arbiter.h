/* The arbiter decides which agent leads epoch E. It is a shared directory or etcd; a job with a
 * fixed leader has none. This header is the interface; the implementations are arbiter_dir_io.h and
 * arbiter_etcd_io.h. (Votes of the members could be a third.)
 *
 *     arbiter_dir_new(loop, &config, &a, &err);
 *     arbiter_ask(a, &(struct arbiter_request){.kind = ARBITER_READ, .id = 7}, on_answer, me);
 *     … on_answer(me, &answer), with answer.request.id 7
 *     arbiter_free(a);
 *
 * Guarantees, whatever fails: at most one winner per epoch, ever; a closed job stays closed, with
 * one outcome; a record is never changed. A claim that is answered with UNREACHABLE may have been
 * won: ask again, with the same claimant, to know. The record is then that of the first claim, idle
 * or not. */
#pragma once

#include "rendezvous/arbiter/arbiter_messages.h"

/* Called from the loop, never from inside arbiter_ask(). May ask again, or free the arbiter. */
typedef void arbiter_answer_fn(void *arg, const struct arbiter_answer *answer);

struct arbiter {
    const struct arbiter_ops *ops; /* of the implementation, whose struct begins with this one */
};
struct arbiter_ops {
    void (*ask)(struct arbiter *a, const struct arbiter_request *request, arbiter_answer_fn *fn,
                void *arg);
    void (*cancel)(struct arbiter *a, void *arg);
    void (*free)(struct arbiter *a);
};

/* Copies the request. */
static inline void arbiter_ask(struct arbiter *a, const struct arbiter_request *request,
                               arbiter_answer_fn *fn, void *arg) {
    a->ops->ask(a, request, fn, arg);
}
/* The asker with this arg no longer exists: its answers are dropped. */
static inline void arbiter_cancel(struct arbiter *a, void *arg) { a->ops->cancel(a, arg); }
/* NULL is fine. Requests under way are never answered. */
static inline void arbiter_free(struct arbiter *a) {
    if (a != NULL)
        a->ops->free(a);
}
