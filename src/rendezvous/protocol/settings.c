#include "rendezvous/protocol/settings.h"

#include "base/util.h"

bool rdzv_settings_unit_fits(const struct rdzv_settings *s) {
    return s->max_nodes / s->node_unit * s->node_unit >= s->min_nodes;
}

bool rdzv_settings_make_sense(const struct rdzv_settings *s) {
    return s->min_nodes > 0 && s->min_nodes <= s->max_nodes && s->max_nodes <= RDZV_NODES_MAX &&
           s->node_unit > 0 && rdzv_settings_unit_fits(s) && s->lease_ns > 0 && s->heartbeat_ns > 0;
}

uint64_t rdzv_margin_ns(uint64_t lease_ns) { return MAX2(NS_PER_S, lease_ns / 50); }
