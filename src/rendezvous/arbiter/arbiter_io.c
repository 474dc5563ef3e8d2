#include "rendezvous/arbiter/arbiter_io.h"

#include "base/text/utf8.h"
#include "io/clock.h"

static void set_timer(struct arbiter *a) {
    const struct arbiter_asked *first = LIST_FIRST(struct arbiter_asked, &a->waiting, link);
    uint64_t at = a->ops->late != NULL && first != NULL ? first->deadline_ns : TIME_NEVER;
    loop_timer_set(a->timer, list_empty(&a->ready) ? at : 0);
}

/* Passes on one answer at a time, because the callback can free the arbiter with all others. */
static void on_timer(void *arg) {
    struct arbiter *a = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct arbiter_asked, late, &a->waiting, link)
        if (a->ops->late != NULL && late->deadline_ns <= now)
            a->ops->late(a, late);
    struct arbiter_asked *q = LIST_FIRST(struct arbiter_asked, &a->ready, link);
    if (q != NULL)
        list_remove(&q->link);
    set_timer(a);
    if (q != NULL)
        q->fn(q->arg, &q->answer);
    free(q);
}

void arbiter_init(struct arbiter *a, const struct arbiter_ops *ops, struct loop *loop,
                  uint64_t timeout_ns) {
    a->ops = ops;
    a->timeout_ns = timeout_ns != 0 ? timeout_ns : ARBITER_TIMEOUT_NS;
    a->timer = loop_timer_new(loop, on_timer, a);
    list_init(&a->waiting);
    list_init(&a->ready);
}

void arbiter_done(struct arbiter *a, struct arbiter_asked *q, enum arbiter_result result,
                  const char *text) {
    q->answer.result = result;
    utf8_copy(q->answer.text, sizeof q->answer.text, text);
    list_remove(&q->link);
    list_append(&a->ready, &q->link);
    set_timer(a);
}

void arbiter_ask(struct arbiter *a, const struct arbiter_request *request, arbiter_answer_fn *fn,
                 void *arg) {
    assert(request->kind > 0 && request->kind < ARBITER_KIND_COUNT);
    struct arbiter_asked *q = xcalloc(1, sizeof *q);
    uint64_t now = clock_now_ns();
    *q = (struct arbiter_asked){.fn = fn,
                                .arg = arg,
                                .deadline_ns = now + a->timeout_ns,
                                .answer = {.request = *request, .started_ns = now}};
    unsigned n = 0;
    LIST_FOR_EACH(struct arbiter_asked, before, &a->waiting, link)
        n++;
    list_append(&a->waiting, &q->link);
    if (n == ARBITER_REQUESTS_MAX)
        arbiter_done(a, q, ARBITER_UNREACHABLE, "too many questions are waiting for an answer");
    a->ops->work(a);
    set_timer(a);
}

static void drop(struct list *list, const void *arg) {
    LIST_FOR_EACH(struct arbiter_asked, q, list, link) {
        if (arg != NULL && q->arg != arg)
            continue;
        list_remove(&q->link);
        free(q);
    }
}

void arbiter_cancel(struct arbiter *a, const void *arg) {
    LIST_FOR_EACH(struct arbiter_asked, q, &a->waiting, link)
        if (q->arg == arg)
            a->ops->gone(a, q);
    drop(&a->waiting, arg);
    drop(&a->ready, arg);
    a->ops->work(a);
    set_timer(a);
}

void arbiter_free(struct arbiter *a) {
    if (a == NULL)
        return;
    drop(&a->waiting, NULL);
    drop(&a->ready, NULL);
    loop_timer_free(a->timer);
    a->ops->free(a);
}
