#include <errno.h>
#include <string.h>

#include "base/text/utf8.h"
#include "rendezvous/protocol/wire_priv.h"

/* message > report > failure, message > form > neighbours > each. The most values has NODES. */
static const struct json_limits limits = {
    .max_bytes = WIRE_MESSAGE_MAX, .max_depth = 4, .max_values = 1024};

static void get_failure(struct fields *outer, bool *ret_has, struct failure *ret) {
    *ret_has = outer->code == 0 && json_has(outer->obj, "failure");
    if (!*ret_has)
        return;
    const struct json *v = wire_get_object(outer, "failure");
    if (v == NULL)
        return;
    struct fields f = FIELDS(v, outer->err, "kind", "code", "core_dumped", "rank", "local_rank",
                             "node_rank", "incarnation", "pid", "at_ns", "wall_ns", "ran_ns",
                             "node", "role", "text", "text_is_traceback", "error_file");
    ret->kind = (enum failure_kind)wire_get_name(&f, "kind", wire_failure_kind_names, 1,
                                                 FAILURE_KIND_COUNT);
    wire_get_i32(&f, "code", INT32_MIN, &ret->code);
    wire_get_bool(&f, "core_dumped", &ret->core_dumped);
    wire_get_u32(&f, "rank", 0, UINT32_MAX, &ret->rank);
    wire_get_u32(&f, "local_rank", 0, RDZV_WORKERS_MAX, &ret->local_rank);
    wire_get_u32(&f, "node_rank", 0, RDZV_NODES_MAX, &ret->node_rank);
    wire_get_hex(&f, "incarnation", &ret->incarnation);
    wire_get_i32(&f, "pid", 0, &ret->pid);
    wire_get_id(&f, "at_ns", &ret->at_ns);
    wire_get_id(&f, "wall_ns", &ret->wall_ns);
    wire_get_id(&f, "ran_ns", &ret->ran_ns);
    GET_LINE(&f, "node", ret->node);
    GET_LINE(&f, "role", ret->role);
    GET_TEXT(&f, "text", ret->text);
    wire_get_bool(&f, "text_is_traceback", &ret->text_is_traceback);
    GET_TEXT(&f, "error_file", ret->error_file);
    outer->code = f.code;
}

static void get_report(struct fields *outer, struct report *ret) {
    const struct json *v = wire_get_object(outer, "report");
    if (v == NULL)
        return;
    struct fields f = FIELDS(v, outer->err, "state", "generation", "epoch", "leaving", "finished",
                             "at_safe_point", "ways", "excluded", "excluded_why", "unusable",
                             "restarts_used", "losses", "failure");
    ret->state =
        (enum node_state)wire_get_name(&f, "state", wire_node_state_names, 1, NODE_STATE_COUNT);
    wire_get_generation(&f, "generation", &ret->generation);
    wire_get_u32(&f, "epoch", 0, UINT32_MAX, &ret->epoch);
    wire_get_bool(&f, "leaving", &ret->leaving);
    wire_get_bool(&f, "finished", &ret->finished);
    wire_get_bool(&f, "at_safe_point", &ret->at_safe_point);
    wire_get_u32(&f, "ways", 0, UINT32_MAX, &ret->reachability);
    wire_get_bool(&f, "excluded", &ret->excluded);
    GET_LINE(&f, "excluded_why", ret->excluded_why);
    GET_LINE(&f, "unusable", ret->unusable);
    wire_get_u32(&f, "restarts_used", 0, UINT32_MAX, &ret->restarts_used);
    wire_get_u32(&f, "losses", 0, UINT32_MAX, &ret->losses);
    get_failure(&f, &ret->has_failure, &ret->failure);
    outer->code = f.code;
}

static void get_nets(struct fields *f, struct rdzv_net nets[RDZV_NETS_MAX]) {
    for (uint32_t i = 0; i < RDZV_NETS_MAX; i++) {
        GET_LINE(f, wire_net_keys[i].netif, nets[i].netif);
        GET_LINE(f, wire_net_keys[i].addrs, nets[i].addrs);
    }
}

