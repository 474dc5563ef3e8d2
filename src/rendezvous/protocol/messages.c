#include "rendezvous/protocol/messages.h"

#include <string.h>

#include "base/util.h"
#include "rendezvous/protocol/settings.h"

const char *const node_state_names[NODE_STATE_COUNT] = {
    [NODE_JOINED] = "joined",     [NODE_PREPARED] = "prepared", [NODE_RUNNING] = "running",
    [NODE_FINISHED] = "finished", [NODE_FAILED] = "failed",     [NODE_STOPPED] = "stopped",
    [NODE_CLOSED] = "closed",
};
const char *const outcome_names[OUTCOME_COUNT] = {
    [OUTCOME_NONE] = "none", [OUTCOME_SUCCESS] = "success", [OUTCOME_FAILED] = "failed"};
const char *const group_state_names[GROUP_STATE_COUNT] = {
    [GROUP_GATHERING] = "gathering", [GROUP_FORMING] = "forming", [GROUP_RUNNING] = "running",
    [GROUP_STOPPING] = "stopping",   [GROUP_CLOSED] = "closed",
};
const char *const incident_class_names[INCIDENT_CLASS_COUNT] = {
    [INCIDENT_NONE] = "none",           [INCIDENT_WORKER] = "worker",
    [INCIDENT_HANG] = "hang",           [INCIDENT_NODE_LOST] = "node_lost",
    [INCIDENT_NODE_LEFT] = "node_left", [INCIDENT_EXCLUDED] = "excluded",
    [INCIDENT_HEALTH] = "health",       [INCIDENT_OPERATOR] = "operator",
};
const char *const overview_place_names[PLACE_COUNT] = {
    [PLACE_MEMBER] = "member",     [PLACE_WAITING] = "waiting", [PLACE_SPARE] = "spare",
    [PLACE_EXCLUDED] = "excluded", [PLACE_LEAVING] = "leaving", [PLACE_SICK] = "sick",
};
const char *const watchdog_state_names[WATCHDOG_STATE_COUNT] = {
    [WATCHDOG_NONE] = "none",   [WATCHDOG_STARTING] = "starting", [WATCHDOG_OK] = "ok",
    [WATCHDOG_QUIET] = "quiet", [WATCHDOG_HUNG] = "hung",
};
const char *const rdzv_owner_names[RDZV_OWNER_NAMES] = {
    [PEER_OURS] = "ours",      [PEER_OTHER_USER] = "other", [PEER_CLOSED] = "closed",
    [PEER_ELSEWHERE] = "none", [PEER_UNKNOWN] = "unknown",
};

bool rdzv_settings_unit_fits(const struct rdzv_settings *s) {
    return s->max_nodes / s->node_unit * s->node_unit >= s->min_nodes;
}

bool rdzv_settings_make_sense(const struct rdzv_settings *s) {
    return s->min_nodes > 0 && s->min_nodes <= s->max_nodes && s->max_nodes <= RDZV_NODES_MAX &&
           s->node_unit > 0 && rdzv_settings_unit_fits(s) && s->lease_ns > 0 && s->heartbeat_ns > 0;
}

uint64_t rdzv_margin_ns(uint64_t lease_ns) { return MAX2(NS_PER_S, lease_ns / 50); }

size_t rdzv_evidence_put(struct rdzv_evidence *piece, const char *rest, size_t len) {
    size_t n = MIN2(len, sizeof piece->text - 1);
    while (n < len && n > 1 && ((uint8_t)rest[n] & 0xc0) == 0x80)
        n--;
    memcpy(piece->text, rest, n);
    piece->text[n] = '\0';
    piece->last = n == len;
    return n;
}

void job_history_add_quiet(struct job_history *h, uint64_t quiet_ns) {
    quiet_ns = MIN2(quiet_ns, h->phase_ns[JOB_PHASE_RUNNING]);
    h->phase_ns[JOB_PHASE_RUNNING] -= quiet_ns;
    h->phase_ns[JOB_PHASE_QUIET] += quiet_ns;
}

int successors_index(const struct successors *s, uint64_t incarnation) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].incarnation == incarnation)
            return (int)i;
    return -1;
}

void handover_fini(struct handover *e) {
    free(e->members);
    *e = (struct handover){0};
}

void handover_copy(struct handover *to, const struct handover *from) {
    struct handover copy = *from;
    copy.members = NULL;
    if (from->n_members > 0) {
        copy.members = xcalloc(from->n_members, sizeof *copy.members);
        memcpy(copy.members, from->members, from->n_members * sizeof *copy.members);
    }
    handover_fini(to);
    *to = copy;
}
