#include "launcher/report/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/duration.h"

/* Adds the milliseconds from the field's own time, if it is known, to that of its condition. */
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
#define OF(mask) JSON_OF_KINDS(timeline_entry, kind, mask)
#define BIT(event) (UINT32_C(1) << TIMELINE_##event)
#define MS(key, mask) \
    { FIELD(OWN, key, from_ns), .write = add_ms, OF(mask), JSON_IF_SET(timeline_entry, at_ns) }
#define OF_START(key, member) \
    { FIELD(OWN, key, start.member), .write = add_ns, OF(BIT(FIRST_STEP)) }

#define WORKERS ~(1u << FAILURE_NONE | 1u << FAILURE_NODE)
#define OF_FAILURE(type, what, key, at, member, mask) \
    JSON_FIELD(type, what, key, at.member), JSON_OF_KINDS(type, at.kind, mask)
/* The worker, if it is known, and its end. at: a struct failure. */
#define FAILURE_ROWS(type, at, null)                                                          \
    {OF_FAILURE(type, U32, "rank", at, rank, WORKERS), JSON_IF_SET(type, at.incarnation),     \
     .or_null = null},                                                                        \
        {OF_FAILURE(type, U32, "local_rank", at, local_rank, WORKERS),                        \
         JSON_IF_SET(type, at.incarnation), .or_null = null},                                 \
        {OF_FAILURE(type, I32, "exitcode", at, code, 1u << FAILURE_EXIT), .or_null = null}, { \
        OF_FAILURE(type, I32, "signal", at, code, 1u << FAILURE_SIGNAL | 1u << FAILURE_OOM),  \
            .or_null = null                                                                   \
    }

static const struct json_field fields[] = {
    {FIELD(PAIR, "generation", generation), /* an epoch can have no group yet */
     JSON_IF_SOME(timeline_entry, generation.counter)},
    {FIELD(U32, "epoch", generation.epoch), JSON_IF_SOME(timeline_entry, generation.epoch)},
    {FIELD(TEXT, "node", name), JSON_IF_TEXT(timeline_entry, name)},
    {FIELD(HEX, "incarnation", node), JSON_IF_SET(timeline_entry, node)},
    {FIELD(TEXT, "domain", domain), JSON_IF_TEXT(timeline_entry, domain)},
    {FIELD(TEXT, "fabric", fabric), JSON_IF_TEXT(timeline_entry, fabric)},
    {FIELD(TEXT, "cause", why), JSON_IF_TEXT(timeline_entry, why)},
    FAILURE_ROWS(timeline_entry, incident.failure, false),
    {FIELD(I32, "pid", incident.failure.pid), JSON_IF_SOME(timeline_entry, incident.failure.pid)},
    {FIELD(U32, "restarts_used", incident.restarts_used),
     JSON_IF_SOME(timeline_entry, incident.failure.kind)},
    {FIELD(TEXT, "evidence", incident.evidence), JSON_IF_TEXT(timeline_entry, incident.evidence)},
    {FIELD(TEXT, "endpoint", endpoint), JSON_IF_TEXT(timeline_entry, endpoint)},
    {FIELD(U32, "nodes", n_nodes), JSON_IF_SOME(timeline_entry, n_nodes)},
    {FIELD(U32, "world_size", world_size), JSON_IF_SOME(timeline_entry, world_size)},
    {FIELD(U32, "warm", n_warm), OF(BIT(STARTED)), JSON_IF_TRUE(timeline_entry, has_warm)},
    {FIELD(TEXT, "cold_because", cold_because), JSON_IF_TEXT(timeline_entry, cold_because)},
    {JSON_NAMED(timeline_entry, "outcome", outcome, outcome_names), OF(BIT(CLOSED))},
    MS("silent_ms", BIT(NODE_LOST)),
    MS("heard_after_ms", BIT(WORKER_FAILED)),
    MS("quiet_ms", BIT(QUIET) | BIT(RESUMED)),
    MS("detected_to_stopped_ms", BIT(STOPPED)),
    MS("stopped_to_formed_ms", BIT(FORMED)),
    OF_START("import_ms", import_ns),
    OF_START("init_ms", init_ns),
    OF_START("load_ms", load_ns),
    OF_START("first_step_ms", first_step_ns),
};
static const struct json_table table = JSON_TABLE(timeline_entry, fields);

