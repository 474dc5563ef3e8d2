#include "launcher/report/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/duration.h"
#include "base/text/utf8.h"

/* Adds the milliseconds between two times, if both are known: the field's own, and the one that is
 * its condition. */
static void add_ms(struct json_writer *w, const struct json_field *f, const void *of) {
    uint64_t from_ns, to_ns;
    memcpy(&from_ns, (const char *)of + f->offset, sizeof from_ns);
    memcpy(&to_ns, (const char *)of + f->when_offset, sizeof to_ns);
    if (from_ns == 0)
        return;
    uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / NS_PER_US : 0;
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));
    json_write_raw(w, f->key, text);
}

static void add_ns(struct json_writer *w, const struct json_field *f, const void *of) {
    uint64_t ns;
    memcpy(&ns, (const char *)of + f->offset, sizeof ns);
    json_write_u64(w, f->key, ns / NS_PER_MS);
}

#define FIELD(what, key, member) JSON_FIELD(timeline_entry, what, key, member)
#define OF(event) JSON_OF_KINDS(timeline_entry, kind, UINT32_C(1) << TIMELINE_##event)
#define MS(event, key, from, to) \
    { FIELD(OWN, key, from), .write = add_ms, OF(event), JSON_IF_SET(timeline_entry, to) }

#define OF_FAILURE(kinds) JSON_OF_KINDS(timeline_entry, failure, kinds)
#define OF_START(key, member) \
    { FIELD(OWN, key, start.member), .write = add_ns, OF(FIRST_STEP) }

static const struct json_field fields[] = {
    {FIELD(PAIR, "generation", generation), /* an epoch can have no group yet */
     JSON_IF_SOME(timeline_entry, generation.counter)},
    {FIELD(U32, "epoch", generation.epoch), JSON_IF_SOME(timeline_entry, generation.epoch)},
    {FIELD(TEXT, "node", name), JSON_IF_TEXT(timeline_entry, name)},
    {FIELD(HEX, "incarnation", node), JSON_IF_SET(timeline_entry, node)},
    {FIELD(TEXT, "domain", domain), JSON_IF_TEXT(timeline_entry, domain)},
    {FIELD(TEXT, "fabric", fabric), JSON_IF_TEXT(timeline_entry, fabric)},
    {FIELD(TEXT, "cause", why), JSON_IF_TEXT(timeline_entry, why)},
    {FIELD(U32, "rank", rank), JSON_IF_TRUE(timeline_entry, has_rank)},
    {FIELD(U32, "local_rank", local_rank), JSON_IF_TRUE(timeline_entry, has_rank)},
    {FIELD(I32, "pid", pid), JSON_IF_SOME(timeline_entry, pid)},
    {FIELD(I32, "exitcode", code), OF_FAILURE(1u << FAILURE_EXIT)},
    {FIELD(I32, "signal", code), OF_FAILURE(1u << FAILURE_SIGNAL | 1u << FAILURE_OOM)},
    {FIELD(U32, "restarts_used", restarts_used), OF_FAILURE(~1u)},
    {FIELD(TEXT, "evidence", evidence), JSON_IF_TEXT(timeline_entry, evidence)},
    {FIELD(TEXT, "endpoint", endpoint), JSON_IF_TEXT(timeline_entry, endpoint)},
    {FIELD(U32, "nodes", n_nodes), JSON_IF_SOME(timeline_entry, n_nodes)},
    {FIELD(U32, "world_size", world_size), JSON_IF_SOME(timeline_entry, world_size)},
    {JSON_FIELD(timeline_entry, U32, "warm", n_warm), OF(STARTED),
     JSON_IF_TRUE(timeline_entry, has_warm)},
    {FIELD(TEXT, "cold_because", cold_because), JSON_IF_TEXT(timeline_entry, cold_because)},
    {JSON_NAMED(timeline_entry, "outcome", outcome, outcome_names), OF(CLOSED)},
    MS(NODE_LOST, "silent_ms", detected_ns, at_ns),
    MS(WORKER_FAILED, "heard_after_ms", detected_ns, at_ns),
    MS(QUIET, "quiet_ms", detected_ns, at_ns),
    MS(RESUMED, "quiet_ms", detected_ns, at_ns),
    MS(STOPPED, "detected_to_stopped_ms", detected_ns, at_ns),
    MS(FORMED, "stopped_to_formed_ms", stopped_ns, at_ns),
    MS(STARTED, "detected_to_stopped_ms", detected_ns, stopped_ns),
    MS(STARTED, "stopped_to_formed_ms", stopped_ns, formed_ns),
    MS(STARTED, "formed_to_started_ms", formed_ns, started_ns),
    MS(STARTED, "total_ms", detected_ns, started_ns),
    OF_START("import_ms", import_ns),
    OF_START("init_ms", init_ns),
    OF_START("load_ms", load_ns),
    OF_START("first_step_ms", first_step_ns),
};
static const struct json_table table = JSON_TABLE(timeline_entry, fields);

#define OF_INCIDENT(what, key, member) JSON_FIELD(incident, what, key, member), .or_null = true
#define OF_WORKER(what, key, member) \
    { OF_INCIDENT(what, key, member), JSON_IF_TRUE(incident, has_rank) }
#define OF_DEATH(key, mask) \
    { OF_INCIDENT(I32, key, code), JSON_OF_KINDS(incident, failure, mask) }
