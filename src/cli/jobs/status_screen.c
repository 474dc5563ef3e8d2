#include "cli/jobs/status_screen.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/duration.h"
#include "base/text/parse.h"
#include "cli/jobs/columns.h"

#define COLUMNS_LEAST 30 /* of the layout; lines are cut at the terminal's width */

/* A node's condition in one word: its place if it is not a member, else its state. */
enum condition {
    NEW = 0, /* it was not, or is not, in the list */
    PLACES = NEW,
    STATES = PLACES + PLACE_COUNT,
    UNCONNECTED = STATES + NODE_STATE_COUNT,
    CONDITION_COUNT,
};

struct status_seen {
    uint64_t incarnation;
    uint64_t changed_ns; /* 0: never */
    char name[RDZV_HOST_MAX];
    enum condition condition;
    bool is_listed; /* also by the answer that is being taken */
};

enum look { PLAIN, STRONG, CHANGED };
static const char *const look_on[] = {"", "\033[1m", "\033[7m"};

static enum condition condition_of(const struct overview_node *n) {
    if (!n->connected)
        return UNCONNECTED;
    return n->place == PLACE_MEMBER ? STATES + (unsigned)n->state : PLACES + (unsigned)n->place;
}

static const char *name_of(enum condition c) {
    return c == UNCONNECTED ? "no connection"
           : c >= STATES    ? node_state_names[c - STATES]
                            : overview_place_names[c - PLACES];
}

static int by_incarnation(const void *a, const void *b) {
    const struct status_seen *x = a, *y = b;
    return x->incarnation < y->incarnation ? -1 : x->incarnation > y->incarnation;
}

static struct status_seen *find_seen(const struct status_screen *s, uint64_t incarnation) {
    struct status_seen key = {.incarnation = incarnation};
    return s->n_seen > 0 ? bsearch(&key, s->seen, s->n_seen, sizeof key, by_incarnation) : NULL;
}

static void add_event(struct status_screen *s, uint64_t at_ns, const char *text) {
    uint32_t kept = MIN2(s->n_events, (uint32_t)STATUS_EVENTS_MAX - 1);
    memmove(&s->events[1], &s->events[0], kept * sizeof s->events[0]);
    s->events[0].at_ns = at_ns;
    (void)snprintf(s->events[0].text, sizeof s->events[0].text, "%s", text);
    s->n_events = kept + 1;
}

/* So many nodes went from one condition to another; `name` is one of them. */
static void add_changes(struct status_screen *s, uint64_t now_ns, uint32_t n, const char *name,
                        enum condition from, enum condition to) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (n == 1)
        columns_add_clean(&text, name);
    else
        strbuf_printf(&text, "%" PRIu32 " nodes", n);
    if (from == NEW)
        strbuf_printf(&text, ": new, %s", name_of(to));
    else if (to == NEW)
        strbuf_printf(&text, ": gone, was %s", name_of(from));
    else
        strbuf_printf(&text, ": %s, was %s", name_of(to), name_of(from));
    add_event(s, now_ns, strbuf_text(&text));
}

struct changes {
    uint32_t n[CONDITION_COUNT][CONDITION_COUNT];
    const char *name[CONDITION_COUNT][CONDITION_COUNT];
};

static void count_change(struct changes *c, enum condition from, enum condition to,
                         const char *name) {
    if (from == to)
        return;
    c->n[from][to]++;
    c->name[from][to] = name;
}

static void update_nodes(struct status_screen *s, const struct status_view *v, uint64_t now_ns) {
    struct status_seen *next = xcalloc(MAX2(v->n_nodes, 1u), sizeof *next);
    struct changes changes = {0};
    bool first = s->state == 0;
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        const struct overview_node *n = &v->nodes[i];
        struct status_seen *old = find_seen(s, n->incarnation), *new = &next[i];
        *new = (struct status_seen){.incarnation = n->incarnation, .condition = condition_of(n)};
        (void)snprintf(new->name, sizeof new->name, "%s", n->name);
        enum condition from = old != NULL ? old->condition : NEW;
        new->changed_ns = first ? 0 : from != new->condition ? now_ns : old->changed_ns;
        if (!first)
            count_change(&changes, from, new->condition, new->name);
        if (old != NULL)
            old->is_listed = true;
    }
    for (uint32_t i = 0; i < s->n_seen; i++)
        if (!s->seen[i].is_listed)
            count_change(&changes, s->seen[i].condition, NEW, s->seen[i].name);
    for (unsigned from = 0; from < CONDITION_COUNT; from++)
        for (unsigned to = 0; to < CONDITION_COUNT; to++)
            if (changes.n[from][to] > 0)
                add_changes(s, now_ns, changes.n[from][to], changes.name[from][to], from, to);
    qsort(next, v->n_nodes, sizeof *next, by_incarnation);
    free(s->seen);
    s->seen = next;
    s->n_seen = v->n_nodes;
}