static void get_node_info(struct fields *outer, struct node_info *ret) {
    const struct json *v = wire_get_object(outer, "node");
    if (v == NULL)
        return;
    struct fields f =
        FIELDS(v, outer->err, "incarnation", "host", "role", "listener_port", "nproc", "node_rank",
               "pid", "topology", "netif", "net_addrs", "fast_netif", "fast_addrs");
    wire_get_incarnation(&f, "incarnation", &ret->incarnation);
    GET_LINE(&f, "host", ret->host);
    GET_LINE(&f, "role", ret->role);
    wire_get_port(&f, "listener_port", &ret->listener_port);
    wire_get_u32(&f, "nproc", 1, RDZV_WORKERS_MAX, &ret->nproc);
    wire_get_i32(&f, "node_rank", -1, &ret->node_rank);
    wire_get_i32(&f, "pid", 0, &ret->pid);
    GET_LINE(&f, "topology", ret->topology);
    get_nets(&f, ret->nets);
    outer->code = f.code;
}

static void get_program(struct fields *outer, struct rdzv_program *ret) {
    const struct json *v = wire_get_object(outer, "program");
    if (v == NULL)
        return;
    struct fields f = FIELDS(v, outer->err, "shown", "name", "args", "max_restarts");
    GET_LINE(&f, "shown", ret->shown);
    wire_get_hex(&f, "name", &ret->name);
    wire_get_hex(&f, "args", &ret->args);
    wire_get_u32(&f, "max_restarts", 0, UINT32_MAX, &ret->max_restarts);
    outer->code = f.code;
}

static int get_join(const struct json *doc, struct wire_join *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "version", "run_id", "min_nodes", "max_nodes",
                             "node", "program", "report");
    wire_get_u32(&f, "version", 1, UINT32_MAX, &ret->version);
    GET_TEXT(&f, "run_id", ret->run_id);
    wire_get_u32(&f, "min_nodes", 1, RDZV_NODES_MAX, &ret->min_nodes);
    wire_get_u32(&f, "max_nodes", ret->min_nodes, RDZV_NODES_MAX, &ret->max_nodes);
    get_node_info(&f, &ret->info);
    get_program(&f, &ret->program);
    get_report(&f, &ret->report);
    return f.code;
}

static int get_hello(const struct json *doc, struct wire_hello *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "version", "incarnation", "run_id");
    wire_get_u32(&f, "version", 1, UINT32_MAX, &ret->version);
    wire_get_incarnation(&f, "incarnation", &ret->incarnation);
    GET_TEXT(&f, "run_id", ret->run_id);
    return f.code;
}

static int get_welcome(const struct json *doc, struct wire_welcome *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "epoch", "leader", "listener_port", "heartbeat_ns",
                             "lease_ns", "margin_ns");
    wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->epoch);
    wire_get_incarnation(&f, "leader", &ret->leader);
    wire_get_port(&f, "listener_port", &ret->listener_port);
    wire_get_setting(&f, "heartbeat_ns", WIRE_HEARTBEAT_MIN_NS, &ret->heartbeat_ns);
    wire_get_setting(&f, "lease_ns", WIRE_HEARTBEAT_MIN_NS, &ret->lease_ns);
    wire_get_setting(&f, "margin_ns", 0, &ret->margin_ns);
    return f.code;
}

static void get_neighbours(struct fields *outer, struct form *ret) {
    const struct json *list = wire_get_array(outer, "neighbours", RDZV_NEIGHBOURS_MAX);
    if (list == NULL)
        return;
    for (const struct json *v = json_first(list); v != NULL && outer->code == 0; v = json_next(v)) {
        struct rdzv_neighbour *n = &ret->neighbours[ret->n_neighbours++];
        struct fields f = FIELDS(v, outer->err, "incarnation", "host", "netif", "net_addrs",
                                 "fast_netif", "fast_addrs", "listener_port");
        wire_get_incarnation(&f, "incarnation", &n->incarnation);
        GET_LINE(&f, "host", n->host);
        get_nets(&f, n->nets);
        wire_get_port(&f, "listener_port", &n->listener_port);
        outer->code = f.code;
    }
}

