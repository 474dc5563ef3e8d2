#include "cli/jobs/status_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/duration.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "cli/jobs/columns.h"
#include "watchdog/judge/hang.h"

#define LABEL_COLUMNS 13 /* where the text of a line begins */
#define NAME_MIN 20      /* columns of a name that is cut */
#define NOTE_MIN 8

/* The name of a node of the list, or its incarnation. */
static void add_name_of(const struct status_view *v, uint64_t incarnation, struct strbuf *out) {
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        if (v->nodes[i].incarnation == incarnation && v->nodes[i].name[0] != '\0') {
            columns_add_clean(out, v->nodes[i].name);
            return;
        }
    }
    strbuf_printf(out, "%016" PRIx64, incarnation);
}

static void add_label(struct strbuf *out, const char *label) {
    strbuf_printf(out, "  %-11s", label);
}

static void add_span(struct strbuf *out, const char *before, uint64_t ns, const char *after) {
    strbuf_add(out, before);
    duration_text(ns, out);
    strbuf_add(out, after);
}

/* A line with a text that others have written; "": none. */
static void add_line(struct strbuf *out, const char *label, const char *text) {
    if (text[0] == '\0')
        return;
    add_label(out, label);
    columns_add_clean(out, text);
    strbuf_add_char(out, '\n');
}

static bool is_over(const struct overview *o) {
    return o->state == GROUP_CLOSED && o->outcome != OUTCOME_NONE;
}

const char *status_state(const struct overview *o) {
    return !is_over(o)                     ? group_state_names[o->state]
           : o->outcome == OUTCOME_SUCCESS ? "succeeded"
                                           : "failed";
}

static void add_state(const struct status_view *v, struct strbuf *out) {
    const struct overview *o = v->overview;
    bool over = is_over(o);
    strbuf_add(out, "job ");
    columns_add_clean(out, v->run_id);
    strbuf_printf(out, ": %s", status_state(o));
    if (o->leader != 0 || o->since_ns != 0)
        add_span(out, over ? " " : " for ", o->since_ns, over ? " ago" : "");
    strbuf_add_char(out, '\n');
}

void status_attempt(const struct overview *o, struct strbuf *out) {
    strbuf_printf(out, "attempt %" PRIu32 ": %" PRIu32 " node%s, %" PRIu32 " worker%s",
                  overview_attempt(o), o->n_members, plural(o->n_members), o->world_size,
                  plural(o->world_size));
}

static void add_group(const struct overview *o, struct strbuf *out) {
    add_label(out, "group");
    if (generation_is_none(o->generation)) {
        strbuf_add(out, "none yet");
    } else {
        status_attempt(o, out);
        if (o->running_ns != 0)
            add_span(out, ", started ", o->running_ns, " ago");
    }
    strbuf_add_char(out, '\n');
    add_label(out, "wanted");
    strbuf_printf(out, "%" PRIu32 " to %" PRIu32 " nodes", o->min_nodes, o->max_nodes);
    if (o->node_unit > 1)
        strbuf_printf(out, ", a multiple of %" PRIu32, o->node_unit);
    strbuf_printf(out, "; %" PRIu32 " spare%s, %" PRIu32 " excluded\n", o->n_spares,
                  plural(o->n_spares), o->n_excluded);
}

/* How long; NULL: nothing is shown, as while the workers start. */
static const char *quiet_words(const struct rdzv_watchdog *w) {
    switch (w->state) {
    case WATCHDOG_NONE:
    case WATCHDOG_OK:
    case WATCHDOG_STATE_COUNT: return NULL;
    case WATCHDOG_STARTING:
        return w->quiet_ns < HANG_FIRST_SIGNS_NS ? NULL
                                                 : "most workers have not begun to work, for ";
    case WATCHDOG_QUIET: return "quiet for ";
    case WATCHDOG_HUNG: return "hung, quiet for ";
    }
    return NULL;
}

