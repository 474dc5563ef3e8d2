#include "cli/jobs/status_text.h"

struct metric {
    const struct status_view *view;
    struct strbuf *out;
    const char *name;
};

/* Names and texts never change: node_exporter drops series whose HELP differs from that in another
 * job's file. Form: prometheus.io/docs/instrumenting/exposition_formats. */
static void begin(struct metric *m, const char *name, const char *type, const char *help) {
    m->name = name;
    strbuf_printf(m->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_label(const char *name, const char *value, struct strbuf *out) {
    strbuf_printf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            strbuf_add_char(out, '\\');
        strbuf_add_char(out, *value);
    }
    strbuf_add_char(out, '"');
}

/* Adds one series. label: besides run_id; NULL: none. */
static void add(const struct metric *m, const char *label, const char *label_value, double value,
                int digits) {
    strbuf_printf(m->out, "%s{", m->name);
    add_label("run_id", m->view->run_id, m->out);
    if (label != NULL) {
        strbuf_add_char(m->out, ',');
        add_label(label, label_value, m->out);
    }
    strbuf_printf(m->out, "} %.*f\n", digits, value);
}

static void add_seconds(const struct metric *m, const char *label, const char *label_value,
                        uint64_t ns) {
    add(m, label, label_value, (double)(ns / NS_PER_MS) / 1000, 3);
}

/* A metric with one series. */
static void number(struct metric *m, const char *name, const char *type, const char *help,
                   uint64_t value) {
    begin(m, name, type, help);
    add(m, NULL, NULL, (double)value, 0);
}

static void add_nodes(const struct metric *m, enum overview_place place) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->view->n_nodes; i++)
        n += m->view->nodes[i].place == place;
    if (n > 0 || place == PLACE_MEMBER || place == PLACE_SPARE || place == PLACE_EXCLUDED)
        add(m, "place", overview_place_names[place], (double)n, 0);
}

static void add_history(struct metric *m, const struct job_history *h) {
    begin(m, "muster_incidents_total", "counter", "How often a group was stopped, by cause.");
    for (int c = INCIDENT_NONE + 1; c < INCIDENT_CLASS_COUNT; c++)
        if (h->incidents[c] > 0 || c != INCIDENT_OPERATOR) /* the job ends with that one */
            add(m, "class", incident_class_names[c], h->incidents[c], 0);
    begin(m, "muster_phase_seconds_total", "counter",
          "Time of the job by phase; quiet is a part of running.");
    for (int p = 0; p < JOB_PHASE_COUNT; p++) {
        /* a leader finds out late that time was quiet, and no counter may fall */
        uint64_t quiet_ns = p == JOB_PHASE_RUNNING ? h->phase_ns[JOB_PHASE_QUIET] : 0;
        add_seconds(m, "phase",
                    p == JOB_PHASE_QUIET ? "quiet" : group_state_names[GROUP_GATHERING + p],
                    h->phase_ns[p] + quiet_ns);
    }
}

static void add_watchdog(struct metric *m, const struct rdzv_watchdog *w) {
    if (w->state == WATCHDOG_NONE)
        return;
    begin(m, "muster_quiet_seconds", "gauge",
          "Time since most workers last moved, 0 while they move.");
    add_seconds(m, NULL, NULL, rdzv_watchdog_is_quiet(w) ? w->quiet_ns : 0);
    number(m, "muster_hung", "gauge", "1 if the workers have been quiet for longer than a limit.",
           w->state == WATCHDOG_HUNG);
}

void status_prometheus(const struct status_view *v, struct strbuf *out) {
    const struct overview *o = v->overview;
    struct metric m = {v, out, ""};
    number(&m, "muster_job_info", "gauge", "1 for each job.", 1);
    begin(&m, "muster_job_state", "gauge", "1 for the state that the job is in.");
    add(&m, "state", status_state(o), 1, 0);
    if (o->epoch != 0)
        number(&m, "muster_epoch", "gauge", "Number of the leader; a new leader has a higher one.",
               o->epoch);
    if (o->leader == 0)
        return; /* only the end of the job is known */
    if (!generation_is_none(o->generation))
        number(&m, "muster_group", "gauge", "Number of the newest group, from 1 for each leader.",
               o->generation.counter);
    number(&m, "muster_workers", "gauge", "Workers of the newest group.", o->world_size);
    begin(&m, "muster_nodes", "gauge", "Nodes by their place in the job.");
    for (int place = PLACE_MEMBER; place < PLACE_COUNT; place++)
        add_nodes(&m, (enum overview_place)place);
    number(&m, "muster_restarts_total", "counter", "Restarts used.", o->restarts_used);
    number(&m, "muster_restarts_limit", "gauge", "Restarts allowed by --max-restarts.",
           o->max_restarts);
    number(&m, "muster_node_losses_total", "counter", "Nodes lost.", o->losses);
    add_history(&m, &o->history);
    add_watchdog(&m, &o->watchdog);
    if (o->time.step != 0)
        number(&m, "muster_step", "gauge", "The last MUSTER_STEP of a worker.", o->time.step);
}