static void get_form(struct fields *outer, struct form *ret) {
    const struct json *v = wire_get_object(outer, "form");
    if (v == NULL)
        return;
    struct fields f =
        FIELDS(v, outer->err, "node_rank", "n_nodes", "first_rank", "world_size", "role_first_rank",
               "role_world_size", "host_index", "store_host", "store_port", "restarts_used",
               "max_restarts", "losses", "log_nonce", "neighbours");
    wire_get_u32(&f, "n_nodes", 1, RDZV_NODES_MAX, &ret->n_nodes);
    wire_get_u32(&f, "node_rank", 0, ret->n_nodes - 1, &ret->node_rank);
    wire_get_u32(&f, "world_size", 1, UINT32_MAX, &ret->world_size);
    wire_get_u32(&f, "first_rank", 0, ret->world_size - 1, &ret->first_rank);
    wire_get_u32(&f, "role_world_size", 1, UINT32_MAX, &ret->role_world_size);
    wire_get_u32(&f, "role_first_rank", 0, ret->role_world_size - 1, &ret->role_first_rank);
    wire_get_u32(&f, "host_index", 0, RDZV_NODES_MAX, &ret->host_index);
    GET_TEXT(&f, "store_host", ret->store_host);
    wire_get_port(&f, "store_port", &ret->store_port);
    wire_get_u32(&f, "restarts_used", 0, UINT32_MAX, &ret->restarts_used);
    wire_get_u32(&f, "max_restarts", 0, UINT32_MAX, &ret->max_restarts);
    wire_get_u32(&f, "losses", 0, UINT32_MAX, &ret->losses);
    wire_get_id(&f, "log_nonce", &ret->log_nonce);
    get_neighbours(&f, ret);
    outer->code = f.code;
}

/* Which fields there are depends on what is desired. */
static struct fields desired_fields(const struct json *doc, enum desired_kind kind,
                                    struct err *err) {
    switch (kind) {
    case DESIRED_FORM:
        return FIELDS(doc, err, "kind", "desired", "epoch", "generation", "restarts_used",
                      "max_restarts", "losses", "form");
    case DESIRED_IDLE:
        return FIELDS(doc, err, "kind", "desired", "epoch", "generation", "restarts_used",
                      "max_restarts", "losses", "excluded", "spare", "reason");
    case DESIRED_STOP:
    case DESIRED_CLOSED:
        return FIELDS(doc, err, "kind", "desired", "epoch", "generation", "restarts_used",
                      "max_restarts", "losses", "grace_ns", "will_restart", "n_stopping", "outcome",
                      "reason", "failure");
    case DESIRED_START:
    case DESIRED_KIND_COUNT: break;
    }
    return FIELDS(doc, err, "kind", "desired", "epoch", "generation", "restarts_used",
                  "max_restarts", "losses", "ways");
}

