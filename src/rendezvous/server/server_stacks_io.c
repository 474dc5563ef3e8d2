/* The answer to operators that ask what the workers do: gathered once for all that have asked by
 * then, and made once, as text. Those who ask meanwhile wait for the next one; samples take long,
 * so they are refused then. An operator that does not read costs its place and that text, until its
 * deadline. */
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

/* At once, those included whose answer is still being sent. */
#define ASKERS_MAX 16
/* Between two gatherings: each costs every node some CPU time. */
#define REST_NS NS_PER_S
/* Of an answer. The evidence of further nodes is left out. */
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
/* How long an operator may take to read its answer. */
#define READ_NS (10 * NS_PER_S)
#define READ_NS_PER_MIB NS_PER_S

/* Frames, shared by the connections that send them. */
struct stacks_text {
    unsigned refs;
    struct strbuf frames;
};

struct stacks_asker {
    struct list link;
    struct server_stacks *of;
    struct conn *conn;    /* owned */
    uint64_t timeout_ns;  /* that it asked for */
    uint64_t period_ns;   /* the same */
    uint64_t deadline_ns; /* while it reads its answer */
};

static void set_timer(struct server_stacks *st);

static void text_unref(void *arg) {
    struct stacks_text *t = arg;
    if (--t->refs > 0)
        return;
    strbuf_fini(&t->frames);
    free(t);
}

/* Returns its connection, which the caller ends. */
static struct conn *forget(struct stacks_asker *a) {
    struct conn *conn = a->conn;
    list_remove(&a->link);
    a->of->n_askers--;
    free(a);
    return conn;
}

/* It has gone. Samples that no other operator waits for are not in the way of the next one's. */
static void leave(struct stacks_asker *a) {
    struct server_stacks *st = a->of;
    conn_free(forget(a));
    if (st->what == ASK_PROFILE && st->text != NULL && list_empty(&st->asked)) {
        st->server->config.parts.stacks.cancel(st->server->config.parts.stacks.arg, st->what);
        text_unref(TAKE_PTR(st->text));
    }
}

static void refuse(struct conn *conn, const char *why) {
    conn_answer(conn, false, why);
    conn_finish(conn);
}

/* ---- questions ---- */

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)m; /* one question is all that is answered on this connection */
    leave(arg);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) { leave(arg); }

static const struct conn_ops asker_ops = {.on_message = on_message, .on_closed = on_closed};

static void begin(struct server_stacks *st) {
    const struct rdzv_server_config *config = &st->server->config;
    uint64_t timeout_ns = 0, period_ns = 0;
    struct stacks_asker *a;
    while ((a = LIST_FIRST(struct stacks_asker, &st->waiting, link)) != NULL) {
        timeout_ns = MAX2(timeout_ns, a->timeout_ns);
        period_ns = a->period_ns;
        list_remove(&a->link);
        list_append(&st->asked, &a->link);
    }
    st->text = xcalloc(1, sizeof *st->text);
    st->text->refs = 1;
    config->parts.stacks.ask(config->parts.stacks.arg, period_ns, timeout_ns);
}

static void begin_if_due(struct server_stacks *st) {
    if (st->text == NULL && !list_empty(&st->waiting) && clock_now_ns() >= st->rest_until_ns)
        begin(st);
}

void rdzv_server_stacks(struct rdzv_server *s, const struct command *command, struct conn *conn) {
    if (s->deposed || s->config.parts.stacks.ask == NULL) {
        refuse(conn, s->deposed ? "this agent no longer leads; try again"
                                : "this agent cannot report what the workers do");
        return;
    }
    struct server_stacks *st = &s->stacks[command->period_ns > 0 ? ASK_PROFILE : ASK_STACKS];
    if (st->n_askers >= ASKERS_MAX) {
        refuse(conn, "too many operators ask for stacks at the moment; try again");
        return;
    }
    if (st->what == ASK_PROFILE && (st->text != NULL || !list_empty(&st->waiting))) {
        char why[RDZV_REASON_MAX / 4];
        uint64_t now = clock_now_ns();
        (void)snprintf(why, sizeof why,
                       "another profile of this job is being taken; try again in %.0f s",
                       (double)(MAX2(st->over_ns, now) - now) / NS_PER_S + 1);
        refuse(conn, why);
        return;
    }
    struct stacks_asker *a = xcalloc(1, sizeof *a);
    *a = (struct stacks_asker){
        .of = st, .conn = conn, .timeout_ns = command->timeout_ns, .period_ns = command->period_ns};
    conn_set_owner(conn, &asker_ops, a);
    list_append(&st->waiting, &a->link);
    st->n_askers++;
    st->over_ns = clock_now_ns() + command->timeout_ns;
    begin_if_due(st);
    set_timer(st);
}

