#include "watchdog/act/hang_evidence_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "io/clock.h"
#include "rendezvous/protocol/wire.h"

/* What the nodes were asked, and have answered so far. */
struct hang_round {
    unsigned refs; /* the collection's, that of a callback, and that of a struct hang_stacks */
    uint32_t id;
    uint64_t timeout_ns; /* that the nodes were given */
    uint64_t end_ns;
    struct hang_answers answers;
    bool *open; /* [n_nodes] its answer is awaited */
    uint32_t n_open;
    size_t bytes; /* of all answers */
    bool holds;   /* the workers are being stopped, and the nodes look first */
};

struct hang_question {
    struct list link;
    uint64_t end_ns;
    hang_answers_fn *fn;
    void *arg;
};

/* A round and the questions that it answers. */
struct asked {
    struct hang_round *round; /* NULL: nothing is asked */
    struct list questions;
};
/* By enum rdzv_ask_what, and: native stacks of suspects that are about to be ended. */
enum { EVIDENCE = ASK_STACKS, ENDS = ASK_WHAT_COUNT, N_ASKED };

struct hang_evidence {
    struct loop *loop;
    struct hang_evidence_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct hang_group group; /* that runs; generation none: none does */
    uint32_t last_id;
    struct asked asked[N_ASKED];
};

/* ---- a round ---- */

static void round_unref(struct hang_round *r) {
    if (r == NULL || --r->refs > 0)
        return;
    for (uint32_t i = 0; i < r->answers.group.n_nodes; i++)
        strbuf_fini(&r->answers.nodes[i].json);
    hang_group_fini(&r->answers.group);
    free(r->answers.nodes);
    free(r->open);
    free(r);
}

static void arm(struct hang_evidence *e) {
    uint64_t due = TIME_NEVER;
    for (int i = 0; i < N_ASKED; i++) {
        const struct asked *a = &e->asked[i];
        due = MIN2(due, a->round == NULL ? TIME_NEVER : a->round->end_ns);
        LIST_FOR_EACH(const struct hang_question, q, &a->questions, link)
            due = MIN2(due, q->end_ns);
    }
    loop_timer_set(e->timer, due);
}

/* Its questions are answered by the timer, never from inside a call. NULL: there is none. */
static void round_over(struct hang_evidence *e, struct hang_round *r) {
    if (r != NULL)
        r->end_ns = clock_now_ns();
    arm(e);
}

/* What a node has sent so far is not kept, and takes no room. */
static void drop_answer(struct hang_round *r, uint32_t node) {
    struct strbuf *json = &r->answers.nodes[node].json;
    r->bytes -= json->len;
    strbuf_fini(json);
}

static void close_answer(struct hang_evidence *e, struct hang_round *r, uint32_t node,
                         const char *missing) {
    r->open[node] = false;
    r->answers.nodes[node].missing = missing;
    if (missing != NULL)
        drop_answer(r, node);
    if (--r->n_open == 0)
        round_over(e, r);
}

static struct hang_round *new_round(struct hang_evidence *e, uint64_t timeout_ns,
                                    uint64_t late_ns) {
    uint32_t n = e->group.n_nodes;
    struct hang_round *r = xcalloc(1, sizeof *r);
    r->refs = 1;
    r->id = ++e->last_id;
    r->timeout_ns = timeout_ns;
    r->end_ns = clock_now_ns() + timeout_ns + late_ns;
    hang_group_copy(&e->group, &r->answers.group);
    r->answers.own = r;
    r->answers.asked_wall_ns = clock_wall_ns();
    r->answers.nodes = xcalloc(n, sizeof *r->answers.nodes);
    r->open = xcalloc(n, sizeof *r->open);
    r->n_open = n;
    memset(r->open, true, n);
    for (uint32_t i = 0; i < n; i++)
        r->answers.nodes[i].missing = "it did not answer in time";
    return r;
}

static void begin_round(struct hang_evidence *e, const struct rdzv_ask *ask) {
    struct hang_round *r = new_round(
        e, ask->timeout_ns, ask->period_ns > 0 ? RDZV_PROFILE_LATE_NS : HANG_ANSWERS_LATE_NS);
    e->asked[ask->what].round = r;
    r->holds = ask->holds;
    struct wire_message m = {.kind = WIRE_ASK, .ask = *ask};
    m.ask.generation = e->group.generation;
    m.ask.id = r->id;
    for (uint32_t i = 0; i < e->group.n_nodes; i++)
        if (!e->ops.send(e->arg, e->group.nodes[i].incarnation, &m))
            close_answer(e, r, i, "it is not connected");
}