static void update_job(struct status_screen *s, const struct overview *o, uint64_t now_ns) {
    char text[sizeof s->events[0].text];
    if (o->incident[0] != '\0' && strcmp(o->incident, s->incident) != 0)
        add_event(s, now_ns - MIN2(now_ns, o->incident_ns), o->incident);
    (void)strcpy(s->incident, o->incident);
    bool formed =
        !generation_is_none(o->generation) && (o->generation.epoch != s->generation.epoch ||
                                               o->generation.counter != s->generation.counter);
    if (formed && s->state != 0) {
        _cleanup_(strbuf_fini) struct strbuf attempt = {0};
        status_attempt(o, &attempt);
        add_event(s, now_ns, strbuf_text(&attempt));
    }
    s->generation = o->generation;
    if (s->state != 0 && s->state != o->state) {
        (void)snprintf(text, sizeof text, "the job: %s, was %s", group_state_names[o->state],
                       group_state_names[s->state]);
        add_event(s, now_ns, text);
        s->state_ns = now_ns;
    }
    s->state = o->state;
}

void status_screen_update(struct status_screen *s, const struct status_view *v, uint64_t now_ns) {
    update_nodes(s, v, now_ns);
    update_job(s, v->overview, now_ns);
}

void status_screen_fini(struct status_screen *s) {
    free(s->seen);
    *s = (struct status_screen){0};
}

struct frame {
    struct strbuf *out;
    struct screen_size size;
    uint32_t used; /* rows */
};

/* One column stays free: a terminal that has written its last column clears it. */
static void put(struct frame *f, const char *text, size_t n, enum look look) {
    if (f->used == f->size.rows)
        return;
    size_t whole = columns_bytes(text, MAX2(f->size.columns, 2U) - 1);
    strbuf_add(f->out, f->used++ > 0 ? "\r\n" : "\033[H");
    strbuf_add(f->out, look_on[look]);
    strbuf_add_bytes(f->out, text, MIN2(n, whole));
    strbuf_add(f->out, look != PLAIN ? "\033[0m\033[K" : "\033[K");
}

static void put_line(struct frame *f, const struct strbuf *text, enum look look) {
    put(f, strbuf_text(text), text->len, look);
}

/* "62 running, 1 failed": of nodes, or of the ranks of members. */
static void add_counts(const uint64_t counts[CONDITION_COUNT], struct strbuf *out) {
    const char *between = "";
    for (unsigned pass = 0; pass < 2; pass++) /* members first */
        for (unsigned c = pass == 0 ? STATES : NEW; c < (pass == 0 ? CONDITION_COUNT : STATES); c++)
            if (counts[c] > 0) {
                strbuf_printf(out, "%s%" PRIu64 " %s", between, counts[c], name_of(c));
                between = ", ";
            }
}

static void put_counts(struct frame *f, const struct status_view *v) {
    uint64_t nodes[CONDITION_COUNT] = {0}, ranks[CONDITION_COUNT] = {0};
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        const struct overview_node *n = &v->nodes[i];
        nodes[condition_of(n)]++;
        if (n->place == PLACE_MEMBER)
            ranks[condition_of(n)] += n->nproc;
    }
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    strbuf_add(&line, "  nodes      ");
    add_counts(nodes, &line);
    put_line(f, &line, PLAIN);
    strbuf_clear(&line);
    strbuf_add(&line, "  ranks      ");
    add_counts(ranks, &line);
    put_line(f, &line, PLAIN);
}

static void put_head(struct frame *f, const struct status_screen *s, const struct status_view *v,
                     const char *trouble, uint64_t now_ns) {
    _cleanup_(strbuf_fini) struct strbuf lines = {0};
    status_head(v, &lines);
    bool changed = s->state_ns != 0 && now_ns - s->state_ns < STATUS_CHANGED_NS;
    for (const char *line = strbuf_text(&lines); *line != '\0'; line = text_next_line(line)) {
        bool first = line == strbuf_text(&lines);
        put(f, line, strcspn(line, "\n"), first && changed ? CHANGED : first ? STRONG : PLAIN);
        if (first && trouble != NULL)
            put(f, trouble, strlen(trouble), CHANGED);
    }
    if (v->n_nodes > 0)
        put_counts(f, v);
}

