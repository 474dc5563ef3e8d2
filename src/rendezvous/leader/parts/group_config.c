#include "rendezvous/leader/parts/group_config.h"

void group_config_default(struct group_config *c) {
    *c = (struct group_config){
        .rdzv = RDZV_SETTINGS_DEFAULT,
        .epoch = 1,
        .form_timeout_ns = 60 * NS_PER_S,
        .settle_ns = 500 * NS_PER_MS,
        .waiter_probe_ns = 10 * NS_PER_MS,
    };
}
