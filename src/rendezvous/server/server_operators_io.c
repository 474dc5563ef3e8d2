/* The status, and what the workers do, for operators. Each answer is made once, as text, for all
 * that have asked by then; one that asks meanwhile waits for the next (samples take long: it is
 * refused). The status gets a fixed share of the leader's time, however many ask. An operator that
 * does not read costs its place and that text, until its deadline. */
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

/* The share of a core that the status gets: one part in this many. */
#define SHARE 10
/* What an answer costs in addition to its bytes: reading the question, and system calls. */
#define ANSWER_NS (50 * NS_PER_US)
#define BYTES_PER_NS 2

/* Operators that ask for stacks at once, those included whose answer is still being sent. */
#define ASKERS_MAX 16
/* Between two gatherings: each costs every node some CPU time. */
#define REST_NS NS_PER_S
/* Of an answer. The evidence of further nodes is left out. */
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
/* How long an operator may take to read its answer. */
#define READ_NS (10 * NS_PER_S)
#define READ_NS_PER_MIB NS_PER_S

#define DEPOSED "this agent no longer leads; try again"

/* Frames, shared by the connections that send them. */
struct shared_text {
    unsigned refs;
    struct strbuf frames;
};

static struct shared_text *text_new(void) {
    struct shared_text *t = xcalloc(1, sizeof *t);
    t->refs = 1;
    return t;
}

static void text_unref(void *arg) {
    struct shared_text *t = arg;
    if (t == NULL || --t->refs > 0)
        return;
    strbuf_fini(&t->frames);
    free(t);
}

static void text_send(struct shared_text *t, struct conn *to) {
    t->refs++;
    conn_send_frames(to, strbuf_text(&t->frames), t->frames.len, text_unref, t);
}

static void begin_status(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    struct wire_message m = {.kind = WIRE_OVERVIEW};
    uint64_t now = clock_now_ns();
    group_overview(s->group, now, &m.overview);
    if (s->config.parts.watchdog.state != NULL)
        s->config.parts.watchdog.state(s->config.parts.watchdog.arg, &m.overview.watchdog);
    if (rdzv_watchdog_is_quiet(&m.overview.watchdog))
        job_history_add_quiet(&m.overview.history, m.overview.watchdog.quiet_ns);
    if (s->config.parts.time.state != NULL)
        s->config.parts.time.state(s->config.parts.time.arg, &m.overview.time);
    m.overview.access.state = AUTH_STATE_NONE;
    if (s->config.ops.access != NULL)
        s->config.ops.access(s->config.arg, &m.overview.access);
    o->rows = xcalloc(m.overview.n_nodes, sizeof *o->rows);
    o->n_rows = (uint32_t)group_overview_nodes(s->group, now, o->rows);
    assert(o->n_rows == m.overview.n_nodes);
    o->next_row = 0;
    o->text = text_new();
    wire_add_frame(&m, &o->text->frames);
    while (!list_empty(&o->asking)) {
        struct rdzv_asking *a = LIST_FIRST(struct rdzv_asking, &o->asking, link);
        list_remove(&a->link);
        list_append(&o->asked, &a->link);
    }
}

static void go_on_with_status(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    struct wire_message m = {.kind = WIRE_NODES};
    while (o->next_row < o->n_rows && !loop_slice_is_over(s->loop)) {
        m.nodes.first = o->next_row;
        m.nodes.n = MIN2(o->n_rows - o->next_row, (uint32_t)RDZV_OVERVIEW_CHUNK);
        memcpy(m.nodes.list, o->rows + o->next_row, m.nodes.n * sizeof *o->rows);
        wire_add_frame(&m, &o->text->frames);
        o->next_row += m.nodes.n;
    }
}

/* Returns the cost. */
static uint64_t send_status(struct overviews *o) {
    uint64_t cost_ns = 0;
    free(TAKE_PTR(o->rows));
    LIST_FOR_EACH(struct rdzv_asking, a, &o->asked, link) {
        list_remove(&a->link);
        text_send(o->text, a->conn);
        cost_ns += ANSWER_NS + o->text->frames.len / BYTES_PER_NS;
    }
    text_unref(TAKE_PTR(o->text));
    return cost_ns;
}

