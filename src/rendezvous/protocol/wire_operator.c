#include <errno.h>
#include <string.h>

#include "rendezvous/protocol/wire_priv.h"

const char *const wire_command_names[COMMAND_KIND_COUNT] = {
    [COMMAND_STATUS] = "status", [COMMAND_LEAVE] = "leave", [COMMAND_EXCLUDE] = "exclude",
    [COMMAND_GROW] = "grow",     [COMMAND_STOP] = "stop",
};
const char *const wire_group_state_names[GROUP_STATE_COUNT] = {
    [GROUP_GATHERING] = "gathering", [GROUP_FORMING] = "forming", [GROUP_RUNNING] = "running",
    [GROUP_STOPPING] = "stopping",   [GROUP_CLOSED] = "closed",
};
const char *const wire_place_names[PLACE_COUNT] = {
    [PLACE_MEMBER] = "member",     [PLACE_WAITING] = "waiting", [PLACE_SPARE] = "spare",
    [PLACE_EXCLUDED] = "excluded", [PLACE_LEAVING] = "leaving",
};

void wire_put_command(struct json_writer *w, const struct wire_command *c) {
    json_write_u64(w, "version", c->version);
    PUT_TEXT(w, "run_id", c->run_id);
    json_write_string(w, "command", wire_command_names[c->command.kind]);
    if (c->command.kind == COMMAND_EXCLUDE)
        PUT_TEXT(w, "node", c->command.node);
    PUT_TEXT(w, "reason", c->command.reason);
}

int wire_get_command(const struct json *doc, struct wire_command *ret, struct err *err) {
    struct fields name = {.obj = doc, .err = err};
    struct command *c = &ret->command;
    c->kind = (enum command_kind)wire_get_name(&name, "command", wire_command_names, 1,
                                               COMMAND_KIND_COUNT);
    if (name.code != 0)
        return name.code;
    struct fields f =
        c->kind == COMMAND_EXCLUDE
            ? FIELDS(doc, err, "kind", "version", "run_id", "command", "reason", "node")
            : FIELDS(doc, err, "kind", "version", "run_id", "command", "reason");
    wire_get_u32(&f, "version", 1, UINT32_MAX, &ret->version);
    GET_TEXT(&f, "run_id", ret->run_id);
    GET_TEXT(&f, "reason", c->reason);
    if (c->kind == COMMAND_EXCLUDE)
        GET_TEXT(&f, "node", c->node);
    if (f.code == 0 && c->kind == COMMAND_EXCLUDE && c->node[0] == '\0')
        f.code = err_set(err, -EINVAL, "\"node\" names no node");
    return f.code;
}

void wire_put_overview(struct json_writer *w, const struct overview *o) {
    json_write_string(w, "phase", wire_group_state_names[o->state]);
    json_write_id(w, "since_ns", o->since_ns);
    json_write_u64(w, "epoch", o->epoch);
    wire_put_generation(w, "generation", o->generation);
    json_write_id(w, "running_ns", o->running_ns);
    json_write_hex(w, "leader", o->leader);
    PUT_TEXT(w, "leader_host", o->leader_host);
    json_write_u64(w, "min_nodes", o->min_nodes);
    json_write_u64(w, "max_nodes", o->max_nodes);
    json_write_u64(w, "node_unit", o->node_unit);
    json_write_u64(w, "n_members", o->n_members);
    json_write_u64(w, "world_size", o->world_size);
    json_write_u64(w, "n_nodes", o->n_nodes);
    json_write_u64(w, "n_spares", o->n_spares);
    json_write_u64(w, "n_excluded", o->n_excluded);
    json_write_u64(w, "restarts_used", o->restarts_used);
    json_write_u64(w, "max_restarts", o->max_restarts);
    json_write_u64(w, "losses", o->losses);
    json_write_array_begin(w, "successors");
    for (uint32_t i = 0; i < RDZV_SUCCESSORS_MAX; i++)
        if (o->successors[i] != 0)
            json_write_hex(w, NULL, o->successors[i]);
    json_write_array_end(w);
    PUT_TEXT(w, "incident", o->incident);
    json_write_id(w, "incident_ns", o->incident_ns);
    json_write_string(w, "outcome", wire_outcome_names[o->outcome]);
    PUT_TEXT(w, "reason", o->reason);
}