/* Nothing while most workers move. */
static void add_watchdog(const struct overview *o, struct strbuf *out) {
    const struct rdzv_watchdog *w = &o->watchdog;
    const char *words = quiet_words(w);
    if (w->said[0] != '\0' && w->quiet_ns < NS_PER_S) { /* one asks for input: nothing is counted */
        add_line(out, "watchdog", w->said);
        return;
    }
    if (words == NULL)
        return;
    add_label(out, "watchdog");
    add_span(out, words, w->quiet_ns, "");
    if (w->state != WATCHDOG_HUNG && w->limit_ns != UINT64_MAX)
        add_span(out, " (limit ", w->limit_ns, ")");
    if (w->said[0] != '\0') {
        strbuf_add(out, ": ");
        columns_add_clean(out, w->said);
    }
    strbuf_add_char(out, '\n');
}

static void add_time(const struct rdzv_time *t, struct strbuf *out) {
    add_line(out, "time", t->text);
    add_line(out, "late", t->late);
    if (t->start.first_step_ns == 0)
        return;
    add_label(out, "first step");
    add_span(out, "after ", t->start.first_step_ns, ": import ");
    add_span(out, "", t->start.import_ns, ", init ");
    add_span(out, "", t->start.init_ns, ", load ");
    add_span(out, "", t->start.load_ns, "\n");
}

static void add_leader(const struct status_view *v, struct strbuf *out) {
    const struct overview *o = v->overview;
    add_label(out, "leader");
    if (o->leader_host[0] != '\0')
        columns_add_clean(out, o->leader_host);
    else
        add_name_of(v, o->leader, out);
    if (o->endpoint[0] != '\0') {
        strbuf_add(out, " at ");
        columns_add_clean(out, o->endpoint);
    }
    strbuf_printf(out, ", epoch %" PRIu32, o->epoch);
    const char *between = "; next in line: ";
    for (size_t i = 0; i < RDZV_SUCCESSORS_MAX; i++) {
        if (o->successors[i] == 0)
            continue;
        strbuf_add(out, between);
        add_name_of(v, o->successors[i], out);
        between = ", ";
    }
    strbuf_add_char(out, '\n');
}

static void add_access(const struct overview *o, struct strbuf *out) {
    const struct rdzv_access *access = &o->access;
    char keys[AUTH_KEYS_TEXT_MAX];
    add_label(out, "access");
    switch (access->state) {
    case AUTH_STATE_KEYS:
        auth_keys_text(access->keys, access->n_keys, keys);
        strbuf_printf(out, "by key: %s", access->n_keys > 0 ? keys : "munge is asked");
        break;
    case AUTH_STATE_OPEN: strbuf_add(out, "open: any host that reaches the job's ports"); break;
    case AUTH_STATE_LOCAL: strbuf_add(out, "this machine only"); break;
    case AUTH_STATE_NONE:
        strbuf_add(out, "any host that reaches the job's ports (--auth=none)");
        break;
    case AUTH_STATE_COUNT: break;
    }
    if (access->refused > 0)
        strbuf_printf(out, "; %" PRIu64 " connection%s refused", access->refused,
                      plural(access->refused));
    strbuf_add_char(out, '\n');
}

struct domain {
    const char *name;
    uint32_t members, available; /* available: others that can get a place */
};

static int compare_domains(const void *a, const void *b) {
    const struct overview_node *x = *(const void *const *)a, *y = *(const void *const *)b;
    int by_nature = natural_compare(x->domain, y->domain);
    return by_nature != 0 ? by_nature : strcmp(x->domain, y->domain);
}

/* All nodes, those of one domain together. malloc'ed. */
static const void **by_domain(const struct status_view *v) {
    const void **rows = status_order(v);
    qsort(rows, v->n_nodes, sizeof *rows, compare_domains);
    return rows;
}

/* Counts the nodes of the next domain, which begin at *at or later. False: there is none. */
static bool next_domain(const void *const *rows, uint32_t n, uint32_t *at, struct domain *ret) {
    *ret = (struct domain){.name = ""};
    for (; *at < n; (*at)++) {
        const struct overview_node *node = rows[*at];
        if (ret->name[0] != '\0' && strcmp(ret->name, node->domain) != 0)
            break;
        ret->name = node->domain;
        ret->members += node->place == PLACE_MEMBER;
        ret->available += node->place == PLACE_SPARE || node->place == PLACE_WAITING;
        if (node->domain[0] == '\0')
            *ret = (struct domain){.name = ""};
    }
    return ret->name[0] != '\0';
}

