#include "launcher/report/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/json/json.h"

static void add_time(struct json_writer *w, uint64_t wall_ns) {
    time_t at = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    char day[32], text[48];
    (void)gmtime_r(&at, &tm);
    (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text, sizeof text, "%s.%03uZ", day, (unsigned)(wall_ns / NS_PER_MS % 1000));
    json_write_string(w, "time", text);
}

/* From one time to another, in milliseconds, where both are known. */
static void add_ms(struct json_writer *w, const char *name, uint64_t from_ns, uint64_t to_ns) {
    if (from_ns == 0 || to_ns == 0)
        return;
    uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / NS_PER_US : 0;
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));
    json_write_raw(w, name, text);
}

static void add_times(struct json_writer *w, const struct timeline_entry *n) {
    switch (n->kind) {
    case TIMELINE_NODE_LOST: add_ms(w, "silent_ms", n->detected_ns, n->at_ns); break;
    case TIMELINE_WORKER_FAILED: add_ms(w, "heard_after_ms", n->detected_ns, n->at_ns); break;
    case TIMELINE_STOPPED: add_ms(w, "detected_to_stopped_ms", n->detected_ns, n->at_ns); break;
    case TIMELINE_FORMED: add_ms(w, "stopped_to_formed_ms", n->stopped_ns, n->at_ns); break;
    case TIMELINE_STARTED:
        add_ms(w, "detected_to_stopped_ms", n->detected_ns, n->stopped_ns);
        add_ms(w, "stopped_to_formed_ms", n->stopped_ns, n->formed_ns);
        add_ms(w, "formed_to_started_ms", n->formed_ns, n->started_ns);
        add_ms(w, "total_ms", n->detected_ns, n->started_ns);
        break;
    case TIMELINE_LEADS:
    case TIMELINE_NODE_JOINED:
    case TIMELINE_NODE_LEFT:
    case TIMELINE_NODE_EXCLUDED:
    case TIMELINE_STOPPING:
    case TIMELINE_SUCCESSORS:
    case TIMELINE_BEAT_PAUSED:
    case TIMELINE_CLOSED:
    case TIMELINE_KIND_COUNT: break;
    }
}

/* An epoch may have no group yet. */
static void add_generation(struct json_writer *w, struct generation g) {
    if (g.counter > 0) {
        char text[32];
        (void)snprintf(text, sizeof text, "%" PRIu32 ".%" PRIu32, g.epoch, g.counter);
        json_write_string(w, "generation", text);
    }
    if (g.epoch > 0)
        json_write_u64(w, "epoch", g.epoch);
}

static void add_node(struct json_writer *w, const struct timeline_entry *n) {
    if (n->name[0] != '\0')
        json_write_string(w, "node", n->name);
    if (n->node != 0)
        json_write_hex(w, "incarnation", n->node);
}

static void add_group(struct json_writer *w, const struct timeline_entry *n) {
    if (n->n_nodes > 0)
        json_write_u64(w, "nodes", n->n_nodes);
    if (n->world_size > 0)
        json_write_u64(w, "world_size", n->world_size);
    if (n->kind == TIMELINE_CLOSED)
        json_write_string(w, "outcome", outcome_names[n->outcome]);
}

void events_line(const struct events_origin *origin, const struct timeline_entry *note,
                 uint64_t wall_ns, uint64_t lost, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    json_write_object_begin(&w, NULL);
    add_time(&w, wall_ns);
    json_write_id(&w, "monotonic_ns", note->at_ns);
    json_write_string(&w, "event", timeline_kind_name(note->kind));
    json_write_string(&w, "run_id", origin->run_id);
    json_write_string(&w, "host", origin->host);
    add_generation(&w, note->generation);
    add_node(&w, note);
    if (note->why[0] != '\0')
        json_write_string(&w, "cause", note->why);
    add_group(&w, note);
    add_times(&w, note);
    if (lost > 0)
        json_write_u64(&w, "lines_lost_before", MIN2(lost, JSON_INTEGER_MAX));
    json_write_object_end(&w);
    strbuf_add_char(out, '\n');
}