int wire_get_overview(const struct json *doc, struct overview *ret, struct err *err) {
    struct fields f =
        FIELDS(doc, err, "kind", "phase", "since_ns", "epoch", "generation", "running_ns", "leader",
               "leader_host", "min_nodes", "max_nodes", "node_unit", "n_members", "world_size",
               "n_nodes", "n_spares", "n_excluded", "restarts_used", "max_restarts", "losses",
               "successors", "incident", "incident_ns", "outcome", "reason");
    ret->state =
        (enum group_state)wire_get_name(&f, "phase", wire_group_state_names, 1, GROUP_STATE_COUNT);
    wire_get_id(&f, "since_ns", &ret->since_ns);
    wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->epoch);
    wire_get_generation(&f, "generation", &ret->generation);
    wire_get_id(&f, "running_ns", &ret->running_ns);
    wire_get_incarnation(&f, "leader", &ret->leader);
    GET_LINE(&f, "leader_host", ret->leader_host);
    wire_get_u32(&f, "min_nodes", 1, RDZV_NODES_MAX, &ret->min_nodes);
    wire_get_u32(&f, "max_nodes", ret->min_nodes, RDZV_NODES_MAX, &ret->max_nodes);
    wire_get_u32(&f, "node_unit", 1, RDZV_NODES_MAX, &ret->node_unit);
    wire_get_u32(&f, "n_members", 0, RDZV_NODES_MAX, &ret->n_members);
    wire_get_u32(&f, "world_size", 0, UINT32_MAX, &ret->world_size);
    wire_get_u32(&f, "n_nodes", 0, RDZV_NODES_MAX, &ret->n_nodes);
    wire_get_u32(&f, "n_spares", 0, RDZV_NODES_MAX, &ret->n_spares);
    wire_get_u32(&f, "n_excluded", 0, RDZV_NODES_MAX, &ret->n_excluded);
    wire_get_u32(&f, "restarts_used", 0, UINT32_MAX, &ret->restarts_used);
    wire_get_u32(&f, "max_restarts", 0, UINT32_MAX, &ret->max_restarts);
    wire_get_u32(&f, "losses", 0, UINT32_MAX, &ret->losses);
    (void)wire_get_ids(&f, "successors", ret->successors, RDZV_SUCCESSORS_MAX);
    GET_TEXT(&f, "incident", ret->incident);
    wire_get_id(&f, "incident_ns", &ret->incident_ns);
    ret->outcome =
        (enum outcome)wire_get_name(&f, "outcome", wire_outcome_names, 0, WIRE_OUTCOME_COUNT);
    GET_TEXT(&f, "reason", ret->reason);
    return f.code;
}

static void put_node(struct json_writer *w, const struct overview_node *n) {
    json_write_object_begin(w, NULL);
    json_write_hex(w, "incarnation", n->incarnation);
    PUT_TEXT(w, "name", n->name);
    PUT_TEXT(w, "addr", n->addr);
    json_write_string(w, "place", wire_place_names[n->place]);
    json_write_string(w, "state", wire_node_state_names[n->state]);
    json_write_bool(w, "connected", n->connected);
    json_write_id(w, "silent_ns", n->silent_ns);
    json_write_u64(w, "node_rank", n->node_rank);
    json_write_u64(w, "first_rank", n->first_rank);
    json_write_u64(w, "nproc", n->nproc);
    json_write_i64(w, "pid", n->pid);
    json_write_id(w, "since_ns", n->since_ns);
    json_write_u64(w, "stalls", n->stalls);
    json_write_id(w, "longest_stall_ns", n->longest_stall_ns);
    PUT_TEXT(w, "why", n->why);
    json_write_object_end(w);
}

void wire_put_nodes(struct json_writer *w, const struct wire_nodes *n) {
    json_write_u64(w, "first", n->first);
    json_write_array_begin(w, "nodes");
    for (uint32_t i = 0; i < n->n; i++)
        put_node(w, &n->list[i]);
    json_write_array_end(w);
}

static int get_node(const struct json *v, struct overview_node *ret, struct err *err) {
    struct fields f = FIELDS(v, err, "incarnation", "name", "addr", "place", "state", "connected",
                             "silent_ns", "node_rank", "first_rank", "nproc", "pid", "since_ns",
                             "stalls", "longest_stall_ns", "why");
    wire_get_incarnation(&f, "incarnation", &ret->incarnation);
    GET_LINE(&f, "name", ret->name);
    GET_TEXT(&f, "addr", ret->addr);
    ret->place = (enum overview_place)wire_get_name(&f, "place", wire_place_names, 1, PLACE_COUNT);
    ret->state =
        (enum node_state)wire_get_name(&f, "state", wire_node_state_names, 1, NODE_STATE_COUNT);
    wire_get_bool(&f, "connected", &ret->connected);
    wire_get_id(&f, "silent_ns", &ret->silent_ns);
    wire_get_u32(&f, "node_rank", 0, RDZV_NODES_MAX, &ret->node_rank);
    wire_get_u32(&f, "first_rank", 0, UINT32_MAX, &ret->first_rank);
    wire_get_u32(&f, "nproc", 1, RDZV_WORKERS_MAX, &ret->nproc);
    wire_get_i32(&f, "pid", 0, &ret->pid);
    wire_get_id(&f, "since_ns", &ret->since_ns);
    wire_get_u32(&f, "stalls", 0, UINT32_MAX, &ret->stalls);
    wire_get_id(&f, "longest_stall_ns", &ret->longest_stall_ns);
    GET_TEXT(&f, "why", ret->why);
    return f.code;
}

int wire_get_nodes(const struct json *doc, struct wire_nodes *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "first", "nodes");
    wire_get_u32(&f, "first", 0, RDZV_NODES_MAX - 1, &ret->first);
    const struct json *list = wire_get_array(&f, "nodes", RDZV_OVERVIEW_CHUNK);
    if (list == NULL)
        return f.code;
    if (json_count(list) == 0)
        return err_set(err, -EINVAL, "\"nodes\" is empty");
    for (const struct json *v = json_first(list); v != NULL && f.code == 0; v = json_next(v))
        f.code = get_node(v, &ret->list[ret->n++], err);
    return f.code;
}