static void add_domains(const struct status_view *v, struct strbuf *out) {
    _cleanup_(freep) const void **rows = by_domain(v);
    struct domain d;
    for (uint32_t at = 0; next_domain(rows, v->n_nodes, &at, &d);) {
        add_label(out, "domain");
        columns_add_clean(out, d.name);
        strbuf_printf(out, ": %" PRIu32 " in the group, %" PRIu32 " available\n", d.members,
                      d.available);
    }
}

/* Of the members, with --warm. */
static void add_warm(const struct status_view *v, struct strbuf *out) {
    uint64_t warm = 0, cold = 0, waiting = 0;
    const struct overview_node *first = NULL;
    bool any = false;
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        const struct overview_node *n = &v->nodes[i];
        if (n->place != PLACE_MEMBER || !n->has_warm)
            continue;
        any = true;
        warm += n->warm.warm;
        cold += n->warm.cold;
        waiting += n->warm.waiting;
        if (n->warm.reason[0] != '\0' && (first == NULL || n->node_rank < first->node_rank))
            first = n;
    }
    if (!any)
        return;
    add_label(out, "warm");
    if (warm + cold > 0)
        strbuf_printf(out, "%" PRIu64 " of %" PRIu64 " worker%s started warm; ", warm, warm + cold,
                      plural(warm + cold));
    strbuf_printf(out, "%" PRIu64 " process%s for the next start", waiting,
                  waiting == 1 ? " waits" : "es wait");
    if (first != NULL) {
        strbuf_add(out, cold > 0 ? "; cold because " : "; because ");
        columns_add_clean(out, first->warm.reason);
        if (v->overview->n_members > 1) {
            strbuf_add(out, " (");
            columns_add_clean(out, first->name);
            strbuf_add_char(out, ')');
        }
    }
    strbuf_add_char(out, '\n');
}

/* "rank 0 (node vm) died of SIGSEGV, 12 s ago, restarted in 4 ms" */
static void add_event(const struct overview *o, struct strbuf *out) {
    if (o->incident[0] == '\0')
        return;
    add_label(out, "last");
    columns_add_clean(out, o->incident);
    add_span(out, ", ", o->incident_ns, " ago");
    if (o->restart_ns != 0)
        add_span(out, ", restarted in ", o->restart_ns, "");
    strbuf_add_char(out, '\n');
}

static void add_job(const struct overview *o, struct strbuf *out) {
    add_line(out, "command", o->command);
    if (o->job_ns != 0) {
        add_label(out, o->leader != 0 ? "age" : "ran for");
        add_span(out, "", o->job_ns, "\n");
    }
}

static void add_lines(const struct status_view *v, struct strbuf *out) {
    const struct overview *o = v->overview;
    add_state(v, out);
    add_job(o, out);
    if (o->leader != 0) {
        add_group(o, out);
        add_watchdog(o, out);
        add_time(&o->time, out);
        if (v->columns == 0) {
            add_domains(v, out);
            add_warm(v, out);
            add_leader(v, out);
            add_access(o, out);
        }
        add_label(out, "so far");
        strbuf_printf(out, "%" PRIu32 " of %" PRIu32 " restart%s used, %" PRIu32 " node%s lost\n",
                      o->restarts_used, o->max_restarts, plural(o->max_restarts), o->losses,
                      plural(o->losses));
    }
    if (v->columns == 0)
        add_event(o, out);
    add_line(out, "reason", o->reason);
}

enum column {
    NAME,
    NODE_RANK,
    RANKS,
    PLACE,
    STATE,
    SILENT,
    ADDRESS,
    PID,
    ID,
    DOMAIN,
    NOTE,
    COLUMN_COUNT
};
static const char *const titles[COLUMN_COUNT] = {
    "NODE", "RANK", "WORKERS", "PLACE", "STATE", "SILENT", "ADDRESS", "PID", "ID", "DOMAIN", "NOTE",
};

static void add_ranks(const struct overview_node *n, struct strbuf *out) {
    if (n->place != PLACE_MEMBER)
        strbuf_printf(out, "(%" PRIu32 ")", n->nproc);
    else if (n->nproc == 1)
        strbuf_printf(out, "%" PRIu32, n->first_rank);
    else
        strbuf_printf(out, "%" PRIu32 "-%" PRIu64, n->first_rank,
                      (uint64_t)n->first_rank + n->nproc - 1);
}

