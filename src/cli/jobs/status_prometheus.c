#include <inttypes.h>

#include "cli/jobs/status_text.h"

enum metric {
    JOB_INFO,
    JOB_STATE,
    EPOCH,
    GROUP,
    WORKERS,
    NODES,
    RESTARTS,
    RESTARTS_LIMIT,
    NODE_LOSSES,
    INCIDENTS,
    PHASES,
    QUIET,
    HUNG,
    STEP,
    METRIC_COUNT
};

static const char *const phase_names[JOB_PHASE_COUNT] = {
    [JOB_PHASE_GATHERING] = "gathering", [JOB_PHASE_FORMING] = "forming",
    [JOB_PHASE_RUNNING] = "running",     [JOB_PHASE_STOPPING] = "stopping",
    [JOB_PHASE_QUIET] = "quiet",
};

/* Names and texts never change: node_exporter drops series whose HELP differs from that in another
 * job's file. Form: prometheus.io/docs/instrumenting/exposition_formats. */
static const struct {
    const char *name, *type, *help;
    const char *label;         /* besides run_id; NULL: none */
    const char *const *values; /* of the label, a series for each; NULL: the job's state */
    uint32_t n;
    bool is_time; /* in ns, written as seconds */
} metrics[METRIC_COUNT] = {
    [JOB_INFO] = {"muster_job_info", "gauge", "1 for each job."},
    [JOB_STATE] = {"muster_job_state", "gauge", "1 for the state that the job is in.", "state"},
    [EPOCH] = {"muster_epoch", "gauge", "Number of the leader; a new leader has a higher one."},
    [GROUP] = {"muster_group", "gauge", "Number of the newest group, from 1 for each leader."},
    [WORKERS] = {"muster_workers", "gauge", "Workers of the newest group."},
    [NODES] = {"muster_nodes", "gauge", "Nodes by their place in the job.", "place",
               overview_place_names, PLACE_COUNT},
    [RESTARTS] = {"muster_restarts_total", "counter", "Restarts used."},
    [RESTARTS_LIMIT] = {"muster_restarts_limit", "gauge", "Restarts allowed by --max-restarts."},
    [NODE_LOSSES] = {"muster_node_losses_total", "counter", "Nodes lost."},
    [INCIDENTS] = {"muster_incidents_total", "counter", "How often a group was stopped, by cause.",
                   "class", incident_class_names, INCIDENT_CLASS_COUNT},
    [PHASES] = {"muster_phase_seconds_total", "counter",
                "Time of the job by phase; quiet is a part of running.", "phase", phase_names,
                JOB_PHASE_COUNT, .is_time = true},
    [QUIET] = {"muster_quiet_seconds", "gauge",
               "Time since most workers last moved, 0 while they move.", .is_time = true},
    [HUNG] = {"muster_hung", "gauge", "1 if the workers have been quiet for longer than a limit."},
    [STEP] = {"muster_step", "gauge", "The last MUSTER_STEP of a worker."},
};

static uint64_t count_nodes(const struct status_view *v, enum overview_place place) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < v->n_nodes; i++)
        n += v->nodes[i].place == place;
    return n;
}

/* at: which value of the label. Returns false if there is no such series now. */
static bool value_of(const struct status_view *v, enum metric m, uint32_t at, uint64_t *ret) {
    const struct overview *o = v->overview;
    const struct rdzv_watchdog *w = &o->watchdog;
    const struct job_history *h = &o->history;
    if (o->leader == 0 && m > EPOCH) /* only the end of the job is known */
        return false;
    switch (m) {
    case JOB_INFO:
    case JOB_STATE: *ret = 1; return true;
    case EPOCH: *ret = o->epoch; return o->epoch != 0;
    case GROUP: *ret = o->generation.counter; return !generation_is_none(o->generation);
    case WORKERS: *ret = o->world_size; return true;
    case NODES:
        *ret = count_nodes(v, at);
        return *ret > 0 || at == PLACE_MEMBER || at == PLACE_SPARE || at == PLACE_EXCLUDED;
    case RESTARTS: *ret = o->restarts_used; return true;
    case RESTARTS_LIMIT: *ret = o->max_restarts; return true;
    case NODE_LOSSES: *ret = o->losses; return true;
    case INCIDENTS:
        *ret = h->incidents[at];
        /* OPERATOR: the job ends with it */
        return *ret > 0 || (at != INCIDENT_NONE && at != INCIDENT_OPERATOR);
    case PHASES: /* a leader finds out late that time was quiet, and no counter may fall */
        *ret = h->phase_ns[at] + (at == JOB_PHASE_RUNNING ? h->phase_ns[JOB_PHASE_QUIET] : 0);
        return true;
    case QUIET:
        *ret = rdzv_watchdog_is_quiet(w) ? w->quiet_ns : 0;
        return w->state != WATCHDOG_NONE;
    case HUNG: *ret = w->state == WATCHDOG_HUNG; return w->state != WATCHDOG_NONE;
    case STEP: *ret = o->time.step; return *ret != 0;
    case METRIC_COUNT: break;
    }
    assert_not_reached();
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

/* Adds one series. */
static void add_series(const struct status_view *v, enum metric m, uint32_t at, uint64_t value,
                       struct strbuf *out) {
    strbuf_printf(out, "%s{", metrics[m].name);
    add_label("run_id", v->run_id, out);
    if (metrics[m].label != NULL) {
        strbuf_add_char(out, ',');
        add_label(metrics[m].label,
                  metrics[m].values != NULL ? metrics[m].values[at] : status_state(v->overview),
                  out);
    }
    if (metrics[m].is_time)
        strbuf_printf(out, "} %" PRIu64 ".%03" PRIu64 "\n", value / NS_PER_S,
                      value % NS_PER_S / NS_PER_MS);
    else
        strbuf_printf(out, "} %" PRIu64 "\n", value);
}

void status_prometheus(const struct status_view *v, struct strbuf *out) {
    for (enum metric m = 0; m < METRIC_COUNT; m++) {
        const char *name = metrics[m].name;
        bool begun = false;
        for (uint32_t at = 0; at < MAX2(metrics[m].n, 1u); at++) {
            uint64_t value;
            if (!value_of(v, m, at, &value))
                continue;
            if (!begun)
                strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, metrics[m].help, name,
                              metrics[m].type);
            begun = true;
            add_series(v, m, at, value, out);
        }
    }
}
