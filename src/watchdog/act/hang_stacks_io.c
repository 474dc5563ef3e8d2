#include "watchdog/act/hang_stacks_io.h"

#include <stdio.h>

#include "io/clock.h"

struct hang_stacks {
    struct loop *loop;
    struct hang_evidence *evidence;
    struct hang_stacks_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct hang_question *question;     /* NULL: nothing is asked */
    const struct hang_answers *answers; /* kept, while they are passed on; NULL: none are */
    uint32_t next;                      /* node */
};

static void drop(struct hang_stacks *s) {
    hang_answers_drop(s->answers);
    s->answers = NULL;
    s->next = 0;
}

static void pass_on(struct hang_stacks *s, uint32_t i) {
    const struct hang_group *g = &s->answers->group;
    const struct hang_answer *answer = &s->answers->nodes[i];
    struct rdzv_stacks head = {.generation = g->generation,
                               .world_size = g->world_size,
                               .n_nodes = g->n_nodes,
                               .node = i,
                               .first_rank = g->nodes[i].first_rank,
                               .nproc = g->nodes[i].nproc};
    (void)snprintf(head.name, sizeof head.name, "%s", g->nodes[i].name);
    if (answer->missing != NULL) {
        (void)snprintf(head.missing, sizeof head.missing, "%s", answer->missing);
        s->ops.add(s->arg, &head, "", 0);
    } else {
        s->ops.add(s->arg, &head, strbuf_text(&answer->json), answer->json.len);
    }
}

static void on_timer(void *arg) {
    struct hang_stacks *s = arg;
    while (s->next < s->answers->group.n_nodes && !loop_slice_is_over(s->loop))
        pass_on(s, s->next++);
    if (s->next < s->answers->group.n_nodes) {
        loop_timer_set(s->timer, clock_now_ns());
        return;
    }
    drop(s);
    s->ops.end(s->arg, NULL);
}

/* They can be long, and others may wait for the same ones. */
static void on_answers(void *arg, const struct hang_answers *answers) {
    struct hang_stacks *s = arg;
    s->question = NULL;
    s->answers = hang_answers_keep(answers);
    loop_timer_set(s->timer, clock_now_ns());
}

void hang_stacks_ask(struct hang_stacks *s, uint64_t timeout_ns) {
    hang_stacks_cancel(s);
    int r =
        hang_evidence_ask(s->evidence, HANG_FOR_OPERATOR, timeout_ns, on_answers, s, &s->question);
    if (r < 0)
        s->ops.end(s->arg, "no worker runs at the moment; \"muster status\" shows what the job "
                           "does");
}

void hang_stacks_cancel(struct hang_stacks *s) {
    hang_question_free(TAKE_PTR(s->question));
    loop_timer_set(s->timer, TIME_NEVER);
    drop(s);
}

struct hang_stacks *hang_stacks_new(struct loop *loop, struct hang_evidence *evidence,
                                    const struct hang_stacks_ops *ops, void *arg) {
    struct hang_stacks *s = xcalloc(1, sizeof *s);
    *s = (struct hang_stacks){.loop = loop, .evidence = evidence, .ops = *ops, .arg = arg};
    s->timer = loop_timer_new(loop, on_timer, s);
    return s;
}

void hang_stacks_free(struct hang_stacks *s) {
    if (s == NULL)
        return;
    hang_stacks_cancel(s);
    loop_timer_free(s->timer);
    free(s);
}