static void add_cell(const void *row, size_t c, struct strbuf *out) {
    const struct overview_node *n = row;
    switch ((enum column)c) {
    case NAME: columns_add_clean(out, n->name); break;
    case NODE_RANK:
        if (n->place == PLACE_MEMBER)
            strbuf_printf(out, "%" PRIu32, n->node_rank);
        break;
    case RANKS: add_ranks(n, out); break;
    case PLACE: strbuf_add(out, overview_place_names[n->place]); break;
    case STATE: strbuf_add(out, node_state_names[n->state]); break;
    case SILENT: duration_text(n->silent_ns, out); break;
    case ADDRESS:
        if (n->addr[0] != '\0')
            columns_add_clean(out, n->addr);
        else
            strbuf_add(out, "with the leader");
        break;
    case PID: strbuf_printf(out, "%" PRId32, n->pid); break;
    case ID: strbuf_printf(out, "%016" PRIx64, n->incarnation); break;
    case DOMAIN:
        columns_add_clean(out, n->domain);
        strbuf_add(out, n->fabric[0] != '\0' ? ": " : "");
        columns_add_clean(out, n->fabric);
        break;
    case NOTE:
        if (!n->connected)
            strbuf_add(out, n->why[0] != '\0' ? "no connection; " : "no connection");
        columns_add_clean(out, n->why);
        break;
    case COLUMN_COUNT: assert_not_reached();
    }
    if (c != NOTE && strbuf_text(out)[0] == '\0')
        strbuf_add_char(out, '-');
}

static int compare_rows(const void *a, const void *b) {
    const struct overview_node *x = *(const void *const *)a;
    const struct overview_node *y = *(const void *const *)b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->place == PLACE_MEMBER && x->node_rank != y->node_rank)
        return x->node_rank < y->node_rank ? -1 : 1;
    return x < y ? -1 : x > y; /* in the order in which they came */
}

const void **status_order(const struct status_view *v) {
    const void **rows = xcalloc(MAX2(v->n_nodes, 1u), sizeof *rows);
    for (uint32_t i = 0; i < v->n_nodes; i++)
        rows[i] = &v->nodes[i];
    qsort(rows, v->n_nodes, sizeof *rows, compare_rows);
    return rows;
}

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

/* On a screen, notes have what the other columns leave. */
void status_rows(const struct status_view *v, const void *const *nodes, size_t n,
                 struct strbuf *out) {
    const bool has_notes = v->columns != 0 && !v->wide;
    const size_t columns = v->columns == 0 ? STATUS_COLUMNS : v->columns;
    struct columns table = {.titles = titles,
                            .n = COLUMN_COUNT,
                            .shown = (1U << (v->wide ? COLUMN_COUNT : ADDRESS)) - 1,
                            .right = 1U << NODE_RANK | 1U << SILENT | 1U << PID,
                            .add_cell = add_cell};
    table.shown |= has_notes ? 1U << NOTE : 0;
    _cleanup_(freep) const void **all = by_domain(v);
    uint32_t at = 0;
    struct domain any;
    if (!next_domain(all, v->n_nodes, &at, &any))
        table.shown &= ~(1U << DOMAIN);
    size_t widths[COLUMNS_MAX] = {0};
    size_t sum = columns_measure(&table, all, v->n_nodes, widths) - COLUMNS_GAP;
    if (has_notes) {
        sum -= widths[NOTE] + COLUMNS_GAP;
        size_t rest = less(columns, sum + COLUMNS_GAP);
        bool empty = widths[NOTE] == utf8_columns(titles[NOTE]);
        table.shown &= empty || rest < NOTE_MIN ? ~(1U << NOTE) : ~0U;
        widths[NOTE] = rest;
    }
    if (!v->wide) /* the name has what the other columns leave: 20 columns at least */
        widths[NAME] -= MIN2(less(sum, columns), less(widths[NAME], NAME_MIN));
    columns_write(&table, nodes, n, widths, out);
}

/* Adds one line of text as lines of at most `columns`; the second and later ones are indented.
 * Blanks are kept, except where a line is broken. */
