/* The answer to operators that ask what the workers do: gathered once for all that have asked by
 * then, and made once, as text. Those who ask meanwhile wait for the next one. An operator that
 * does not read costs its place and that text, until its deadline. */
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
    struct rdzv_server *server;
    struct conn *conn;    /* owned */
    uint64_t timeout_ns;  /* that it asked for */
    uint64_t deadline_ns; /* while it reads its answer */
};

static void set_timer(struct rdzv_server *s);

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
    a->server->stacks.n_askers--;
    free(a);
    return conn;
}

static void refuse(struct conn *conn, const char *why) {
    server_answer(&(struct server_asker){.conn = conn}, false, why);
    conn_finish(conn);
}

/* ---- questions ---- */

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)c;
    (void)m; /* one question is all that is answered on this connection */
    conn_free(forget(arg));
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)c;
    (void)code;
    (void)text;
    conn_free(forget(arg));
}

static const struct conn_ops asker_ops = {.on_message = on_message, .on_closed = on_closed};

static void begin(struct rdzv_server *s) {
    struct server_stacks *st = &s->stacks;
    uint64_t timeout_ns = 0;
    struct stacks_asker *a;
    while ((a = LIST_FIRST(struct stacks_asker, &st->waiting, link)) != NULL) {
        timeout_ns = MAX2(timeout_ns, a->timeout_ns);
        list_remove(&a->link);
        list_append(&st->asked, &a->link);
    }
    st->text = xcalloc(1, sizeof *st->text);
    st->text->refs = 1;
    s->config.parts.stacks.ask(s->config.parts.stacks.arg, timeout_ns);
}

static void begin_if_due(struct rdzv_server *s) {
    struct server_stacks *st = &s->stacks;
    if (st->text == NULL && !list_empty(&st->waiting) && clock_now_ns() >= st->rest_until_ns)
        begin(s);
}

void rdzv_server_stacks(struct rdzv_server *s, const struct command *command, struct conn *conn) {
    if (s->deposed || s->config.parts.stacks.ask == NULL) {
        refuse(conn, s->deposed ? "this agent no longer leads; try again"
                                : "this agent cannot report what the workers do");
        return;
    }
    if (s->stacks.n_askers >= ASKERS_MAX) {
        refuse(conn, "too many operators ask for stacks at the moment; try again");
        return;
    }
    struct stacks_asker *a = xcalloc(1, sizeof *a);
    *a = (struct stacks_asker){.server = s, .conn = conn, .timeout_ns = command->timeout_ns};
    conn_set_owner(conn, &asker_ops, a);
    list_append(&s->stacks.waiting, &a->link);
    s->stacks.n_askers++;
    begin_if_due(s);
    set_timer(s);
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

void rdzv_server_stacks_add(struct rdzv_server *s, const struct rdzv_stacks *node, const char *json,
                            size_t len) {
    struct stacks_text *t = s->stacks.text;
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

void rdzv_server_stacks_end(struct rdzv_server *s, const char *why_not) {
    struct server_stacks *st = &s->stacks;
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
    set_timer(s);
}

/* ---- time ---- */

static void set_timer(struct rdzv_server *s) {
    const struct server_stacks *st = &s->stacks;
    uint64_t at = TIME_NEVER;
    LIST_FOR_EACH(struct stacks_asker, a, &st->readers, link)
        at = MIN2(at, a->deadline_ns);
    if (st->text == NULL && !list_empty(&st->waiting))
        at = MIN2(at, st->rest_until_ns);
    loop_timer_set(st->timer, at);
}

static void on_timer(void *arg) {
    struct rdzv_server *s = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct stacks_asker, a, &s->stacks.readers, link)
        if (a->deadline_ns <= now)
            conn_free(forget(a));
    begin_if_due(s);
    set_timer(s);
}

void server_stacks_init(struct rdzv_server *s) {
    list_init(&s->stacks.waiting);
    list_init(&s->stacks.asked);
    list_init(&s->stacks.readers);
    s->stacks.timer = loop_timer_new(s->loop, on_timer, s);
}

/* Those who wait get no answer here: the job is over, or another agent leads, whom they can ask. */
void server_stacks_fini(struct rdzv_server *s) {
    struct server_stacks *st = &s->stacks;
    struct list *lists[] = {&st->waiting, &st->asked, &st->readers};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        LIST_FOR_EACH(struct stacks_asker, a, lists[i], link)
            conn_finish(forget(a));
    if (st->text != NULL)
        text_unref(TAKE_PTR(st->text));
    loop_timer_free(st->timer);
}