static int get_desired(const struct json *doc, struct desired *ret, struct err *err) {
    struct fields name = {.obj = doc, .err = err};
    ret->kind = (enum desired_kind)wire_get_name(&name, "desired", wire_desired_names, 1,
                                                 DESIRED_KIND_COUNT);
    if (name.code != 0)
        return name.code;
    struct fields f = desired_fields(doc, ret->kind, err);
    ret->grace_ns = UINT64_MAX;
    wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->epoch);
    wire_get_generation(&f, "generation", &ret->generation);
    wire_get_u32(&f, "restarts_used", 0, UINT32_MAX, &ret->restarts_used);
    wire_get_u32(&f, "max_restarts", 0, UINT32_MAX, &ret->max_restarts);
    wire_get_u32(&f, "losses", 0, UINT32_MAX, &ret->losses);
    bool needs_group =
        ret->kind == DESIRED_FORM || ret->kind == DESIRED_START || ret->kind == DESIRED_STOP;
    if (f.code == 0 && needs_group && generation_is_none(ret->generation))
        f.code = err_set(err, -EINVAL, "\"generation\" names no group");
    if (ret->kind == DESIRED_FORM)
        get_form(&f, &ret->form);
    if (ret->kind == DESIRED_START)
        wire_get_u32(&f, "ways", 0, UINT32_MAX, &ret->reachability);
    if (ret->kind == DESIRED_IDLE) {
        wire_get_bool(&f, "excluded", &ret->excluded);
        wire_get_bool(&f, "spare", &ret->spare);
        GET_TEXT(&f, "reason", ret->reason);
    }
    if (ret->kind != DESIRED_STOP && ret->kind != DESIRED_CLOSED)
        return f.code;
    wire_get_id(&f, "grace_ns", &ret->grace_ns);
    wire_get_bool(&f, "will_restart", &ret->will_restart);
    wire_get_u32(&f, "n_stopping", 0, UINT32_MAX, &ret->n_stopping);
    ret->outcome =
        (enum outcome)wire_get_name(&f, "outcome", wire_outcome_names, 0, WIRE_OUTCOME_COUNT);
    if (f.code == 0 && (ret->kind == DESIRED_CLOSED) != (ret->outcome != OUTCOME_NONE))
        f.code = err_set(err, -EINVAL, "\"outcome\" does not fit what is desired");
    GET_TEXT(&f, "reason", ret->reason);
    get_failure(&f, &ret->has_failure, &ret->failure);
    return f.code;
}

static uint32_t get_names(struct fields *f, const char *key, char (*ret)[RDZV_HOST_MAX]) {
    const struct json *list = wire_get_array(f, key, RDZV_STATUS_NAMES_MAX);
    if (list == NULL)
        return 0;
    uint32_t n = 0;
    for (const struct json *v = json_first(list); v != NULL; v = json_next(v)) {
        const char *text = json_string(v);
        if (text == NULL || strlen(text) >= RDZV_HOST_MAX) {
            f->code = err_set(f->err, -EINVAL, "\"%s\" holds something that is no short text", key);
            return 0;
        }
        (void)strcpy(ret[n], text);
        utf8_clean(ret[n++], false);
    }
    return n;
}

static int get_status(const struct json *doc, struct rdzv_status *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "present", "min_nodes", "max_nodes", "wait_ns",
                             "last_call", "spares", "names", "missing");
    wire_get_u32(&f, "present", 0, RDZV_NODES_MAX, &ret->present);
    wire_get_u32(&f, "min_nodes", 1, RDZV_NODES_MAX, &ret->min_nodes);
    wire_get_u32(&f, "max_nodes", 1, RDZV_NODES_MAX, &ret->max_nodes);
    wire_get_id(&f, "wait_ns", &ret->wait_ns);
    wire_get_bool(&f, "last_call", &ret->last_call);
    wire_get_u32(&f, "spares", 0, RDZV_NODES_MAX, &ret->spares);
    ret->n_names = get_names(&f, "names", ret->names);
    ret->n_missing = get_names(&f, "missing", ret->missing);
    return f.code;
}

