/* The answer to operators that ask for the status: one text, made in slices, for all that have
 * asked by then. Making and sending it gets a fixed share of the leader's time, however many
 * operators ask: one that asks meanwhile waits for the next text. */
#include <string.h>

#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

/* The share of a core that operators get: one part in this many. */
#define SHARE 10
/* What an answer costs in addition to its bytes: reading the question, and system calls. */
#define ANSWER_NS (50 * NS_PER_US)
#define BYTES_PER_NS 2
/* The limit of texts that are still being read; with one more, the readers of the oldest are
 * disconnected. */
#define TEXTS_MAX 4

/* Frames, shared by the connections that send them. */
struct overview_text {
    struct list link;    /* in overviews.texts */
    struct list readers; /* struct rdzv_asking, by link */
    unsigned refs;
    struct strbuf frames;
};

static void text_unref(void *arg) {
    struct overview_text *t = arg;
    if (--t->refs > 0)
        return;
    struct rdzv_asking *a;
    while ((a = LIST_FIRST(struct rdzv_asking, &t->readers, link)) != NULL)
        list_remove(&a->link);
    list_remove(&t->link);
    strbuf_fini(&t->frames);
    free(t);
}

/* Disconnects the slowest readers, so that other operators get answers. */
static void make_room(struct overviews *o) {
    size_t n = 0;
    LIST_FOR_EACH(struct overview_text, t, &o->texts, link)
        n++;
    struct overview_text *oldest = LIST_FIRST(struct overview_text, &o->texts, link);
    if (n < TEXTS_MAX)
        return;
    LIST_FOR_EACH(struct rdzv_asking, a, &oldest->readers, link) {
        if (conn_unsent(a->conn) > 0)
            conn_cut(a->conn);
        list_remove(&a->link);
    }
}

/* Copies the current state as plain data; making the text takes longer. */
static void begin(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    struct wire_message m = {.kind = WIRE_OVERVIEW};
    uint64_t now = clock_now_ns();
    make_room(o);
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
    o->rows = xcalloc(m.overview.n_nodes + 1, sizeof *o->rows);
    o->n_rows = (uint32_t)group_overview_nodes(s->group, now, 0, o->rows, m.overview.n_nodes);
    assert(o->n_rows == m.overview.n_nodes);
    o->next_row = 0;
    o->text = xcalloc(1, sizeof *o->text);
    o->text->refs = 1;
    list_init(&o->text->readers);
    list_append(&o->texts, &o->text->link);
    wire_add_frame(&m, &o->text->frames);
    while (!list_empty(&o->asking)) {
        struct rdzv_asking *a = LIST_FIRST(struct rdzv_asking, &o->asking, link);
        list_remove(&a->link);
        list_append(&o->text->readers, &a->link);
    }
}

static void go_on(struct rdzv_server *s) {
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
static uint64_t send_all(struct overviews *o) {
    struct overview_text *t = TAKE_PTR(o->text);
    uint64_t cost_ns = 0;
    free(TAKE_PTR(o->rows));
    LIST_FOR_EACH(struct rdzv_asking, a, &t->readers, link) {
        a->waits = false;
        t->refs++;
        conn_send_frames(a->conn, strbuf_text(&t->frames), t->frames.len, text_unref, t);
        cost_ns += ANSWER_NS + t->frames.len / BYTES_PER_NS;
    }
    text_unref(t);
    return cost_ns;
}

static void work(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    uint64_t began = clock_now_ns();
    if (o->text == NULL && (list_empty(&o->asking) || began < o->rest_until_ns))
        return;
    if (o->text == NULL)
        begin(s);
    go_on(s);
    bool all = o->next_row == o->n_rows;
    uint64_t sending_ns = all ? send_all(o) : 0;
    uint64_t now = clock_now_ns();
    o->cost_ns += now - began + sending_ns;
    if (all) {
        o->rest_until_ns = now + o->cost_ns * (SHARE - 1);
        o->cost_ns = 0;
    }
}

static void set_timer(struct overviews *o) {
    uint64_t at = list_empty(&o->asking) ? TIME_NEVER : o->rest_until_ns;
    loop_timer_set(o->timer, o->text != NULL ? clock_now_ns() : at);
}

static void on_timer(void *arg) {
    struct rdzv_server *s = arg;
    work(s);
    set_timer(&s->overviews);
}

void server_overviews_init(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    list_init(&o->asking);
    list_init(&o->texts);
    o->timer = loop_timer_new(s->loop, on_timer, s);
}

/* Operators that wait get no answer here: the job is over, or another agent leads, and they ask
 * again. */
void server_overviews_fini(struct rdzv_server *s) {
    struct overviews *o = &s->overviews;
    struct rdzv_asking *a;
    loop_timer_free(o->timer);
    free(TAKE_PTR(o->rows));
    if (o->text != NULL)
        LIST_FOR_EACH(struct rdzv_asking, reader, &o->text->readers, link) {
            list_remove(&reader->link);
            list_append(&o->asking, &reader->link);
        }
    while ((a = LIST_FIRST(struct rdzv_asking, &o->asking, link)) != NULL) {
        list_remove(&a->link);
        conn_cut(a->conn);
    }
    if (o->text != NULL)
        text_unref(TAKE_PTR(o->text));
    LIST_FOR_EACH(struct overview_text, t, &o->texts, link)
        list_remove(&t->link); /* freed by the last connection that sends it */
}

void rdzv_server_status(struct rdzv_server *s, struct rdzv_asking *asking) {
    if (s->deposed) {
        conn_answer(asking->conn, false, "this agent no longer leads; try again");
        return;
    }
    asking->waits = true;
    list_remove(&asking->link);
    list_append(&s->overviews.asking, &asking->link);
    if (s->overviews.text == NULL)
        work(s);
    set_timer(&s->overviews);
}