void hang_evidence_piece(void *hang_evidence, uint64_t incarnation,
                         const struct rdzv_evidence *piece) {
    struct hang_evidence *e = hang_evidence;
    struct hang_round *r = NULL;
    for (int i = 0; i < N_ASKED && r == NULL; i++)
        if (e->asked[i].round != NULL && e->asked[i].round->id == piece->id)
            r = e->asked[i].round;
    if (r == NULL)
        return;
    uint32_t node = hang_group_find(&r->answers.group, incarnation);
    if (node == r->answers.group.n_nodes || !r->open[node])
        return;
    struct hang_answer *a = &r->answers.nodes[node];
    size_t len = strlen(piece->text);
    if (piece->first)
        drop_answer(r, node);
    if (a->json.len + len > RDZV_EVIDENCE_MAX || r->bytes + len > HANG_ANSWERS_MAX) {
        close_answer(e, r, node, "its answer is too long");
        return;
    }
    r->bytes += len;
    strbuf_add_bytes(&a->json, piece->text, len);
    if (piece->last)
        close_answer(e, r, node,
                     a->json.len == 0 ? "no workers run there, or they could not be examined"
                                      : NULL);
}

void hang_evidence_forgotten(void *hang_evidence, uint64_t incarnation) {
    struct hang_evidence *e = hang_evidence;
    for (int i = 0; i < N_ASKED; i++) {
        struct hang_round *r = e->asked[i].round;
        uint32_t node = r == NULL ? 0 : hang_group_find(&r->answers.group, incarnation);
        if (r != NULL && node < r->answers.group.n_nodes && r->open[node])
            close_answer(e, r, node, "it was lost");
    }
}

/* ---- questions ---- */

static void answer(struct hang_question *q, const struct hang_answers *answers) {
    hang_answers_fn *fn = q->fn;
    void *arg = q->arg;
    hang_question_free(q);
    fn(arg, answers);
}

/* fn can ask again, and can cancel the questions of others. */
static void answer_due(struct hang_evidence *e, struct asked *a, uint64_t now) {
    struct hang_round *r = a->round;
    if (r == NULL)
        return;
    bool over = now >= r->end_ns;
    struct list due = LIST_INIT(due);
    LIST_FOR_EACH(struct hang_question, q, &a->questions, link)
        if (over || now >= q->end_ns) {
            list_remove(&q->link);
            list_append(&due, &q->link);
        }
    if (over)
        a->round = NULL;
    else
        r->refs++;
    arm(e);
    while (!list_empty(&due))
        answer(LIST_FIRST(struct hang_question, &due, link), &r->answers);
    round_unref(r);
}

static void on_timer(void *arg) {
    struct hang_evidence *e = arg;
    uint64_t now = clock_now_ns();
    for (int i = N_ASKED - 1; i >= 0; i--)
        answer_due(e, &e->asked[i], now);
    arm(e);
}

/* Whether the nodes are asked again: they answer only the newest question. */
static bool needs_own_round(const struct hang_round *r, uint64_t timeout_ns, enum hang_ask why) {
    switch (why) {
    case HANG_FOR_OPERATOR: return false;
    case HANG_FOR_WATCHDOG: return r->timeout_ns != timeout_ns;
    case HANG_BEFORE_STOP: return !r->holds || r->timeout_ns != timeout_ns;
    }
    assert_not_reached();
}

static struct hang_question *new_question(struct asked *a, uint64_t timeout_ns, hang_answers_fn *fn,
                                          void *arg) {
    struct hang_question *q = xcalloc(1, sizeof *q);
    *q = (struct hang_question){
        .end_ns = clock_now_ns() + timeout_ns + HANG_ANSWERS_LATE_NS, .fn = fn, .arg = arg};
    list_append(&a->questions, &q->link);
    return q;
}

int hang_evidence_ask(struct hang_evidence *e, enum hang_ask why, uint64_t timeout_ns,
                      hang_answers_fn *fn, void *arg, struct hang_question **ret) {
    struct asked *a = &e->asked[EVIDENCE];
    bool other = a->round != NULL &&
                 generation_compare(a->round->answers.group.generation, e->group.generation) != 0;
    if (generation_is_none(e->group.generation) || other)
        return -ESRCH; /* or those of the last group get their answers first */
    *ret = new_question(a, timeout_ns, fn, arg);
    if (a->round != NULL && needs_own_round(a->round, timeout_ns, why))
        round_unref(TAKE_PTR(a->round));
    if (a->round == NULL)
        begin_round(e,
                    &(struct rdzv_ask){.timeout_ns = timeout_ns, .holds = why == HANG_BEFORE_STOP});
    arm(e);
    return 0;
}

static void cancel(struct asked *a) {
    LIST_FOR_EACH(struct hang_question, q, &a->questions, link)
        hang_question_free(q);
    round_unref(TAKE_PTR(a->round));
}

