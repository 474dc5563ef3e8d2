#include "rendezvous/protocol/wire.h"

#include "base/json/json.h"
#include "rendezvous/protocol/wire_priv.h"

const char *const wire_kind_names[WIRE_KIND_COUNT] = {
    [WIRE_HELLO] = "HELLO",         [WIRE_JOIN] = "JOIN",         [WIRE_WELCOME] = "WELCOME",
    [WIRE_REFUSED] = "REFUSED",     [WIRE_REPORT] = "REPORT",     [WIRE_RENEW] = "RENEW",
    [WIRE_LEAVE] = "LEAVE",         [WIRE_DESIRED] = "DESIRED",   [WIRE_LEASE] = "LEASE",
    [WIRE_STATUS] = "STATUS",       [WIRE_NAMED] = "NAMED",       [WIRE_MEMBERS] = "MEMBERS",
    [WIRE_ECHO] = "ECHO",           [WIRE_REDIRECT] = "REDIRECT", [WIRE_COMMAND] = "COMMAND",
    [WIRE_ANSWER] = "ANSWER",       [WIRE_OVERVIEW] = "OVERVIEW", [WIRE_NODES] = "NODES",
    [WIRE_NODE_SUMMARY] = "DIGEST",
};
const char *const wire_node_state_names[NODE_STATE_COUNT] = {
    [NODE_JOINED] = "joined",     [NODE_PREPARED] = "prepared", [NODE_RUNNING] = "running",
    [NODE_FINISHED] = "finished", [NODE_FAILED] = "failed",     [NODE_STOPPED] = "stopped",
    [NODE_CLOSED] = "closed",
};
const char *const wire_failure_kind_names[FAILURE_KIND_COUNT] = {
    [FAILURE_EXIT] = "exit",   [FAILURE_SIGNAL] = "signal", [FAILURE_OOM] = "oom",
    [FAILURE_SPAWN] = "spawn", [FAILURE_NODE] = "node",
};
const char *const wire_desired_names[DESIRED_KIND_COUNT] = {
    [DESIRED_IDLE] = "idle", [DESIRED_FORM] = "form",     [DESIRED_START] = "start",
    [DESIRED_STOP] = "stop", [DESIRED_CLOSED] = "closed",
};
const char *const wire_outcome_names[WIRE_OUTCOME_COUNT] = {
    [OUTCOME_NONE] = "none", [OUTCOME_SUCCESS] = "success", [OUTCOME_FAILED] = "failed"};

const char *wire_kind_name(enum wire_kind kind) { return wire_kind_names[kind]; }

static void put_failure(struct json_writer *w, const struct failure *f) {
    json_write_object_begin(w, "failure");
    json_write_string(w, "kind", wire_failure_kind_names[f->kind]);
    json_write_i64(w, "code", f->code);
    json_write_bool(w, "core_dumped", f->core_dumped);
    json_write_u64(w, "rank", f->rank);
    json_write_u64(w, "local_rank", f->local_rank);
    json_write_u64(w, "node_rank", f->node_rank);
    json_write_hex(w, "incarnation", f->incarnation);
    json_write_i64(w, "pid", f->pid);
    json_write_id(w, "at_ns", f->at_ns);
    json_write_id(w, "wall_ns", f->wall_ns);
    json_write_id(w, "ran_ns", f->ran_ns);
    PUT_TEXT(w, "node", f->node);
    PUT_TEXT(w, "role", f->role);
    PUT_TEXT(w, "text", f->text);
    json_write_bool(w, "text_is_traceback", f->text_is_traceback);
    PUT_TEXT(w, "error_file", f->error_file);
    json_write_object_end(w);
}

static void put_report(struct json_writer *w, const struct report *r) {
    json_write_object_begin(w, "report");
    json_write_string(w, "state", wire_node_state_names[r->state]);
    wire_put_generation(w, "generation", r->generation);
    json_write_u64(w, "epoch", r->epoch);
    json_write_bool(w, "leaving", r->leaving);
    json_write_bool(w, "finished", r->finished);
    json_write_bool(w, "at_safe_point", r->at_safe_point);
    json_write_u64(w, "ways", r->reachability);
    json_write_bool(w, "excluded", r->excluded);
    PUT_TEXT(w, "excluded_why", r->excluded_why);
    PUT_TEXT(w, "unusable", r->unusable);
    json_write_u64(w, "restarts_used", r->restarts_used);
    json_write_u64(w, "losses", r->losses);
    if (r->has_failure)
        put_failure(w, &r->failure);
    json_write_object_end(w);
}

