#include "rendezvous/protocol/settings.h"

#include "base/util.h"

void rdzv_settings_default(struct rdzv_settings *ret) {
    *ret = (struct rdzv_settings){
        .min_nodes = 1,
        .max_nodes = 1,
        .node_unit = 1,
        .spares = UINT32_MAX,
        .max_node_losses = UINT32_MAX,
        .exclude_after = 3,
        .crash_loop_ns = 5 * NS_PER_S,
        .hold_ns = 2 * NS_PER_S,
        .last_call_ns = 30 * NS_PER_S,
        .join_timeout_ns = 600 * NS_PER_S,
        .close_timeout_ns = 30 * NS_PER_S,
        .leader_timeout_ns = 60 * NS_PER_S,
        .heartbeat_ns = NS_PER_S,
        .lease_ns = 5 * NS_PER_S,
        .margin_ns = NS_PER_S,
        .arbiter_lease_ns = 60 * NS_PER_S,
    };
}

bool rdzv_settings_unit_fits(const struct rdzv_settings *s) {
    return s->max_nodes / s->node_unit * s->node_unit >= s->min_nodes;
}

bool rdzv_settings_make_sense(const struct rdzv_settings *s) {
    return s->min_nodes > 0 && s->min_nodes <= s->max_nodes && s->max_nodes <= RDZV_NODES_MAX &&
           s->node_unit > 0 && rdzv_settings_unit_fits(s) && s->lease_ns > 0 && s->heartbeat_ns > 0;
}

uint64_t rdzv_margin_ns(uint64_t lease_ns) { return MAX2(NS_PER_S, lease_ns / 50); }
