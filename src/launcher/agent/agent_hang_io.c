/* The watchdog on this node: what it says goes to the leader. */
#include "launcher/agent/agent_priv.h"

static void on_signs(void *arg, const struct rdzv_signs *signs) {
    struct agent *a = arg;
    rdzv_client_signs(a->client, signs);
}

static uint64_t leader(void *arg) {
    const struct agent *a = arg;
    return rdzv_client_welcomes(a->client);
}

static bool on_evidence(void *arg, const struct rdzv_evidence *piece) {
    struct agent *a = arg;
    return rdzv_client_evidence(a->client, piece);
}

static void on_gathered(void *arg) { agent_stop_gathered(arg); }

int agent_hang_begin(struct agent *a) {
    static const struct hang_watch_ops ops = {
        .signs = on_signs, .leader = leader, .evidence = on_evidence, .gathered = on_gathered};
    struct hang_watch_config config = {
        .spec = a->config.spec, .host = a->host, .workers = a->local_workers};
    return hang_watch_new(a->loop, &config, &ops, a, &a->hang);
}

void agent_hang_start(struct agent *a, struct generation g) {
    hang_watch_start(a->hang, g, member_form(rdzv_client_member(a->client)));
}

void agent_hang_message(void *arg, const struct wire_message *m) {
    struct agent *a = arg;
    hang_watch_message(a->hang, m);
}