/* ---- the answer ---- */

/* The bytes of a piece: it ends between two characters of UTF-8. */
static size_t piece_len(const char *text, size_t len) {
    size_t n = MIN2(len, RDZV_EVIDENCE_CHUNK_MAX - 1);
    for (unsigned i = 0; i < 3 && n < len && n > 1 && ((unsigned char)text[n] & 0xc0) == 0x80; i++)
        n--;
    return n;
}

static void add_evidence(struct stacks_text *t, uint32_t node, const char *json, size_t len) {
    struct wire_message m = {.kind = WIRE_EVIDENCE, .evidence = {.id = node, .first = true}};
    do {
        size_t n = piece_len(json, len);
        memcpy(m.evidence.text, json, n);
        m.evidence.text[n] = '\0';
        m.evidence.last = n == len;
        wire_add_frame(&m, &t->frames);
        m.evidence.first = false;
        json += n;
        len -= n;
    } while (len > 0);
}

void rdzv_server_stacks_add(struct rdzv_server *s, enum rdzv_ask_what what,
                            const struct rdzv_stacks *node, const char *json, size_t len) {
    struct stacks_text *t = s->stacks[what].text;
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
    struct stacks_text *t = TAKE_PTR(st->text);
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    st->rest_until_ns = now + REST_NS;
    LIST_FOR_EACH(struct stacks_asker, a, &st->asked, link) {
        if (why_not != NULL) {
            refuse(forget(a), why_not);
            continue;
        }
        list_remove(&a->link);
        list_append(&st->readers, &a->link);
        a->deadline_ns = now + READ_NS + (t->frames.len >> 20) * READ_NS_PER_MIB;
        t->refs++;
        conn_send_frames(a->conn, strbuf_text(&t->frames), t->frames.len, text_unref, t);
    }
    text_unref(t);
    set_timer(st);
}

/* ---- time ---- */

static void set_timer(struct server_stacks *st) {
    uint64_t at = TIME_NEVER;
    LIST_FOR_EACH(struct stacks_asker, a, &st->readers, link)
        at = MIN2(at, a->deadline_ns);
    if (st->text == NULL && !list_empty(&st->waiting))
        at = MIN2(at, st->rest_until_ns);
    loop_timer_set(st->timer, at);
}

static void on_timer(void *arg) {
    struct server_stacks *st = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct stacks_asker, a, &st->readers, link)
        if (a->deadline_ns <= now)
            conn_free(forget(a));
    begin_if_due(st);
    set_timer(st);
}

void server_stacks_init(struct rdzv_server *s) {
    for (size_t i = 0; i < ARRAY_SIZE(s->stacks); i++) {
        struct server_stacks *st = &s->stacks[i];
        st->server = s;
        st->what = (enum rdzv_ask_what)i;
        list_init(&st->waiting);
        list_init(&st->asked);
        list_init(&st->readers);
        st->timer = loop_timer_new(s->loop, on_timer, st);
    }
}

/* Those who wait get no answer here: the job is over, or another agent leads, whom they can ask. */
void server_stacks_fini(struct rdzv_server *s) {
    for (size_t k = 0; k < ARRAY_SIZE(s->stacks); k++) {
        struct server_stacks *st = &s->stacks[k];
        struct list *lists[] = {&st->waiting, &st->asked, &st->readers};
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
            LIST_FOR_EACH(struct stacks_asker, a, lists[i], link)
                conn_finish(forget(a));
        if (st->text != NULL)
            text_unref(TAKE_PTR(st->text));
        loop_timer_free(st->timer);
    }
}