static int get_small(const struct json *doc, struct wire_message *ret, struct err *err) {
    struct fields f;
    if (ret->kind == WIRE_REFUSED) {
        f = FIELDS(doc, err, "kind", "final", "reason");
        wire_get_bool(&f, "final", &ret->refused.final);
        GET_TEXT(&f, "reason", ret->refused.reason);
    } else if (ret->kind == WIRE_REPORT) {
        f = FIELDS(doc, err, "kind", "report");
        get_report(&f, &ret->report);
    } else if (ret->kind == WIRE_RENEW) {
        f = FIELDS(doc, err, "kind", "clock_ns", "leader_clock_ns", "rtt_ns", "epoch", "stalls",
                   "longest_stall_ns");
        wire_get_id(&f, "clock_ns", &ret->renew.clock_ns);
        wire_get_id(&f, "leader_clock_ns", &ret->renew.leader_clock_ns);
        wire_get_id(&f, "rtt_ns", &ret->renew.rtt_ns);
        wire_get_u32(&f, "epoch", 0, UINT32_MAX, &ret->renew.epoch);
        wire_get_u32(&f, "stalls", 0, UINT32_MAX, &ret->renew.stalls);
        wire_get_id(&f, "longest_stall_ns", &ret->renew.longest_stall_ns);
    } else if (ret->kind == WIRE_LEASE) {
        f = FIELDS(doc, err, "kind", "epoch", "prepared", "echo_ns", "validity_ns", "clock_ns");
        wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->lease.epoch);
        wire_get_generation(&f, "prepared", &ret->lease.prepared);
        wire_get_id(&f, "echo_ns", &ret->lease.echo_ns);
        wire_get_setting(&f, "validity_ns", 0, &ret->lease.validity_ns);
        wire_get_id(&f, "clock_ns", &ret->lease.clock_ns);
    } else if (ret->kind == WIRE_ECHO) {
        f = FIELDS(doc, err, "kind", "epoch", "leader_clock_ns");
        wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->echo.epoch);
        wire_get_id(&f, "leader_clock_ns", &ret->echo.leader_clock_ns);
    } else if (ret->kind == WIRE_ANSWER) {
        f = FIELDS(doc, err, "kind", "ok", "text");
        wire_get_bool(&f, "ok", &ret->answer.ok);
        GET_LINE(&f, "text", ret->answer.text);
    } else if (ret->kind == WIRE_NODE_SUMMARY) {
        f = FIELDS(doc, err, "kind", "text");
        GET_TEXT(&f, "text", ret->node_summary.text);
    } else {
        f = FIELDS(doc, err, "kind");
    }
    return f.code;
}

static int get_body(const struct json *doc, struct wire_message *ret, struct err *err) {
    switch (ret->kind) {
    case WIRE_HELLO: return get_hello(doc, &ret->hello, err);
    case WIRE_JOIN: return get_join(doc, &ret->join, err);
    case WIRE_WELCOME: return get_welcome(doc, &ret->welcome, err);
    case WIRE_DESIRED: return get_desired(doc, &ret->desired, err);
    case WIRE_STATUS: return get_status(doc, &ret->status, err);
    case WIRE_REFUSED:
    case WIRE_REPORT:
    case WIRE_RENEW:
    case WIRE_LEAVE:
    case WIRE_LEASE:
    case WIRE_ECHO:
    case WIRE_NODE_SUMMARY:
    case WIRE_ANSWER: return get_small(doc, ret, err);
    case WIRE_NAMED: return wire_get_named(doc, &ret->named, err);
    case WIRE_MEMBERS: return wire_get_members(doc, &ret->members, err);
    case WIRE_REDIRECT: return wire_get_redirect(doc, &ret->redirect, err);
    case WIRE_COMMAND: return wire_get_command(doc, &ret->command, err);
    case WIRE_OVERVIEW: return wire_get_overview(doc, &ret->overview, err);
    case WIRE_NODES: return wire_get_nodes(doc, &ret->nodes, err);
    case WIRE_KIND_COUNT: break;
    }
    assert_not_reached();
}

/* What HELLO, JOIN and COMMAND of any version have, so that both sides can say why they don't
 * understand each other. */
static bool other_version(const struct json *doc, struct wire_message *ret) {
    uint32_t version;
    if ((ret->kind != WIRE_HELLO && ret->kind != WIRE_JOIN && ret->kind != WIRE_COMMAND) ||
        json_get_u32(doc, "version", UINT32_MAX, &version, NULL) != 0 || version == WIRE_VERSION)
        return false;
    if (ret->kind == WIRE_HELLO)
        ret->hello.version = version;
    else if (ret->kind == WIRE_JOIN)
        ret->join.version = version;
    else
        ret->command.version = version;
    return true;
}

int wire_decode(const char *text, size_t len, struct wire_message *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    memset(ret, 0, sizeof *ret);
    struct fields f = {.obj = doc, .err = err};
    ret->kind = (enum wire_kind)wire_get_name(&f, "kind", wire_kind_names, 1, WIRE_KIND_COUNT);
    if (f.code != 0)
        return f.code;
    if (other_version(doc, ret))
        return WIRE_E_VERSION;
    return get_body(doc, ret, err) == 0 ? 0 : -EINVAL;
}