static void work_on_status(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    uint64_t began = clock_now_ns();
    if (o->text == NULL && (list_empty(&o->asking) || began < o->rest_until_ns))
        return;
    if (o->text == NULL)
        begin_status(s);
    go_on_with_status(s);
    bool all = o->next_row == o->n_rows;
    uint64_t sending_ns = all ? send_status(o) : 0;
    uint64_t now = clock_now_ns();
    o->cost_ns += now - began + sending_ns;
    if (all) {
        o->rest_until_ns = now + o->cost_ns * (SHARE - 1);
        o->cost_ns = 0;
    }
}

static void set_status_timer(struct overviews *o) {
    uint64_t at = list_empty(&o->asking) ? TIME_NEVER : o->rest_until_ns;
    loop_timer_set(o->timer, o->text != NULL ? clock_now_ns() : at);
}

static void on_status_timer(void *arg) {
    struct rdzv_server *s = arg;
    work_on_status(s);
    set_status_timer(&s->overviews);
}

void rdzv_server_status(struct rdzv_server *s, struct rdzv_asking *asking) {
    if (s->deposed) {
        conn_answer(asking->conn, false, DEPOSED);
        return;
    }
    list_remove(&asking->link);
    list_append(&s->overviews.asking, &asking->link);
    if (s->overviews.text == NULL)
        work_on_status(s);
    set_status_timer(&s->overviews);
}

/* ---- what the workers do ---- */

static size_t count(const struct list *asking) {
    size_t n = 0;
    LIST_FOR_EACH(struct rdzv_asking, a, asking, link)
        n++;
    return n;
}

/* Samples that no operator waits for any more are not in the way of the next one's. */
void server_asking_end(struct rdzv_asking *a) {
    struct server_stacks *st = TAKE_PTR(a->of);
    list_remove(&a->link);
    a->until_ns = 0;
    if (st == NULL || st->what != ASK_PROFILE || st->text == NULL || !list_empty(&st->asked))
        return;
    st->server->config.parts.stacks.cancel(st->server->config.parts.stacks.arg, st->what);
    text_unref(TAKE_PTR(st->text));
}

static void begin(struct server_stacks *st) {
    const struct rdzv_server_config *config = &st->server->config;
    uint64_t timeout_ns = 0, period_ns = 0;
    struct rdzv_asking *a;
    while ((a = LIST_FIRST(struct rdzv_asking, &st->waiting, link)) != NULL) {
        timeout_ns = MAX2(timeout_ns, a->timeout_ns);
        period_ns = a->period_ns;
        list_remove(&a->link);
        list_append(&st->asked, &a->link);
    }
    st->text = text_new();
    config->parts.stacks.ask(config->parts.stacks.arg, period_ns, timeout_ns);
}

static void begin_if_due(void *arg) {
    struct server_stacks *st = arg;
    if (st->text == NULL && !list_empty(&st->waiting) && clock_now_ns() >= st->rest_until_ns)
        begin(st);
    bool waits = st->text == NULL && !list_empty(&st->waiting);
    loop_timer_set(st->timer, waits ? st->rest_until_ns : TIME_NEVER);
}

void rdzv_server_stacks(struct rdzv_server *s, const struct command *command,
                        struct rdzv_asking *asking) {
    if (s->deposed || s->config.parts.stacks.ask == NULL) {
        conn_answer(asking->conn, false,
                    s->deposed ? DEPOSED : "this agent cannot report what the workers do");
        return;
    }
    struct server_stacks *st = &s->stacks[command->period_ns > 0 ? ASK_PROFILE : ASK_STACKS];
    if (count(&st->waiting) + count(&st->asked) + count(&st->readers) >= ASKERS_MAX) {
        conn_answer(asking->conn, false,
                    "too many operators ask for stacks at the moment; try again");
        return;
    }
    if (st->what == ASK_PROFILE && (st->text != NULL || !list_empty(&st->waiting))) {
        char why[RDZV_REASON_MAX / 4];
        uint64_t now = clock_now_ns();
        (void)snprintf(why, sizeof why,
                       "another profile of this job is being taken; try again in %.0f s",
                       (double)(MAX2(st->over_ns, now) - now) / NS_PER_S + 1);
        conn_answer(asking->conn, false, why);
        return;
    }
    asking->of = st;
    asking->timeout_ns = command->timeout_ns;
    asking->period_ns = command->period_ns;
    asking->until_ns = TIME_NEVER;
    list_append(&st->waiting, &asking->link);
    st->over_ns = clock_now_ns() + command->timeout_ns;
    begin_if_due(st);
}