int hang_evidence_samples(struct hang_evidence *e, enum rdzv_ask_what what, uint64_t period_ns,
                          uint64_t length_ns, hang_answers_fn *fn, void *arg,
                          struct hang_question **ret) {
    struct asked *a = &e->asked[what];
    if (generation_is_none(e->group.generation))
        return -ESRCH;
    cancel(a);
    *ret = new_question(a, length_ns + RDZV_PROFILE_LATE_NS, fn, arg);
    begin_round(e,
                &(struct rdzv_ask){.what = what, .timeout_ns = length_ns, .period_ns = period_ns});
    arm(e);
    return 0;
}

/* The nodes stop taking samples: they get a question of no group, which they answer at once. */
static void stop_samples(struct hang_evidence *e, enum rdzv_ask_what what) {
    struct asked *a = &e->asked[what];
    const struct wire_message m = {
        .kind = WIRE_ASK,
        .ask = {.what = what, .timeout_ns = 1, .period_ns = RDZV_PROFILE_PERIOD_MAX_NS}};
    for (uint32_t i = 0; a->round != NULL && i < a->round->answers.group.n_nodes; i++)
        if (a->round->open[i])
            (void)e->ops.send(e->arg, a->round->answers.group.nodes[i].incarnation, &m);
    cancel(a);
}

static void add_suspects_of(const struct hang_node *n, const bool *suspects,
                            struct rdzv_suspects *ret) {
    for (uint32_t k = 0; k < n->nproc && ret->n < RDZV_SUSPECTS_MAX; k++)
        if (suspects[n->first_rank + k])
            ret->ranks[ret->n++] = n->first_rank + k;
}

void hang_evidence_end_ranks(struct hang_evidence *e, const bool *suspects, uint64_t timeout_ns,
                             hang_answers_fn *fn, void *arg, struct hang_question **ret) {
    const struct hang_group *g = &e->group;
    struct asked *a = &e->asked[ENDS];
    uint32_t n = 0;
    cancel(a);
    struct hang_round *r =
        timeout_ns > 0 ? a->round = new_round(e, timeout_ns, HANG_ANSWERS_LATE_NS) : NULL;
    if (r != NULL)
        *ret = new_question(a, timeout_ns, fn, arg);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct wire_message m = {.kind = WIRE_SUSPECTS, .suspects = {.generation = g->generation}};
        struct rdzv_suspects *s = &m.suspects;
        add_suspects_of(&g->nodes[i], suspects, s);
        bool reads = r != NULL && s->n > 0 && n + s->n <= HANG_ENDS_READ_MAX;
        n += reads ? s->n : 0;
        s->id = reads ? r->id : ++e->last_id;
        s->timeout_ns = reads ? timeout_ns : 0;
        bool sent = s->n > 0 && e->ops.send(e->arg, g->nodes[i].incarnation, &m);
        if (r != NULL && !(reads && sent)) /* the stop alone ends those that were not reached */
            close_answer(e, r, i, !reads ? "there are too many suspects" : "it is not connected");
    }
    arm(e);
}

void hang_evidence_let_go(struct hang_evidence *e, const struct hang_group *group) {
    struct wire_message m = {.kind = WIRE_PROCEED};
    for (uint32_t i = 0; i < group->n_nodes; i++)
        (void)e->ops.send(e->arg, group->nodes[i].incarnation, &m); /* else its own time ends it */
    for (int i = 0; i < N_ASKED; i++)
        round_over(e, e->asked[i].round);
}

void hang_question_free(struct hang_question *q) {
    if (q == NULL)
        return;
    list_remove(&q->link);
    free(q);
}

void hang_evidence_begin(struct hang_evidence *e, const struct hang_group *group) {
    hang_group_fini(&e->group);
    round_over(e, e->asked[EVIDENCE].round);
    round_over(e, e->asked[ENDS].round);
    hang_group_copy(group, &e->group);
}

const struct hang_group *hang_evidence_group(const struct hang_evidence *e) { return &e->group; }

void hang_evidence_end(struct hang_evidence *e) {
    hang_group_fini(&e->group);
    struct hang_round *r = e->asked[EVIDENCE].round;
    if (r != NULL && !r->holds)
        round_over(e, r);
}

struct hang_evidence *hang_evidence_new(struct loop *loop, const struct hang_evidence_ops *ops,
                                        void *arg) {
    struct hang_evidence *e = xcalloc(1, sizeof *e);
    *e = (struct hang_evidence){.loop = loop, .ops = *ops, .arg = arg};
    for (int i = 0; i < N_ASKED; i++)
        list_init(&e->asked[i].questions);
    e->timer = loop_timer_new(loop, on_timer, e);
    return e;
}