const struct wire_net_keys wire_net_keys[RDZV_NETS_MAX] = {{"netif", "net_addrs"},
                                                           {"fast_netif", "fast_addrs"}};

static void put_nets(struct json_writer *w, const struct rdzv_net nets[RDZV_NETS_MAX]) {
    for (uint32_t i = 0; i < RDZV_NETS_MAX; i++) {
        PUT_TEXT(w, wire_net_keys[i].netif, nets[i].netif);
        PUT_TEXT(w, wire_net_keys[i].addrs, nets[i].addrs);
    }
}

static void put_program(struct json_writer *w, const struct rdzv_program *p) {
    json_write_object_begin(w, "program");
    PUT_TEXT(w, "shown", p->shown);
    json_write_hex(w, "name", p->name);
    json_write_hex(w, "args", p->args);
    json_write_u64(w, "max_restarts", p->max_restarts);
    json_write_object_end(w);
}

static void put_join(struct json_writer *w, const struct wire_join *j) {
    json_write_u64(w, "version", j->version);
    PUT_TEXT(w, "run_id", j->run_id);
    json_write_u64(w, "min_nodes", j->min_nodes);
    json_write_u64(w, "max_nodes", j->max_nodes);
    json_write_object_begin(w, "node");
    json_write_hex(w, "incarnation", j->info.incarnation);
    PUT_TEXT(w, "host", j->info.host);
    PUT_TEXT(w, "role", j->info.role);
    json_write_u64(w, "listener_port", j->info.listener_port);
    json_write_u64(w, "nproc", j->info.nproc);
    json_write_i64(w, "node_rank", j->info.node_rank);
    json_write_i64(w, "pid", j->info.pid);
    PUT_TEXT(w, "topology", j->info.topology);
    put_nets(w, j->info.nets);
    json_write_object_end(w);
    put_program(w, &j->program);
    put_report(w, &j->report);
}