static void add_folded(struct strbuf *out, const char *line, size_t n, size_t indent,
                       size_t columns) {
    size_t room = columns;
    while (n > 0) {
        size_t whole = columns_bytes(line, room), part = MIN2(whole, n);
        if (part < n) { /* after the last blank, unless there is none */
            size_t at = part;
            while (at > 0 && line[at] != ' ')
                at--;
            part = at > indent ? at : part;
        }
        strbuf_add_bytes(out, line, part);
        strbuf_add_char(out, '\n');
        line += part;
        n -= part;
        while (n > 0 && *line == ' ') {
            line++;
            n--;
        }
        if (n > 0)
            strbuf_printf(out, "%*s", (int)indent, "");
        room = columns - indent;
    }
}

static void add_notes(const struct status_view *v, struct strbuf *out) {
    _cleanup_(freep) const void **rows = status_order(v);
    _cleanup_(strbuf_fini) struct strbuf note = {0};
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        strbuf_clear(&note);
        add_cell(rows[i], NOTE, &note);
        if (note.len == 0)
            continue;
        _cleanup_(freep) char *text = xstrdup(strbuf_text(&note));
        strbuf_clear(&note);
        strbuf_add(&note, "  ");
        add_cell(rows[i], NAME, &note);
        strbuf_printf(&note, ": %s", text);
        add_folded(out, strbuf_text(&note), note.len, 4, STATUS_COLUMNS);
    }
}

void status_head(const struct status_view *v, struct strbuf *out) {
    _cleanup_(strbuf_fini) struct strbuf lines = {0};
    add_lines(v, &lines);
    for (const char *line = strbuf_text(&lines); *line != '\0'; line = text_next_line(line))
        add_folded(out, line, strcspn(line, "\n"), LABEL_COLUMNS,
                   v->columns == 0 ? STATUS_COLUMNS : v->columns);
}

void status_text(const struct status_view *v, struct strbuf *out) {
    if (v->wide)
        add_lines(v, out);
    else
        status_head(v, out);
    if (v->n_nodes == 0)
        return;
    strbuf_add_char(out, '\n');
    _cleanup_(freep) const void **rows = status_order(v);
    status_rows(v, rows, v->n_nodes, out);
    if (!v->wide)
        add_notes(v, out);
}

static void put_ns(struct json_writer *w, const char *key, uint64_t ns) {
    char text[40];
    (void)snprintf(text, sizeof text, "%" PRIu64 ".%03" PRIu64, ns / NS_PER_S,
                   ns % NS_PER_S / NS_PER_MS);
    json_write_raw(w, key, text);
}

static void put_seconds(struct json_writer *w, const struct json_field *f, const void *of) {
    uint64_t ns;
    memcpy(&ns, (const char *)of + f->offset, sizeof ns);
    put_ns(w, f->key, ns);
}

static void put_ms(struct json_writer *w, const struct json_field *f, const void *of) {
    uint64_t ns;
    memcpy(&ns, (const char *)of + f->offset, sizeof ns);
    json_write_u64(w, f->key, ns / NS_PER_MS);
}

/* For how long, and how long it may be. */
static void put_quiet(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct rdzv_watchdog *dog =
        (const struct rdzv_watchdog *)(const void *)((const char *)of + f->offset);
    bool quiet = rdzv_watchdog_is_quiet(dog);
    if (quiet)
        put_ns(w, "quiet_seconds", dog->quiet_ns);
    else
        json_write_null(w, "quiet_seconds");
    if (quiet && dog->limit_ns != UINT64_MAX)
        put_ns(w, "quiet_limit_seconds", dog->limit_ns);
    else
        json_write_null(w, "quiet_limit_seconds");
}

#define SECONDS(type, key, member) JSON_FIELD(type, OWN, key, member), .write = put_seconds
#define TEXT_OR_NULL(type, key, member) \
    { JSON_FIELD(type, TEXT, key, member), JSON_IF_TEXT(type, member), .or_null = true }
#define OF_WARM(key, member)                                                                     \
    {                                                                                            \
        JSON_FIELD(overview_node, U32, key, warm.member), JSON_IF_TRUE(overview_node, has_warm), \
            .or_null = true                                                                      \
    }
