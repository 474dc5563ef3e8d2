#include <stdio.h>

#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

void server_stop_probe(struct server_node *n) {
    list_remove(&n->probe_link);
    if (n->probe != NULL) {
        probe_free(TAKE_PTR(n->probe));
        n->server->n_probes--;
    }
}

/* Whoever passes the probe on to this agent's own listener, which has the key too, proves nothing.
 */
static enum probe_result result_of(const struct rdzv_server *s, const struct probe_answer *answer) {
    bool came_back =
        answer->incarnation == s->group_config.leader_incarnation && !answer->within_host;
    return answer->result == PROBE_GONE && came_back ? PROBE_UNKNOWN : answer->result;
}

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct server_node *n = arg;
    struct rdzv_server *s = n->server;
    struct group_event ev = {
        .kind = GROUP_EVENT_PROBE, .node = n->incarnation, .probe = result_of(s, answer)};
    n->probe = NULL;
    s->n_probes--;
    server_start_probes(s);
    bool unreachable = n->reaching && answer->result != PROBE_ALIVE && n->conn != NULL;
    n->reaching = false;
    if (unreachable) {
        const struct node_info *info = group_node_info(s->group, n->incarnation);
        char at[ADDR_TEXT_MAX], line[512];
        addr_to_text(&n->listener, at);
        (void)snprintf(
            line, sizeof line,
            "node %s can't be reached at %s (a firewall?): its loss will be noticed after "
            "%.1f s, not at once",
            info == NULL ? "?" : info->host, at,
            (double)(s->group_config.rdzv.lease_ns + s->group_config.rdzv.margin_ns) / 1e9);
        bool held = pump_hold(&s->pump);
        server_notice(s, line);
        pump_release(&s->pump, held);
    }
    server_event(s, &ev);
}

/* Only queues the answer, never calls from inside. */
static void answer_later(struct rdzv_server *s, uint64_t incarnation, enum probe_result result) {
    bool held = pump_hold(&s->pump);
    server_event(
        s, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = incarnation, .probe = result});
    pump_release(&s->pump, held);
    loop_timer_set(s->pump.timer, clock_now_ns());
}

void server_start_probes(struct rdzv_server *s) {
    while (s->n_probes < RDZV_PROBES_MAX && !list_empty(&s->probe_queue)) {
        struct server_node *n = LIST_FIRST(struct server_node, &s->probe_queue, probe_link);
        list_remove(&n->probe_link);
        int r = probe_start(s->loop, &n->listener, s->config.auth, n->incarnation,
                            s->config.probe_timeout_ns, on_probed, n, &n->probe);
        if (r == 0) {
            s->n_probes++;
            continue;
        }
        /* Out of descriptors: the group asks again after its retry interval. */
        answer_later(s, n->incarnation, PROBE_UNKNOWN);
    }
}

void server_probe(struct rdzv_server *s, uint64_t incarnation, bool reach) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL)
        n = server_find_inherited(s, incarnation);
    if (n == NULL)
        return;
    if (n->listener.len == 0) {
        answer_later(s, incarnation, PROBE_UNKNOWN);
        return;
    }
    n->reaching = reach;
    if (n->probe == NULL && !list_linked(&n->probe_link))
        list_append(&s->probe_queue, &n->probe_link);
    server_start_probes(s);
}