static void put_neighbours(struct json_writer *w, const struct form *f) {
    json_write_array_begin(w, "neighbours");
    for (uint32_t i = 0; i < f->n_neighbours; i++) {
        const struct rdzv_neighbour *n = &f->neighbours[i];
        json_write_object_begin(w, NULL);
        json_write_hex(w, "incarnation", n->incarnation);
        PUT_TEXT(w, "host", n->host);
        put_nets(w, n->nets);
        json_write_u64(w, "listener_port", n->listener_port);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void put_form(struct json_writer *w, const struct form *f) {
    json_write_object_begin(w, "form");
    json_write_u64(w, "node_rank", f->node_rank);
    json_write_u64(w, "n_nodes", f->n_nodes);
    json_write_u64(w, "first_rank", f->first_rank);
    json_write_u64(w, "world_size", f->world_size);
    json_write_u64(w, "role_first_rank", f->role_first_rank);
    json_write_u64(w, "role_world_size", f->role_world_size);
    json_write_u64(w, "host_index", f->host_index);
    PUT_TEXT(w, "store_host", f->store_host);
    json_write_u64(w, "store_port", f->store_port);
    json_write_u64(w, "restarts_used", f->restarts_used);
    json_write_u64(w, "max_restarts", f->max_restarts);
    json_write_u64(w, "losses", f->losses);
    json_write_id(w, "log_nonce", f->log_nonce);
    put_neighbours(w, f);
    json_write_object_end(w);
}

static void put_desired(struct json_writer *w, const struct desired *d) {
    json_write_string(w, "desired", wire_desired_names[d->kind]);
    json_write_u64(w, "epoch", d->epoch);
    wire_put_generation(w, "generation", d->generation);
    json_write_u64(w, "restarts_used", d->restarts_used);
    json_write_u64(w, "max_restarts", d->max_restarts);
    json_write_u64(w, "losses", d->losses);
    if (d->kind == DESIRED_FORM)
        put_form(w, &d->form);
    if (d->kind == DESIRED_START)
        json_write_u64(w, "ways", d->reachability);
    if (d->kind == DESIRED_IDLE) {
        json_write_bool(w, "excluded", d->excluded);
        json_write_bool(w, "spare", d->spare);
        PUT_TEXT(w, "reason", d->reason);
    }
    if (d->kind != DESIRED_STOP && d->kind != DESIRED_CLOSED)
        return;
    json_write_id(w, "grace_ns", d->grace_ns);
    json_write_bool(w, "will_restart", d->will_restart);
    json_write_u64(w, "n_stopping", d->n_stopping);
    json_write_string(w, "outcome", wire_outcome_names[d->outcome]);
    PUT_TEXT(w, "reason", d->reason);
    if (d->has_failure)
        put_failure(w, &d->failure);
}

static void put_names(struct json_writer *w, const char *key, const char (*names)[RDZV_HOST_MAX],
                      uint32_t n) {
    json_write_array_begin(w, key);
    for (uint32_t i = 0; i < n; i++)
        wire_put_text(w, NULL, names[i], RDZV_HOST_MAX);
    json_write_array_end(w);
}

static void put_status(struct json_writer *w, const struct rdzv_status *s) {
    json_write_u64(w, "present", s->present);
    json_write_u64(w, "min_nodes", s->min_nodes);
    json_write_u64(w, "max_nodes", s->max_nodes);
    json_write_id(w, "wait_ns", s->wait_ns);
    json_write_bool(w, "last_call", s->last_call);
    json_write_u64(w, "spares", s->spares);
    put_names(w, "names", s->names, s->n_names);
    put_names(w, "missing", s->missing, s->n_missing);
}

static void put_body(struct json_writer *w, const struct wire_message *m) {
    switch (m->kind) {
    case WIRE_HELLO:
        json_write_u64(w, "version", m->hello.version);
        json_write_hex(w, "incarnation", m->hello.incarnation);
        PUT_TEXT(w, "run_id", m->hello.run_id);
        break;
    case WIRE_JOIN: put_join(w, &m->join); break;
    case WIRE_WELCOME:
        json_write_u64(w, "epoch", m->welcome.epoch);
        json_write_hex(w, "leader", m->welcome.leader);
        json_write_u64(w, "listener_port", m->welcome.listener_port);
        json_write_id(w, "heartbeat_ns", m->welcome.heartbeat_ns);
        json_write_id(w, "lease_ns", m->welcome.lease_ns);
        json_write_id(w, "margin_ns", m->welcome.margin_ns);
        break;
    case WIRE_REFUSED:
        json_write_bool(w, "final", m->refused.final);
        PUT_TEXT(w, "reason", m->refused.reason);
        break;
    case WIRE_REPORT: put_report(w, &m->report); break;
    case WIRE_RENEW:
        json_write_id(w, "clock_ns", m->renew.clock_ns);
        json_write_id(w, "leader_clock_ns", m->renew.leader_clock_ns);
        json_write_id(w, "rtt_ns", m->renew.rtt_ns);
        json_write_u64(w, "epoch", m->renew.epoch);
        json_write_u64(w, "stalls", m->renew.stalls);
        json_write_id(w, "longest_stall_ns", m->renew.longest_stall_ns);
        break;
    case WIRE_LEAVE: break;
    case WIRE_DESIRED: put_desired(w, &m->desired); break;
    case WIRE_LEASE:
        json_write_u64(w, "epoch", m->lease.epoch);
        wire_put_generation(w, "prepared", m->lease.prepared);
        json_write_id(w, "echo_ns", m->lease.echo_ns);
        json_write_id(w, "validity_ns", m->lease.validity_ns);
        json_write_id(w, "clock_ns", m->lease.clock_ns);
        break;
    case WIRE_STATUS: put_status(w, &m->status); break;
    case WIRE_NAMED: wire_put_named(w, &m->named); break;
    case WIRE_MEMBERS: wire_put_members(w, &m->members); break;
    case WIRE_ECHO:
        json_write_u64(w, "epoch", m->echo.epoch);
        json_write_id(w, "leader_clock_ns", m->echo.leader_clock_ns);
        break;
    case WIRE_REDIRECT: wire_put_redirect(w, &m->redirect); break;
    case WIRE_COMMAND: wire_put_command(w, &m->command); break;
    case WIRE_ANSWER:
        json_write_bool(w, "ok", m->answer.ok);
        PUT_TEXT(w, "text", m->answer.text);
        break;
    case WIRE_OVERVIEW: wire_put_overview(w, &m->overview); break;
    case WIRE_NODES: wire_put_nodes(w, &m->nodes); break;
    case WIRE_NODE_SUMMARY: json_write_string(w, "text", m->node_summary.text); break;
    case WIRE_KIND_COUNT: assert_not_reached();
    }
}

void wire_encode(const struct wire_message *m, struct strbuf *ret) {
    strbuf_clear(ret);
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", wire_kind_names[m->kind]);
    put_body(&w, m);
    json_write_object_end(&w);
}