#define OF_INCIDENT(what, key, member) JSON_FIELD(incident, what, key, member), .or_null = true
#define TEXT_OR_NULL(key, member) \
    { OF_INCIDENT(TEXT, key, member), JSON_IF_TEXT(incident, member) }
/* Not known before the next group has started. */
#define AT_START(what, key, member) \
    { OF_INCIDENT(what, key, member), JSON_IF_SET(incident, started_ns) }
#define MS_SINCE_SYMPTOM(key, member) \
    { OF_INCIDENT(OWN, key, symptom_ns), .write = add_ms, JSON_IF_SET(incident, member) }

static const struct json_field incident_fields[] = {
    {OF_INCIDENT(U32, "n", n)},
    {JSON_NAMED(incident, "class", class, incident_class_names)},
    {OF_INCIDENT(PAIR, "generation", generation)},
    AT_START(PAIR, "new_generation", next),
    TEXT_OR_NULL("node", failure.node),
    FAILURE_ROWS(incident, failure, true),
    TEXT_OR_NULL("cause", cause),
    {OF_INCIDENT(U32, "xid", xid), JSON_IF_SOME(incident, xid)},
    {OF_INCIDENT(INDEX, "gpu", gpu)}, /* -1: null */
    TEXT_OR_NULL("evidence", evidence),
    {JSON_NAMED(incident, "action", action, incident_action_names)},
    {OF_INCIDENT(U32, "restarts_used", restarts_used)},
    MS_SINCE_SYMPTOM("noticed_ms", noticed_ns),
    MS_SINCE_SYMPTOM("stopped_ms", stopped_ns),
    MS_SINCE_SYMPTOM("started_ms", started_ns),
    MS_SINCE_SYMPTOM("first_step_ms", first_step_ns),
    {OF_INCIDENT(U64, "steps_lost", steps_lost), JSON_IF_SET(incident, first_step_ns)},
    AT_START(U32, "nodes", n_nodes),
    AT_START(U32, "world_size", world_size),
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

static void end_line(struct json_writer *w, struct strbuf *out) {
    json_write_object_end(w);
    strbuf_add_char(out, '\n');
}

void events_begin_line(const struct events_config *config, uint64_t now_ns, uint64_t wall_ns,
                       struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    begin_line(&w, "begins", config->run_id, config->host, now_ns, wall_ns);
    json_write_string(&w, "muster", MUSTER_VERSION);
    config->fill(config->arg, &w);
    end_line(&w, out);
}

void events_line(const char *run_id, const char *host, const struct timeline_entry *entry,
                 uint64_t wall_ns, uint64_t lost, struct strbuf *out) {
    struct timeline_entry e = *entry; /* of an incident, cut until its line is short enough */
    const size_t begin = out->len;
    for (size_t max = sizeof e.incident.cause; max > 0; max /= 2) {
        struct json_writer w = json_writer_of(out);
        out->len = begin;
        e.incident.cause[max - 1] = '\0';
        begin_line(&w, timeline_kind_name(e.kind), run_id, host, e.at_ns, wall_ns);
        if (e.kind == TIMELINE_INCIDENT)
            add_incident(&w, host, &e.incident, wall_ns - (e.at_ns - e.incident.symptom_ns));
        else
            json_table_write(&w, &table, &e);
        if (lost > 0)
            json_write_u64(&w, "lines_lost_before", MIN2(lost, JSON_INTEGER_MAX));
        end_line(&w, out);
        if (e.kind != TIMELINE_INCIDENT || out->len - begin <= EVENTS_INCIDENT_MAX)
            return;
        e.incident.evidence[0] = '\0'; /* a path is not cut */
    }
}