#define OF_START(key, member)                                                                 \
    {                                                                                         \
        JSON_FIELD(overview, OWN, key, time.start.member),                                    \
            .write = put_ms, JSON_IF_SET(overview, time.start.first_step_ns), .or_null = true \
    }
/* Only the leader knows it. */
#define OF_LEADER(key, member) \
    { JSON_FIELD(overview, U32, key, member), JSON_IF_SET(overview, leader), .or_null = true }
#define OF_MEMBER(key, member)                                                                \
    {                                                                                         \
        JSON_FIELD(overview_node, U32, key, member),                                          \
            .or_null = true, JSON_OF_KINDS(overview_node, place, UINT32_C(1) << PLACE_MEMBER) \
    }

static const struct json_field id_fields[] = {{.kind = JSON_FIELD_HEX, .size = sizeof(uint64_t)}};
static const struct json_table id = {.fields = id_fields, .n = 1, .size = sizeof(uint64_t)};

static const struct json_field key_fields[] = {
    {JSON_FIELD(auth_id, HEX, "id", id)},
    {JSON_NAMED(auth_id, "source", source, auth_source_words)},
};
static const struct json_table key = JSON_TABLE(auth_id, key_fields);

#define OF_PHASE(key, phase) \
    { SECONDS(job_history, key, phase_ns[JOB_PHASE_##phase]) }
static const struct json_field phase_fields[] = {
    OF_PHASE("gathering", GATHERING), OF_PHASE("forming", FORMING),   OF_PHASE("running", RUNNING),
    OF_PHASE("quiet", QUIET),         OF_PHASE("stopping", STOPPING),
};
static const struct json_table phases = JSON_TABLE(job_history, phase_fields);

#define OF_CLASS(key, class) \
    { JSON_FIELD(job_history, U32, key, incidents[INCIDENT_##class]) }
static const struct json_field class_fields[] = {
    OF_CLASS("worker", WORKER),       OF_CLASS("hang", HANG),
    OF_CLASS("node_lost", NODE_LOST), OF_CLASS("node_left", NODE_LEFT),
    OF_CLASS("excluded", EXCLUDED),   OF_CLASS("health", HEALTH),
    OF_CLASS("operator", OPERATOR),
};
static const struct json_table classes = JSON_TABLE(job_history, class_fields);

static const struct json_field overview_fields[] = {
    {JSON_NAMED(overview, "state", state, group_state_names)},
    {SECONDS(overview, "state_seconds", since_ns)},
    {JSON_NAMED(overview, "outcome", outcome, outcome_names), JSON_IF_SOME(overview, outcome),
     .or_null = true},
    TEXT_OR_NULL(overview, "reason", reason),
    {JSON_FIELD(overview, U32, "epoch", epoch), JSON_IF_SOME(overview, epoch), .or_null = true},
    {JSON_FIELD(overview, PAIR, "generation", generation), JSON_IF_SOME(overview, generation.epoch),
     .or_null = true},
    {SECONDS(overview, "started_seconds", running_ns), JSON_IF_SET(overview, running_ns),
     .or_null = true},
    {JSON_FIELD(overview, HEX, "leader", leader), JSON_IF_SET(overview, leader), .or_null = true},
    TEXT_OR_NULL(overview, "leader_host", leader_host),
    TEXT_OR_NULL(overview, "endpoint", endpoint),
    {JSON_FIELD(overview, LIST, "successors", successors), .table = &id,
     .count_offset = JSON_HOLES},
    OF_LEADER("min_nodes", min_nodes),
    OF_LEADER("max_nodes", max_nodes),
    OF_LEADER("node_unit", node_unit),
    OF_LEADER("members", n_members),
    OF_LEADER("world_size", world_size),
    OF_LEADER("spares", n_spares),
    OF_LEADER("excluded", n_excluded),
    OF_LEADER("restarts_used", restarts_used),
    OF_LEADER("max_restarts", max_restarts),
    OF_LEADER("losses", losses),
    {SECONDS(overview, "job_seconds", job_ns), JSON_IF_SET(overview, job_ns), .or_null = true},
    TEXT_OR_NULL(overview, "command", command),
    TEXT_OR_NULL(overview, "incident", incident),
    {SECONDS(overview, "incident_seconds", incident_ns), JSON_IF_TEXT(overview, incident),
     .or_null = true},
    {SECONDS(overview, "restart_seconds", restart_ns), JSON_IF_SET(overview, restart_ns),
     .or_null = true},
    {JSON_STRUCT(overview, "phase_seconds", history, phases), JSON_IF_SET(overview, leader),
     .or_null = true},
    {JSON_STRUCT(overview, "incidents", history, classes), JSON_IF_SET(overview, leader),
     .or_null = true},
    {JSON_NAMED(overview, "watchdog", watchdog.state, watchdog_state_names),
     JSON_IF_SOME(overview, watchdog.state), .or_null = true},
    {JSON_FIELD(overview, OWN, "quiet_seconds", watchdog), .write = put_quiet},
    TEXT_OR_NULL(overview, "quiet_text", watchdog.said),
    TEXT_OR_NULL(overview, "time", time.text),
    TEXT_OR_NULL(overview, "late", time.late),
    OF_START("import_ms", import_ns),
    OF_START("init_ms", init_ns),
    OF_START("load_ms", load_ns),
    OF_START("first_step_ms", first_step_ns),
    {JSON_FIELD(overview, U64, "step", time.step), JSON_IF_SET(overview, time.step),
     .or_null = true},
    {JSON_NAMED(overview, "auth", access.state, auth_state_words),
     JSON_IF_SOME(overview, access.state), .or_null = true},
    {JSON_LIST(overview, "auth_keys", access.keys, access.n_keys, key)},
    {JSON_FIELD(overview, U64, "refused", access.refused), JSON_IF_SET(overview, leader),
     .or_null = true},
};
static const struct json_table overview = JSON_TABLE(overview, overview_fields);

static const struct json_field node_fields[] = {
    {JSON_FIELD(overview_node, TEXT, "node", name)},
    {JSON_FIELD(overview_node, HEX, "id", incarnation)},
    {JSON_NAMED(overview_node, "place", place, overview_place_names)},
    {JSON_NAMED(overview_node, "state", state, node_state_names)},
    OF_MEMBER("node_rank", node_rank),
    OF_MEMBER("first_rank", first_rank),
    {JSON_FIELD(overview_node, U32, "workers", nproc)},
    {JSON_FIELD(overview_node, BOOL, "connected", connected)},
    {SECONDS(overview_node, "silent_seconds", silent_ns)},
    TEXT_OR_NULL(overview_node, "address", addr),
    TEXT_OR_NULL(overview_node, "domain", domain),
    TEXT_OR_NULL(overview_node, "fabric", fabric),
    {JSON_FIELD(overview_node, I32, "pid", pid)},
    {SECONDS(overview_node, "joined_seconds", since_ns)},
    {JSON_FIELD(overview_node, U32, "stalls", stalls)},
    {SECONDS(overview_node, "longest_stall_seconds", longest_stall_ns)},
    TEXT_OR_NULL(overview_node, "why", why),
    OF_WARM("warm", warm),
    OF_WARM("cold", cold),
    OF_WARM("warm_waiting", waiting),
    TEXT_OR_NULL(overview_node, "cold_because", warm.reason),
};
static const struct json_table node = JSON_TABLE(overview_node, node_fields);

static void put_domains(const struct status_view *v, struct json_writer *w) {
    _cleanup_(freep) const void **rows = by_domain(v);
    struct domain d;
    json_write_array_begin(w, "domains");
    for (uint32_t at = 0; next_domain(rows, v->n_nodes, &at, &d);) {
        json_write_object_begin(w, NULL);
        json_write_string(w, "domain", d.name);
        json_write_u64(w, "members", d.members);
        json_write_u64(w, "available", d.available);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

void status_json(const struct status_view *v, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    struct overview o = *v->overview;
    if (o.leader == 0 && o.since_ns != 0) { /* a job that has ended left only its reason */
        memcpy(o.incident, o.reason, sizeof o.incident);
        o.incident_ns = o.since_ns;
    }
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "run_id", v->run_id);
    json_table_write(&w, &overview, &o);
    put_domains(v, &w);
    json_write_array_begin(&w, "nodes");
    _cleanup_(freep) const void **rows = status_order(v);
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        json_write_object_begin(&w, NULL);
        json_table_write(&w, &node, rows[i]);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(out, '\n');
}