static void add_evidence(struct shared_text *t, uint32_t node, const char *json, size_t len) {
    struct wire_message m = {.kind = WIRE_EVIDENCE, .evidence = {.id = node, .first = true}};
    while (!m.evidence.last) {
        size_t n = rdzv_evidence_put(&m.evidence, json, len);
        wire_add_frame(&m, &t->frames);
        m.evidence.first = false;
        json += n;
        len -= n;
    }
}

void rdzv_server_stacks_add(struct rdzv_server *s, enum rdzv_ask_what what,
                            const struct rdzv_stacks *node, const char *json, size_t len) {
    struct shared_text *t = s->stacks[what].text;
    if (t == NULL)
        return;
    struct wire_message m = {.kind = WIRE_STACKS, .stacks = *node};
    if (m.stacks.missing[0] == '\0' && (json == NULL || len == 0))
        (void)strcpy(m.stacks.missing, "it had nothing to report");
    else if (m.stacks.missing[0] == '\0' && t->frames.len + len > ANSWER_BYTES_MAX)
        (void)strcpy(m.stacks.missing, "left out: the answer would be too long");
    wire_add_frame(&m, &t->frames);
    if (m.stacks.missing[0] == '\0')
        add_evidence(t, node->node, json, len);
}

void rdzv_server_stacks_end(struct rdzv_server *s, enum rdzv_ask_what what, const char *why_not) {
    struct server_stacks *st = &s->stacks[what];
    struct shared_text *t = TAKE_PTR(st->text);
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    st->rest_until_ns = now + REST_NS;
    LIST_FOR_EACH(struct rdzv_asking, a, &st->asked, link) {
        if (why_not != NULL) {
            server_asking_end(a);
            conn_answer(a->conn, false, why_not);
            continue;
        }
        list_remove(&a->link);
        list_append(&st->readers, &a->link);
        a->until_ns = now + READ_NS + (t->frames.len >> 20) * READ_NS_PER_MIB;
        text_send(t, a->conn);
    }
    text_unref(t);
    begin_if_due(st);
}

void server_operators_init(struct rdzv_server *s) {
    list_init(&s->overviews.asking);
    list_init(&s->overviews.asked);
    s->overviews.timer = loop_timer_new(s->loop, on_status_timer, s);
    for (size_t i = 0; i < ARRAY_SIZE(s->stacks); i++) {
        struct server_stacks *st = &s->stacks[i];
        st->server = s;
        st->what = (enum rdzv_ask_what)i;
        list_init(&st->waiting);
        list_init(&st->asked);
        list_init(&st->readers);
        st->timer = loop_timer_new(s->loop, begin_if_due, st);
    }
}

static void end_all(struct list *asking, bool cut) {
    LIST_FOR_EACH(struct rdzv_asking, a, asking, link) {
        a->of = NULL;
        list_remove(&a->link);
        if (cut)
            conn_cut(a->conn);
    }
}

/* Operators that wait get no answer here, and ask again. */
void server_operators_fini(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    end_all(&o->asking, true);
    end_all(&o->asked, true);
    free(o->rows);
    text_unref(o->text);
    loop_timer_free(o->timer);
    for (size_t k = 0; k < ARRAY_SIZE(s->stacks); k++) {
        struct server_stacks *st = &s->stacks[k];
        end_all(&st->waiting, true);
        end_all(&st->asked, true);
        end_all(&st->readers, false);
        text_unref(st->text);
        loop_timer_free(st->timer);
    }
}
