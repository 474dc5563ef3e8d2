#include "rendezvous/leader/parts/incident.h"

#include <inttypes.h>

#include "base/text/duration.h"
#include "base/text/utf8.h"
#include "base/util.h"

const char *const incident_action_names[INCIDENT_ACTION_COUNT] = {
    [INCIDENT_ACTION_NONE] = "none", [INCIDENT_RESTART] = "restart", [INCIDENT_SHRINK] = "shrink",
    [INCIDENT_SPARE] = "spare",      [INCIDENT_END] = "end",
};

static void add_count(uint64_t n, const char *what, struct strbuf *ret) {
    strbuf_printf(ret, "%" PRIu64 " %s%s", n, what, n == 1 ? "" : "s");
}

static void add_time(const char *before, uint64_t ns, const char *after, struct strbuf *ret) {
    strbuf_add(ret, before);
    duration_text(ns, ret);
    strbuf_add(ret, after);
}

static void add_what(const struct incident *i, struct strbuf *ret) {
    strbuf_add(ret, ", ");
    if (i->began_ns != 0)
        add_time("", MAX2(i->symptom_ns, i->began_ns) - i->began_ns, " after the start of ", ret);
    strbuf_printf(ret, "group %" PRIu32 ".%" PRIu32 ": %s", i->generation.epoch,
                  i->generation.counter, i->cause);
}

static void add_action(const struct incident *i, struct strbuf *ret) {
    bool stays = i->class == INCIDENT_WORKER || i->class == INCIDENT_HANG ||
                 i->class == INCIDENT_HEALTH; /* the others are out by their cause */
    bool left_out = i->left_out && i->failure.node[0] != '\0' && stays;
    strbuf_add(ret, "; ");
    if (left_out)
        strbuf_printf(ret, "node %s is left out, ", i->failure.node);
    if (i->action == INCIDENT_SHRINK) {
        strbuf_printf(ret, "the group shrinks from %" PRIu32 " to ", i->old_nodes);
        add_count(i->n_nodes, "node", ret);
    } else if (i->action == INCIDENT_SPARE) {
        strbuf_printf(ret, "%s takes %s place", i->taker,
                      stays && !left_out ? "another node's" : "its");
    } else if (i->action == INCIDENT_RESTART) {
        strbuf_add(ret, "the same nodes start again");
        if (i->n_nodes > i->old_nodes)
            strbuf_printf(ret, " with %" PRIu32 " more", i->n_nodes - i->old_nodes);
        if (i->class == INCIDENT_HEALTH && !left_out)
            strbuf_printf(ret, ", and node %s is one of them", i->failure.node);
    } else {
        strbuf_add(ret, "the job ends");
    }
    strbuf_add(ret, ". ");
}

static void add_times(const struct incident *i, const char *leader, struct strbuf *ret) {
    uint64_t noticed_ns = i->noticed_ns - i->symptom_ns;
    strbuf_printf(ret, "The leader on node %s noticed it ", leader);
    if (noticed_ns < NS_PER_MS)
        strbuf_add(ret, "at once");
    else
        add_time("after ", noticed_ns, "", ret);
    if (i->stopped_ns != 0)
        add_time("; all workers were gone ", i->stopped_ns - MIN2(i->noticed_ns, i->stopped_ns),
                 " later", ret);
    if (i->started_ns != 0) {
        strbuf_printf(ret, "; group %" PRIu32 ".%" PRIu32 " (", i->next.epoch, i->next.counter);
        add_count(i->n_nodes, "node", ret);
        strbuf_add(ret, ", ");
        add_count(i->world_size, "worker", ret);
        add_time(") started ", i->started_ns - i->symptom_ns, " after the first symptom", ret);
    }
    strbuf_printf(ret, ". Restarts used: %" PRIu32 " of %" PRIu32 ".", i->restarts_used,
                  i->max_restarts);
}

static void add_steps(const struct incident *i, struct strbuf *ret) {
    if (i->first_step_ns != 0) {
        add_time(" The first step ended ", i->first_step_ns - i->symptom_ns,
                 " after the first symptom. Repeated: ", ret);
        add_count(i->steps_lost, "step", ret);
        strbuf_add_char(ret, '.');
    } else if (i->last_step != 0) {
        strbuf_printf(ret,
                      " The last step was %" PRIu64 "; the number of repeated steps is not known.",
                      i->last_step);
    } else {
        strbuf_add(ret, " The lost work is not known: no step was reported (MUSTER_STEP).");
    }
}

void incident_text(const struct incident *i, const char *leader, const char *when,
                   char ret[INCIDENT_TEXT_MAX]) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, when);
    add_what(i, &text);
    add_action(i, &text);
    add_times(i, leader, &text);
    add_steps(i, &text);
    if (i->evidence[0] != '\0')
        strbuf_printf(&text, " Evidence on node %s: %s", leader, i->evidence);
    utf8_copy(ret, INCIDENT_TEXT_MAX, strbuf_text(&text));
}

void job_history_text(const struct job_history *h, struct strbuf *ret) {
    uint64_t all_ns = 0;
    uint32_t n = 0;
    for (int phase = 0; phase < JOB_PHASE_COUNT; phase++)
        all_ns += h->phase_ns[phase];
    for (int c = 0; c < INCIDENT_CLASS_COUNT; c++)
        n += h->incidents[c];
    if (h->down_ns == 0 || n == 0)
        return;
    add_count(n, "incident", ret);
    strbuf_printf(ret, "; workers ran at most %.1f %% of ",
                  100 * (double)h->phase_ns[JOB_PHASE_RUNNING] / (double)all_ns);
    add_time("", all_ns, "; ", ret);
    add_time("", h->down_ns, " from first symptoms to new starts", ret);
    if (h->steps_lost > 0) {
        strbuf_add(ret, "; ");
        add_count(h->steps_lost, "step", ret);
        strbuf_add(ret, " repeated");
    }
}