#define TEXT_OR_NULL(key, member) \
    { OF_INCIDENT(TEXT, key, member), JSON_IF_TEXT(incident, member) }
#define SOME_OR_NULL(key, member) \
    { OF_INCIDENT(U32, key, member), JSON_IF_SOME(incident, member) }
#define MS_SINCE_SYMPTOM(key, member) \
    { OF_INCIDENT(OWN, key, symptom_ns), .write = add_ms, JSON_IF_SET(incident, member) }

static const struct json_field incident_fields[] = {
    {OF_INCIDENT(U32, "n", n)},
    {JSON_NAMED(incident, "class", class, incident_class_names)},
    {JSON_FIELD(incident, PAIR, "generation", generation)},
    {OF_INCIDENT(PAIR, "new_generation", next), JSON_IF_SOME(incident, next.epoch)},
    TEXT_OR_NULL("node", node),
    OF_WORKER(U32, "rank", rank),
    OF_WORKER(U32, "local_rank", local_rank),
    OF_DEATH("exitcode", 1u << FAILURE_EXIT),
    OF_DEATH("signal", 1u << FAILURE_SIGNAL | 1u << FAILURE_OOM),
    TEXT_OR_NULL("cause", cause),
    SOME_OR_NULL("xid", xid),
    {OF_INCIDENT(INDEX, "gpu", gpu)}, /* -1: null */
    TEXT_OR_NULL("evidence", evidence),
    {JSON_NAMED(incident, "action", action, incident_action_names)},
    {OF_INCIDENT(U32, "restarts_used", restarts_used)},
    MS_SINCE_SYMPTOM("noticed_ms", noticed_ns),
    MS_SINCE_SYMPTOM("stopped_ms", stopped_ns),
    MS_SINCE_SYMPTOM("started_ms", started_ns),
    MS_SINCE_SYMPTOM("first_step_ms", first_step_ns),
    {OF_INCIDENT(U64, "steps_lost", steps_lost), JSON_IF_TRUE(incident, has_steps_lost)},
    SOME_OR_NULL("nodes", n_nodes),
    SOME_OR_NULL("world_size", world_size),
};
static const struct json_table incident_table = JSON_TABLE(incident, incident_fields);

static void add_incident(struct json_writer *w, const char *host, const struct incident *i,
                         uint64_t symptom_wall_ns) {
    char when[UTC_TEXT_MAX], text[INCIDENT_TEXT_MAX];
    utc_text(symptom_wall_ns, when);
    incident_text(i, host, when, text);
    json_write_string(w, "symptom", when);
    json_table_write(w, &incident_table, i);
    json_write_string(w, "text", text);
}

static void begin_line(struct json_writer *w, const char *event, const char *run_id,
                       const char *host, uint64_t now_ns, uint64_t wall_ns) {
    char time[UTC_TEXT_MAX];
    utc_text(wall_ns, time);
    json_write_object_begin(w, NULL);
    json_write_string(w, "time", time);
    json_write_id(w, "monotonic_ns", now_ns);
    json_write_string(w, "event", event);
    json_write_string(w, "run_id", run_id);
    json_write_string(w, "host", host);
}

void events_begin_line(const char *run_id, const char *host, const struct events_begin *begin,
                       uint64_t now_ns, uint64_t wall_ns, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    const char *const facts[][2] = {{"command", begin->command}, {"folder", begin->folder},
                                    {"muster", MUSTER_VERSION},  {"driver", begin->driver},
                                    {"nccl", begin->nccl},       {"torch", begin->torch}};
    begin_line(&w, "begins", run_id, host, now_ns, wall_ns);
    for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
        if (facts[i][1][0] != '\0')
            json_write_string(&w, facts[i][0], facts[i][1]);
    json_write_object_end(&w);
    strbuf_add_char(out, '\n');
}

/* Returns false if no text is left that can be cut. */
static bool shorten(struct incident *i) {
    char *const texts[] = {i->evidence, i->cause, i->sick, i->taker, i->node};
    for (size_t k = 0; k < ARRAY_SIZE(texts); k++) {
        size_t len = strlen(texts[k]);
        if (len == 0)
            continue;
        _cleanup_(freep) char *text = xstrdup(texts[k]);
        utf8_copy(texts[k], texts[k] == i->evidence ? 1 : len / 2 + 1,
                  text); /* a path: all or nothing */
        return true;
    }
    return false;
}

void events_line(const char *run_id, const char *host, const struct timeline_entry *entry,
                 uint64_t wall_ns, uint64_t lost, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    size_t begin = out->len;
    begin_line(&w, timeline_kind_name(entry->kind), run_id, host, entry->at_ns, wall_ns);
    if (entry->kind == TIMELINE_INCIDENT)
        add_incident(&w, host, &entry->incident,
                     wall_ns - (entry->at_ns - entry->incident.symptom_ns));
    else
        json_table_write(&w, &table, entry);
    if (lost > 0)
        json_write_u64(&w, "lines_lost_before", MIN2(lost, JSON_INTEGER_MAX));
    json_write_object_end(&w);
    strbuf_add_char(out, '\n');
    struct timeline_entry shorter = *entry; /* long names, and texts full of quotes */
    if (entry->kind != TIMELINE_INCIDENT || out->len - begin <= EVENTS_INCIDENT_MAX ||
        !shorten(&shorter.incident))
        return;
    out->len = begin;
    events_line(run_id, host, &shorter, wall_ns, lost, out);
}
