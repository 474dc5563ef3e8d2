/* The states of the group, and the allowed transitions. */
#include "rendezvous/leader/group_priv.h"

static const struct {
    const char *name;
    unsigned next; /* bits of the states that can follow */
} states[GROUP_STATE_COUNT] = {
    /*                  name         can be followed by */
    [GROUP_GATHERING] = {"gathering", 1u << GROUP_FORMING | 1u << GROUP_CLOSED},
    [GROUP_FORMING] = {"forming", 1u << GROUP_RUNNING | 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_RUNNING] = {"running", 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_STOPPING] = {"stopping", 1u << GROUP_GATHERING | 1u << GROUP_CLOSED},
    [GROUP_CLOSED] = {"closed", 0},
};

const char *group_state_name(enum group_state s) { return states[s].name; }

bool group_may_move(enum group_state from, enum group_state to) {
    return (states[from].next >> to & 1) != 0;
}

void group_move(struct group *g, enum group_state to) {
    assert(group_may_move(g->state, to));
    g->state = to;
    g->since_ns = g->now_ns;
    g->status.dirty = true;
}