void hang_evidence_free(struct hang_evidence *e) {
    if (e == NULL)
        return;
    for (int i = 0; i < N_ASKED; i++)
        cancel(&e->asked[i]);
    hang_group_fini(&e->group);
    loop_timer_free(e->timer);
    free(e);
}

/* ---- for operators ---- */

struct passing {
    struct hang_stacks *of;
    enum rdzv_ask_what what;
    struct loop_timer *timer;
    struct hang_question *question; /* NULL: nothing is asked */
    struct hang_round *round;       /* referenced while its answers are passed on; NULL: none are */
    uint32_t next;                  /* node */
};

enum { N_PASSING = ASK_PROFILE + 1 };
struct hang_stacks {
    struct loop *loop;
    struct hang_evidence *evidence;
    struct hang_stacks_ops ops;
    void *arg;
    struct passing passing[N_PASSING];
};

static void drop(struct passing *p) {
    round_unref(TAKE_PTR(p->round));
    p->next = 0;
}

/* An answer that is missing can still come meanwhile; one that is whole does not change. */
static void pass_on(struct passing *p, uint32_t i) {
    const struct hang_stacks *s = p->of;
    const struct hang_group *g = &p->round->answers.group;
    const struct hang_answer *answer = &p->round->answers.nodes[i];
    struct rdzv_stacks head = {.generation = g->generation,
                               .world_size = g->world_size,
                               .n_nodes = g->n_nodes,
                               .node = i,
                               .first_rank = g->nodes[i].first_rank,
                               .nproc = g->nodes[i].nproc};
    (void)snprintf(head.name, sizeof head.name, "%s", g->nodes[i].name);
    if (answer->missing != NULL) {
        (void)snprintf(head.missing, sizeof head.missing, "%s", answer->missing);
        s->ops.add(s->arg, p->what, &head, "", 0);
    } else {
        s->ops.add(s->arg, p->what, &head, strbuf_text(&answer->json), answer->json.len);
    }
}

static void on_stacks_timer(void *arg) {
    struct passing *p = arg;
    uint32_t n = p->round->answers.group.n_nodes;
    while (p->next < n && !loop_slice_is_over(p->of->loop))
        pass_on(p, p->next++);
    if (p->next < n) {
        loop_timer_set(p->timer, clock_now_ns());
        return;
    }
    drop(p);
    p->of->ops.end(p->of->arg, p->what, NULL);
}

/* They can be long, and others may wait for the same ones. */
static void on_answers(void *arg, const struct hang_answers *answers) {
    struct passing *p = arg;
    p->question = NULL;
    p->round = answers->own;
    p->round->refs++;
    loop_timer_set(p->timer, clock_now_ns());
}

void hang_stacks_ask(void *hang_stacks, uint64_t period_ns, uint64_t timeout_ns) {
    struct hang_stacks *s = hang_stacks;
    enum rdzv_ask_what what = period_ns > 0 ? ASK_PROFILE : ASK_STACKS;
    struct passing *p = &s->passing[what];
    hang_stacks_cancel(s, what);
    int r = period_ns > 0 ? hang_evidence_samples(s->evidence, what, period_ns, timeout_ns,
                                                  on_answers, p, &p->question)
                          : hang_evidence_ask(s->evidence, HANG_FOR_OPERATOR, timeout_ns,
                                              on_answers, p, &p->question);
    if (r < 0)
        s->ops.end(s->arg, what,
                   "no worker runs at the moment; \"muster status\" shows what the job does");
}

static void forget(struct passing *p) {
    hang_question_free(TAKE_PTR(p->question));
    loop_timer_set(p->timer, TIME_NEVER);
    drop(p);
}

void hang_stacks_cancel(void *hang_stacks, enum rdzv_ask_what what) {
    struct hang_stacks *s = hang_stacks;
    bool is_open = s->passing[what].question != NULL;
    forget(&s->passing[what]);
    if (is_open && what == ASK_PROFILE)
        stop_samples(s->evidence, what);
}

struct hang_stacks *hang_stacks_new(struct loop *loop, struct hang_evidence *evidence,
                                    const struct hang_stacks_ops *ops, void *arg) {
    struct hang_stacks *s = xcalloc(1, sizeof *s);
    *s = (struct hang_stacks){.loop = loop, .evidence = evidence, .ops = *ops, .arg = arg};
    for (int i = 0; i < N_PASSING; i++) {
        s->passing[i] = (struct passing){.of = s, .what = (enum rdzv_ask_what)i};
        s->passing[i].timer = loop_timer_new(loop, on_stacks_timer, &s->passing[i]);
    }
    return s;
}

void hang_stacks_free(struct hang_stacks *s) {
    if (s == NULL)
        return;
    for (int i = 0; i < N_PASSING; i++) {
        forget(&s->passing[i]);
        loop_timer_free(s->passing[i].timer);
    }
    free(s);
}
