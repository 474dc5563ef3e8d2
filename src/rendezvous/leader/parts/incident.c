#include "rendezvous/leader/parts/incident.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/duration.h"
#include "base/text/signal_name.h"
#include "base/text/utf8.h"
#include "base/util.h"

const char *const incident_action_names[INCIDENT_ACTION_COUNT] = {
    [INCIDENT_ACTION_NONE] = "none", [INCIDENT_RESTART] = "restart", [INCIDENT_SHRINK] = "shrink",
    [INCIDENT_SPARE] = "spare",      [INCIDENT_END] = "end",
};

static void add_count(uint64_t n, const char *what, struct strbuf *ret) {
    strbuf_printf(ret, "%" PRIu64 " %s%s", n, what, n == 1 ? "" : "s");
}

/* A hang describes several ranks: whole descriptions are kept. */
static void add_hang(const char *cause, struct strbuf *ret) {
    size_t len = strnlen(cause, 320);
    while (cause[len] != '\0' && cause[len] != ';' && len > 0)
        len--;
    strbuf_add_bytes(ret, cause, len > 0 ? len : strnlen(cause, 320));
}

void incident_cause_text(const struct incident *i, struct strbuf *ret) {
    const char *name = signal_abbrev(i->code), *failed = strstr(i->cause, "failed: ");
    if (i->failure == FAILURE_OOM)
        strbuf_printf(ret, "rank %" PRIu32 " (node %s) was killed for lack of memory", i->rank,
                      i->node);
    else if (i->failure == FAILURE_SIGNAL && name != NULL)
        strbuf_printf(ret, "rank %" PRIu32 " (node %s) died of SIG%s", i->rank, i->node, name);
    else if (i->has_rank && i->failure != FAILURE_HANG)
        strbuf_printf(ret, "rank %" PRIu32 " (node %s) %.200s", i->rank, i->node,
                      failed != NULL ? failed : "failed");
    else
        add_hang(i->cause, ret);
    if (i->sick[0] != '\0')
        strbuf_printf(ret, "%s%s", i->xid != 0 ? " " : ", and the node is not fit: ", i->sick);
}

static void add_what(const struct incident *i, struct strbuf *ret) {
    strbuf_add(ret, ", ");
    if (i->began_ns != 0) {
        duration_text(MAX2(i->symptom_ns, i->began_ns) - i->began_ns, ret);
        strbuf_add(ret, " after the start of ");
    }
    strbuf_printf(ret, "group %" PRIu32 ".%" PRIu32 ": ", i->generation.epoch,
                  i->generation.counter);
    incident_cause_text(i, ret);
}

static void add_action(const struct incident *i, struct strbuf *ret) {
    bool stays = i->class == INCIDENT_WORKER || i->class == INCIDENT_HANG ||
                 i->class == INCIDENT_HEALTH; /* the others are out by their cause */
    bool left_out = i->left_out && i->node[0] != '\0' && stays;
    strbuf_add(ret, "; ");
    if (left_out)
        strbuf_printf(ret, "node %s is left out, ", i->node);
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
            strbuf_printf(ret, ", and node %s is one of them", i->node);
    } else {
        strbuf_add(ret, "the job ends");
    }
    strbuf_add(ret, ". ");
}

static void add_times(const struct incident *i, const char *leader, struct strbuf *ret) {
    uint64_t noticed_ns = i->noticed_ns - i->symptom_ns;
    strbuf_printf(ret, "The leader on node %s noticed it %s", leader,
                  noticed_ns < NS_PER_MS ? "at once" : "after ");
    if (noticed_ns >= NS_PER_MS)
        duration_text(noticed_ns, ret);
    if (i->stopped_ns != 0) {
        strbuf_add(ret, "; all workers were gone ");
        duration_text(i->stopped_ns - MIN2(i->noticed_ns, i->stopped_ns), ret);
        strbuf_add(ret, " later");
    }
    if (i->started_ns != 0) {
        strbuf_printf(ret, "; group %" PRIu32 ".%" PRIu32 " (", i->next.epoch, i->next.counter);
        add_count(i->n_nodes, "node", ret);
        strbuf_add(ret, ", ");
        add_count(i->world_size, "worker", ret);
        strbuf_add(ret, ") started ");
        duration_text(i->started_ns - i->symptom_ns, ret);
        strbuf_add(ret, " after the first symptom");
    }
    strbuf_printf(ret, ". Restarts used: %" PRIu32 " of %" PRIu32 ".", i->restarts_used,
                  i->max_restarts);
}

static void add_steps(const struct incident *i, struct strbuf *ret) {
    if (i->first_step_ns != 0) {
        strbuf_add(ret, " The first step ended ");
        duration_text(i->first_step_ns - i->symptom_ns, ret);
        strbuf_add(ret, " after the first symptom.");
    }
    if (i->has_steps_lost) {
        strbuf_add(ret, " Repeated: ");
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
    duration_text(all_ns, ret);
    strbuf_add(ret, "; ");
    duration_text(h->down_ns, ret);
    strbuf_add(ret, " from first symptoms to new starts");
    if (h->steps_lost > 0) {
        strbuf_add(ret, "; ");
        add_count(h->steps_lost, "step", ret);
        strbuf_add(ret, " repeated");
    }
}