/* 0: it needs attention; 1: it is not at work; 2: it is. */
static int urgency(const struct overview_node *n) {
    bool bad = !n->connected || n->why[0] != '\0' || n->place == PLACE_EXCLUDED ||
               n->place == PLACE_LEAVING || n->state == NODE_FAILED;
    bool works =
        n->place == PLACE_MEMBER && (n->state == NODE_RUNNING || n->state == NODE_FINISHED);
    return bad ? 0 : works ? 2 : 1;
}

/* Chooses `room` of the rows, in their order; ret has them. The others are counted. */
static size_t choose(const void *const *rows, size_t n, size_t room, const void **ret,
                     uint64_t left_out[CONDITION_COUNT]) {
    size_t kept = 0;
    for (int wanted = 0; wanted <= 2; wanted++)
        for (size_t i = 0; i < n; i++) {
            const struct overview_node *node = rows[i];
            if (n > room && urgency(node) != wanted)
                continue;
            if (n <= room && wanted > 0)
                break;
            if (kept < room)
                ret[kept++] = node;
            else
                left_out[condition_of(node)]++;
        }
    return kept;
}

static enum look look_of(const struct status_screen *s, const struct overview_node *n,
                         uint64_t now_ns) {
    const struct status_seen *seen = find_seen(s, n->incarnation);
    bool changed =
        seen != NULL && seen->changed_ns != 0 && now_ns - seen->changed_ns < STATUS_CHANGED_NS;
    return changed ? CHANGED : urgency(n) == 0 ? STRONG : PLAIN;
}

/* A blank line, the titles, and the nodes, in so many lines. */
static void put_table(struct frame *f, const struct status_screen *s, const struct status_view *v,
                      uint32_t lines, uint64_t now_ns) {
    if (v->n_nodes == 0 || lines < 3)
        return;
    size_t room = lines - 2 >= v->n_nodes ? v->n_nodes : lines - 3;
    uint64_t left_out[CONDITION_COUNT] = {0};
    _cleanup_(freep) const void **rows = status_order(v);
    _cleanup_(freep) const void **shown = xcalloc(MAX2(room, (size_t)1), sizeof *shown);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    size_t n_shown = choose(rows, v->n_nodes, room, shown, left_out);
    status_rows(v, shown, n_shown, &text);
    put(f, "", 0, PLAIN);
    const char *line = strbuf_text(&text);
    for (size_t i = 0; i <= n_shown; i++, line = text_next_line(line))
        put(f, line, strcspn(line, "\n"), i == 0 ? PLAIN : look_of(s, shown[i - 1], now_ns));
    if (n_shown == v->n_nodes)
        return;
    strbuf_clear(&text);
    strbuf_printf(&text, "and %zu more: ", v->n_nodes - n_shown);
    add_counts(left_out, &text);
    put_line(f, &text, PLAIN);
}

static void put_events(struct frame *f, const struct status_screen *s, uint32_t n,
                       uint64_t now_ns) {
    if (n == 0)
        return;
    put(f, "", 0, PLAIN);
    for (uint32_t i = 0; i < n; i++) {
        const struct status_event_line *e = &s->events[i];
        _cleanup_(strbuf_fini) struct strbuf line = {0}, age = {0};
        uint64_t age_ns = now_ns - MIN2(now_ns, e->at_ns);
        if (age_ns < 60 * NS_PER_S)
            strbuf_printf(&age, "%" PRIu64 " s", age_ns / NS_PER_S);
        else
            duration_text(age_ns, &age);
        strbuf_printf(&line, "%12s ago  ", strbuf_text(&age));
        columns_add_clean(&line, e->text);
        put_line(f, &line, age_ns < STATUS_CHANGED_NS ? CHANGED : PLAIN);
    }
}

void status_screen_draw(const struct status_screen *s, const struct status_view *v,
                        const char *trouble, const struct screen_size *size, uint64_t now_ns,
                        struct strbuf *out) {
    struct frame f = {.out = out, .size = *size};
    struct status_view view = *v;
    view.columns = MAX2(size->columns, COLUMNS_LEAST + 1u) - 1;
    put_head(&f, s, &view, trouble, now_ns);
    uint32_t left = f.size.rows - f.used, table = view.n_nodes > 0 ? view.n_nodes + 2 : 0;
    uint32_t free_lines = left > table + 1 ? left - table - 1 : 0;
    uint32_t events = MIN2(s->n_events, MAX2(free_lines, MAX2(left / 4, 1u)));
    uint32_t for_events = events > 0 && left > events + 1 ? events + 1 : 0;
    put_table(&f, s, &view, left - for_events, now_ns);
    put_events(&f, s, for_events > 0 ? events : 0, now_ns);
    strbuf_add(out, "\033[J");
}
