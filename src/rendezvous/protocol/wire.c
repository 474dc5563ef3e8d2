#include "rendezvous/protocol/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/frame.h"
#include "base/json/json_table.h"

struct wire_row {
    const char *name;        /* name of the message kind */
    struct json_table table; /* table of its member of struct wire_message */
    bool for_leader;         /* a node that has joined may send it */
};

#define KIND_BYTES 32 /* the longest name of a kind that is read */
#define BIT(kind) (UINT32_C(1) << (kind))
/* The newest formed group, and members of the last started one that are not in it. */
#define HANDOVER_MAX (2 * RDZV_NODES_MAX)

#define INCARNATION(type, key, member) JSON_FIELD(type, HEX, key, member), .min = 1
#define PORT(type, key, member) JSON_FIELD(type, U16, key, member), .min = 1
/* 1 … max */
#define FROM_1(type, key, member, most) JSON_FIELD(type, U32, key, member), .min = 1, .max = (most)
#define UP_TO(type, key, member, most) JSON_FIELD(type, U32, key, member), .max = (most)
/* A time in the leader's settings. */
#define SETTING(type, key, member, least) \
    JSON_FIELD(type, ID, key, member), .min = (least), .max = WIRE_TIME_MAX_NS
#define AT_MOST(type, member) .at_most = offsetof(struct type, member) + 1
#define BELOW(type, member) .below = offsetof(struct type, member) + 1

static const char *const failure_kinds[FAILURE_KIND_COUNT] = {
    [FAILURE_EXIT] = "exit",   [FAILURE_SIGNAL] = "signal", [FAILURE_OOM] = "oom",
    [FAILURE_SPAWN] = "spawn", [FAILURE_NODE] = "node",     [FAILURE_HANG] = "hang",
};
static const char *const desired_kinds[DESIRED_KIND_COUNT] = {
    [DESIRED_IDLE] = "idle", [DESIRED_FORM] = "form",     [DESIRED_START] = "start",
    [DESIRED_STOP] = "stop", [DESIRED_CLOSED] = "closed",
};
static const char *const command_kinds[COMMAND_KIND_COUNT] = {
    [COMMAND_STATUS] = "status", [COMMAND_LEAVE] = "leave", [COMMAND_EXCLUDE] = "exclude",
    [COMMAND_GROW] = "grow",     [COMMAND_STOP] = "stop",   [COMMAND_STACKS] = "stacks",
};

static const struct json_field auth_id_fields[] = {
    {JSON_FIELD(auth_id, HEX, "id", id)},
    {JSON_NAMED(auth_id, "source", source, auth_source_words), .min = 1},
};
static const struct json_table key_id = JSON_TABLE(auth_id, auth_id_fields);

/* ---- messages of nodes ---- */

static const struct json_field failure_fields[] = {
    {JSON_NAMED(failure, "kind", kind, failure_kinds), .min = 1},
    {JSON_FIELD(failure, I32, "code", code), .min = INT32_MIN},
    {JSON_FIELD(failure, BOOL, "core_dumped", core_dumped)},
    {JSON_FIELD(failure, U32, "rank", rank)},
    {UP_TO(failure, "local_rank", local_rank, RDZV_WORKERS_MAX)},
    {UP_TO(failure, "node_rank", node_rank, RDZV_NODES_MAX)},
    {JSON_FIELD(failure, HEX, "incarnation", incarnation)},
    {JSON_FIELD(failure, I32, "pid", pid)},
    {JSON_FIELD(failure, ID, "at_ns", at_ns)},
    {JSON_FIELD(failure, ID, "wall_ns", wall_ns)},
    {JSON_FIELD(failure, ID, "ran_ns", ran_ns)},
    {JSON_FIELD(failure, LINE, "node", node)},
    {JSON_FIELD(failure, LINE, "role", role)},
    {JSON_FIELD(failure, TEXT, "text", text)},
    {JSON_FIELD(failure, BOOL, "text_is_traceback", text_is_traceback)},
    {JSON_FIELD(failure, TEXT, "error_file", error_file)},
};
static const struct json_table failure = JSON_TABLE(failure, failure_fields);

static const struct json_field report_fields[] = {
    {JSON_NAMED(report, "state", state, node_state_names), .min = 1},
    {JSON_FIELD(report, PAIR, "generation", generation)},
    {JSON_FIELD(report, U32, "epoch", epoch)},
    {JSON_FIELD(report, BOOL, "leaving", leaving)},
    {JSON_FIELD(report, BOOL, "finished", finished)},
    {JSON_FIELD(report, BOOL, "at_safe_point", at_safe_point)},
    {JSON_FIELD(report, ID, "first_step", first_step), JSON_IF_SET(report, first_step)},
    {JSON_FIELD(report, ID, "last_step", last_step), JSON_IF_SET(report, first_step)},
    {JSON_FIELD(report, U32, "ways", reachability)},
    {JSON_FIELD(report, BOOL, "excluded", excluded)},
    {JSON_FIELD(report, LINE, "excluded_why", excluded_why)},
    {JSON_FIELD(report, LINE, "leaving_why", leaving_why)},
    {JSON_FIELD(report, LINE, "unusable", unusable)},
    {JSON_FIELD(report, LINE, "domain", domain)},
    {JSON_FIELD(report, LINE, "fabric", fabric)},
    {JSON_FIELD(report, LINE, "sick", sick)},
    {JSON_FIELD(report, U32, "xid", xid)},
    {JSON_FIELD(report, I32, "gpu", gpu), .min = -1},
    {JSON_FIELD(report, U32, "restarts_used", restarts_used)},
    {JSON_FIELD(report, U32, "losses", losses)},
    {JSON_STRUCT(report, "failure", failure, failure), JSON_IF_TRUE(report, has_failure)},
};
static const struct json_table report = JSON_TABLE(report, report_fields);

#define NETS(type)                                               \
    {JSON_FIELD(type, LINE, "netif", nets[0].netif)},            \
        {JSON_FIELD(type, LINE, "net_addrs", nets[0].addrs)},    \
        {JSON_FIELD(type, LINE, "fast_netif", nets[1].netif)}, { \
        JSON_FIELD(type, LINE, "fast_addrs", nets[1].addrs)      \
    }

static const struct json_field node_info_fields[] = {
    {INCARNATION(node_info, "incarnation", incarnation)},
    {JSON_FIELD(node_info, LINE, "host", host)},
    {JSON_FIELD(node_info, LINE, "role", role)},
    {PORT(node_info, "listener_port", listener_port)},
    {FROM_1(node_info, "nproc", nproc, RDZV_WORKERS_MAX)},
    {JSON_FIELD(node_info, I32, "node_rank", node_rank), .min = -1},
    {JSON_FIELD(node_info, I32, "pid", pid)},
    {JSON_FIELD(node_info, LINE, "topology", topology)},
    NETS(node_info),
};
static const struct json_table node_info = JSON_TABLE(node_info, node_info_fields);

static const struct json_field program_fields[] = {
    {JSON_FIELD(rdzv_program, LINE, "shown", shown)},
    {JSON_FIELD(rdzv_program, HEX, "name", name)},
    {JSON_FIELD(rdzv_program, HEX, "args", args)},
    {JSON_FIELD(rdzv_program, U32, "max_restarts", max_restarts)},
};
static const struct json_table program = JSON_TABLE(rdzv_program, program_fields);

static const struct json_field join_fields[] = {
    {FROM_1(wire_join, "version", version, UINT32_MAX)},
    {JSON_FIELD(wire_join, TEXT, "run_id", run_id)},
    {FROM_1(wire_join, "min_nodes", min_nodes, RDZV_NODES_MAX), AT_MOST(wire_join, max_nodes)},
    {FROM_1(wire_join, "max_nodes", max_nodes, RDZV_NODES_MAX)},
    {JSON_STRUCT(wire_join, "node", info, node_info)},
    {JSON_STRUCT(wire_join, "program", program, program)},
    {JSON_STRUCT(wire_join, "report", report, report)},
    {JSON_FIELD(wire_join, TEXT, "addrs", addrs), JSON_IF_TEXT(wire_join, addrs)},
};

static const struct json_field whole_report_fields[] = {
    {.key = "report", .kind = JSON_FIELD_OBJECT, .size = sizeof(struct report), .table = &report},
};

static const struct json_field renew_fields[] = {
    {JSON_FIELD(renew, ID, "clock_ns", clock_ns)},
    {JSON_FIELD(renew, ID, "leader_clock_ns", leader_clock_ns)},
    {JSON_FIELD(renew, ID, "rtt_ns", rtt_ns)},
    {JSON_FIELD(renew, U32, "epoch", epoch)},
    {JSON_FIELD(renew, U32, "stalls", stalls)},
    {JSON_FIELD(renew, ID, "longest_stall_ns", longest_stall_ns)},
};

static const struct json_field echo_fields[] = {
    {FROM_1(echo, "epoch", epoch, UINT32_MAX)},
    {JSON_FIELD(echo, ID, "leader_clock_ns", leader_clock_ns)},
};

static const struct json_field call_fields[] = {{JSON_FIELD(call, U32, "version", version)}};

static const struct json_field node_summary_fields[] = {
    {JSON_FIELD(wire_node_summary, TEXT, "text", text)},
};

static const struct json_field warm_fields[] = {
    {JSON_FIELD(rdzv_warm, PAIR, "generation", generation)},
    {UP_TO(rdzv_warm, "warm", warm, RDZV_WORKERS_MAX)},
    {UP_TO(rdzv_warm, "cold", cold, RDZV_WORKERS_MAX)},
    {UP_TO(rdzv_warm, "waiting", waiting, RDZV_WORKERS_MAX)},
    {JSON_FIELD(rdzv_warm, LINE, "reason", reason)},
};
static const struct json_table warm = JSON_TABLE(rdzv_warm, warm_fields);

static const struct json_field worker_signs_fields[] = {
    {JSON_FIELD(worker_signs, U32, "rank", rank)},
    {JSON_FIELD(worker_signs, U32, "flags", flags)},
    {JSON_FIELD(worker_signs, ID, "still_ns", still_ns)},
    {JSON_FIELD(worker_signs, BOOL, "moved_once", moved_once)},
    {JSON_FIELD(worker_signs, ID, "step", step), JSON_IF_SET(worker_signs, step)},
    {JSON_FIELD(worker_signs, ID, "deadline_ns", deadline_ns),
     JSON_IF_SET(worker_signs, deadline_ns)},
    {JSON_FIELD(worker_signs, ID, "since_announced_ns", since_announced_ns),
     JSON_IF_SET(worker_signs, deadline_ns)},
};
static const struct json_table worker_signs = JSON_TABLE(worker_signs, worker_signs_fields);

static const struct json_field signs_fields[] = {
    {JSON_FIELD(rdzv_signs, PAIR, "generation", generation)},
    {JSON_LIST(rdzv_signs, "workers", list, n, worker_signs)},
};

static const struct json_field evidence_fields[] = {
    {JSON_FIELD(rdzv_evidence, U32, "id", id)},
    {JSON_FIELD(rdzv_evidence, BOOL, "first", first)},
    {JSON_FIELD(rdzv_evidence, BOOL, "last", last)},
    {JSON_FIELD(rdzv_evidence, TEXT, "text", text)},
};

static const struct json_field owner_of_fields[] = {{.kind = JSON_FIELD_NAME,
                                                     .size = sizeof(enum peer_owner_kind),
                                                     .names = rdzv_owner_names,
                                                     .n_names = RDZV_OWNER_NAMES,
                                                     .min = 1}};
static const struct json_table owner_of = {
    .fields = owner_of_fields, .n = 1, .size = sizeof(enum peer_owner_kind)};

static const struct json_field owner_fields[] = {
    {JSON_FIELD(rdzv_owners, U32, "id", id)},
    {JSON_FIELD(rdzv_owners, U32, "uid", uid)},
    {JSON_LIST(rdzv_owners, "owners", list, n, owner_of), .min = 1},
};

/* ---- messages of the leader ---- */

static const struct json_field client_port_fields[] = {
    {.kind = JSON_FIELD_U16, .size = sizeof(uint16_t), .min = 1}};
static const struct json_table client_port = {
    .fields = client_port_fields, .n = 1, .size = sizeof(uint16_t)};

static const struct json_field whose_fields[] = {
    {JSON_FIELD(rdzv_whose, U32, "id", id)},
    {JSON_FIELD(rdzv_whose, TEXT, "client", client)},
    {JSON_FIELD(rdzv_whose, TEXT, "store", store)},
    {PORT(rdzv_whose, "store_port", store_port)},
    {JSON_LIST(rdzv_whose, "ports", ports, n, client_port), .min = 1},
};

static const char *const ask_whats[ASK_WHAT_COUNT] = {
    [ASK_STACKS] = "stacks", [ASK_PROFILE] = "profile", [ASK_TIME] = "time"};
static const struct json_field ask_fields[] = {
    {JSON_FIELD(rdzv_ask, PAIR, "generation", generation)},
    {JSON_FIELD(rdzv_ask, U32, "id", id)},
    {JSON_NAMED(rdzv_ask, "what", what, ask_whats), JSON_IF_SET(rdzv_ask, period_ns)},
    {SETTING(rdzv_ask, "timeout_ns", timeout_ns, 1)},
    {JSON_FIELD(rdzv_ask, ID, "period_ns", period_ns), .min = RDZV_PROFILE_PERIOD_MIN_NS,
     .max = RDZV_PROFILE_PERIOD_MAX_NS,
     JSON_OF_KINDS(rdzv_ask, what, BIT(ASK_PROFILE) | BIT(ASK_TIME))},
    {JSON_FIELD(rdzv_ask, BOOL, "holds", holds), JSON_IF_TRUE(rdzv_ask, holds)},
};

static const struct json_field u32_fields[] = {{.kind = JSON_FIELD_U32, .size = sizeof(uint32_t)}};
static const struct json_table u32 = {.fields = u32_fields, .n = 1, .size = sizeof(uint32_t)};

static const struct json_field suspects_fields[] = {
    {JSON_FIELD(rdzv_suspects, PAIR, "generation", generation)},
    {JSON_FIELD(rdzv_suspects, U32, "id", id)},
    {SETTING(rdzv_suspects, "timeout_ns", timeout_ns, 0)},
    {JSON_LIST(rdzv_suspects, "ranks", ranks, n, u32), .min = 1},
};

static const struct json_field greeting_fields[] = {
    {FROM_1(auth_greeting, "version", version, UINT32_MAX)},
    {JSON_FIELD(auth_greeting, BOOL, "open", open)},
    {JSON_LIST(auth_greeting, "keys", ids, n_keys, key_id)},
    {JSON_FIELD(auth_greeting, TEXT, "munge", munge)},
};

static const struct json_field hello_fields[] = {
    {FROM_1(wire_hello, "version", version, UINT32_MAX)},
    {INCARNATION(wire_hello, "incarnation", incarnation)},
    {JSON_FIELD(wire_hello, TEXT, "run_id", run_id)},
};

static const struct json_field welcome_fields[] = {
    {FROM_1(wire_welcome, "epoch", epoch, UINT32_MAX)},
    {INCARNATION(wire_welcome, "leader", leader)},
    {PORT(wire_welcome, "listener_port", listener_port)},
    {SETTING(wire_welcome, "heartbeat_ns", heartbeat_ns, WIRE_HEARTBEAT_MIN_NS)},
    {SETTING(wire_welcome, "lease_ns", lease_ns, WIRE_HEARTBEAT_MIN_NS)},
    {SETTING(wire_welcome, "margin_ns", margin_ns, 0)},
    {FROM_1(wire_welcome, "min_nodes", min_nodes, RDZV_NODES_MAX),
     AT_MOST(wire_welcome, max_nodes)},
    {FROM_1(wire_welcome, "max_nodes", max_nodes, RDZV_NODES_MAX)},
};

static const struct json_field refused_fields[] = {
    {JSON_FIELD(wire_refused, BOOL, "final", final)},
    {JSON_FIELD(wire_refused, TEXT, "reason", reason)},
};

static const struct json_field neighbour_fields[] = {
    {INCARNATION(rdzv_neighbour, "incarnation", incarnation)},
    {JSON_FIELD(rdzv_neighbour, LINE, "host", host)},
    NETS(rdzv_neighbour),
    {PORT(rdzv_neighbour, "listener_port", listener_port)},
};
static const struct json_table neighbour = JSON_TABLE(rdzv_neighbour, neighbour_fields);

static const struct json_field form_fields[] = {
    {JSON_FIELD(form, U32, "node_rank", node_rank), BELOW(form, n_nodes)},
    {FROM_1(form, "n_nodes", n_nodes, RDZV_NODES_MAX)},
    {JSON_FIELD(form, U32, "first_rank", first_rank), BELOW(form, world_size)},
    {FROM_1(form, "world_size", world_size, UINT32_MAX)},
    {JSON_FIELD(form, U32, "role_first_rank", role_first_rank), BELOW(form, role_world_size)},
    {FROM_1(form, "role_world_size", role_world_size, UINT32_MAX)},
    {UP_TO(form, "host_index", host_index, RDZV_NODES_MAX)},
    {JSON_FIELD(form, TEXT, "store_host", store_host)},
    {PORT(form, "store_port", store_port)},
    {JSON_FIELD(form, U32, "restarts_used", restarts_used)},
    {JSON_FIELD(form, U32, "max_restarts", max_restarts)},
    {JSON_FIELD(form, U32, "losses", losses)},
    {JSON_FIELD(form, ID, "log_nonce", log_nonce)},
    {JSON_FIELD(form, ID, "job_ns", job_ns)},
    {JSON_LIST(form, "neighbours", neighbours, n_neighbours, neighbour)},
};
static const struct json_table form = JSON_TABLE(form, form_fields);

#define OF(mask) JSON_OF_KINDS(desired, kind, mask)
#define ENDING (BIT(DESIRED_STOP) | BIT(DESIRED_CLOSED))
static const struct json_field desired_fields[] = {
    {JSON_NAMED(desired, "desired", kind, desired_kinds), .min = 1},
    {FROM_1(desired, "epoch", epoch, UINT32_MAX)},
    {JSON_FIELD(desired, PAIR, "generation", generation)},
    {JSON_FIELD(desired, U32, "restarts_used", restarts_used)},
    {JSON_FIELD(desired, U32, "max_restarts", max_restarts)},
    {JSON_FIELD(desired, U32, "losses", losses)},
    {JSON_STRUCT(desired, "form", form, form), OF(BIT(DESIRED_FORM))},
    {JSON_FIELD(desired, U32, "ways", reachability), OF(BIT(DESIRED_START))},
    {JSON_FIELD(desired, BOOL, "excluded", excluded), OF(BIT(DESIRED_IDLE))},
    {JSON_FIELD(desired, BOOL, "spare", spare), OF(BIT(DESIRED_IDLE))},
    {JSON_FIELD(desired, ID, "grace_ns", grace_ns), OF(ENDING), .absent = UINT64_MAX},
    {JSON_FIELD(desired, BOOL, "will_restart", will_restart), OF(ENDING)},
    {JSON_FIELD(desired, U32, "n_stopping", n_stopping), OF(ENDING)},
    {JSON_NAMED(desired, "outcome", outcome, outcome_names), OF(ENDING)},
    {JSON_FIELD(desired, BOOL, "no_fault", no_fault), OF(BIT(DESIRED_CLOSED)),
     JSON_IF_TRUE(desired, no_fault)},
    {JSON_FIELD(desired, TEXT, "reason", reason), OF(ENDING | BIT(DESIRED_IDLE))},
    {JSON_STRUCT(desired, "failure", failure, failure), OF(ENDING),
     JSON_IF_TRUE(desired, has_failure)},
};

static int check_desired(const void *of, struct err *err) {
    const struct desired *d = of;
    bool has_group = d->kind == DESIRED_FORM || d->kind == DESIRED_START || d->kind == DESIRED_STOP;
    if (has_group && generation_is_none(d->generation))
        return err_set(err, -EINVAL, "\"generation\" is not a group");
    if ((d->kind == DESIRED_CLOSED) != (d->outcome != OUTCOME_NONE))
        return err_set(err, -EINVAL, "\"outcome\" does not fit what is desired");
    return 0;
}

static const struct json_field lease_fields[] = {
    {FROM_1(lease, "epoch", epoch, UINT32_MAX)},   {JSON_FIELD(lease, PAIR, "prepared", prepared)},
    {JSON_FIELD(lease, ID, "echo_ns", echo_ns)},   {SETTING(lease, "validity_ns", validity_ns, 0)},
    {JSON_FIELD(lease, ID, "clock_ns", clock_ns)},
};

static const struct json_field name_fields[] = {{.kind = JSON_FIELD_LINE, .size = RDZV_HOST_MAX}};
static const struct json_table name = {.fields = name_fields, .n = 1, .size = RDZV_HOST_MAX};

static const struct json_field status_fields[] = {
    {UP_TO(rdzv_status, "present", present, RDZV_NODES_MAX)},
    {UP_TO(rdzv_status, "usable", usable, RDZV_NODES_MAX)},
    {FROM_1(rdzv_status, "min_nodes", min_nodes, RDZV_NODES_MAX)},
    {FROM_1(rdzv_status, "max_nodes", max_nodes, RDZV_NODES_MAX)},
    {JSON_FIELD(rdzv_status, ID, "wait_ns", wait_ns)},
    {JSON_FIELD(rdzv_status, BOOL, "last_call", last_call)},
    {UP_TO(rdzv_status, "spares", spares, RDZV_NODES_MAX)},
    {JSON_LIST(rdzv_status, "names", names, n_names, name)},
    {JSON_LIST(rdzv_status, "missing", missing, n_missing, name)},
};

/* ---- succession ---- */

static const struct json_field peer_fields[] = {
    {INCARNATION(rdzv_peer, "incarnation", incarnation)},
    {JSON_FIELD(rdzv_peer, TEXT, "addr", addr)},
    {PORT(rdzv_peer, "port", port)},
};
static const struct json_table peer = JSON_TABLE(rdzv_peer, peer_fields);

static const struct json_field named_fields[] = {
    {FROM_1(successors, "epoch", epoch, UINT32_MAX)},
    {JSON_LIST(successors, "successors", list, n, peer)},
};

static const struct json_field member_fields[] = {
    {INCARNATION(handover_member, "incarnation", incarnation)},
    {JSON_FIELD(handover_member, TEXT, "addr", addr)},
    {PORT(handover_member, "port", port)},
    {JSON_FIELD(handover_member, LINE, "host", host)},
    {JSON_FIELD(handover_member, LINE, "domain", domain)},
    {JSON_FIELD(handover_member, BOOL, "started", started)},
};
static const struct json_table member = JSON_TABLE(handover_member, member_fields);

static const struct json_field ns_fields[] = {{.kind = JSON_FIELD_ID, .size = sizeof(uint64_t)}};
static const struct json_table ns = {.fields = ns_fields, .n = 1, .size = sizeof(uint64_t)};

static const struct json_field history_fields[] = {
    {JSON_FIELD(job_history, LIST, "phases_ns", phase_ns), .table = &ns,
     .count_offset = JSON_WHOLE},
    {JSON_FIELD(job_history, LIST, "incidents", incidents), .table = &u32,
     .count_offset = JSON_WHOLE},
    {JSON_FIELD(job_history, ID, "down_ns", down_ns)},
    {JSON_FIELD(job_history, ID, "steps_lost", steps_lost)},
};
static const struct json_table history = JSON_TABLE(job_history, history_fields);

static const struct json_field members_fields[] = {
    {FROM_1(wire_members, "epoch", handover.epoch, UINT32_MAX)},
    {JSON_FIELD(wire_members, PAIR, "formed", handover.formed)},
    {JSON_FIELD(wire_members, PAIR, "started", handover.started)},
    {JSON_FIELD(wire_members, U32, "restarts_used", handover.restarts_used)},
    {JSON_FIELD(wire_members, U32, "losses", handover.losses)},
    {JSON_FIELD(wire_members, ID, "log_nonce", handover.log_nonce)},
    {JSON_STRUCT(wire_members, "history", handover.history, history)},
    {UP_TO(wire_members, "n_order", handover.n_order, RDZV_NODES_MAX),
     AT_MOST(wire_members, handover.n_members)},
    {UP_TO(wire_members, "n_members", handover.n_members, HANDOVER_MAX)},
    {JSON_FIELD(wire_members, U32, "first", first), AT_MOST(wire_members, handover.n_members)},
    {JSON_LIST(wire_members, "members", list, n, member)},
};

static int check_members(const void *of, struct err *err) {
    const struct wire_members *m = of;
    uint32_t of_all = m->handover.n_members;
    if (m->n > of_all - m->first || (m->n == 0 && of_all != 0))
        return err_set(err, -EINVAL, "\"members\" has %" PRIu32 " from %" PRIu32 " on, of %" PRIu32,
                       m->n, m->first, of_all);
    return 0;
}

static const struct json_field redirect_fields[] = {
    {JSON_FIELD(wire_redirect, U32, "epoch", epoch)},
    {JSON_STRUCT(wire_redirect, "leader", leader, peer),
     JSON_IF_SET(wire_redirect, leader.incarnation)},
};

/* ---- operators ---- */

static const struct json_field command_fields[] = {
    {FROM_1(wire_command, "version", version, UINT32_MAX)},
    {JSON_FIELD(wire_command, TEXT, "run_id", run_id)},
    {JSON_NAMED(wire_command, "command", command.kind, command_kinds), .min = 1},
    {JSON_FIELD(wire_command, TEXT, "node", command.node), .min = 1,
     JSON_OF_KINDS(wire_command, command.kind, BIT(COMMAND_EXCLUDE))},
    {JSON_FIELD(wire_command, TEXT, "reason", command.reason)},
    {JSON_FIELD(wire_command, ID, "timeout_ns", command.timeout_ns), .min = NS_PER_MS,
     .max = RDZV_PROFILE_MAX_NS, JSON_OF_KINDS(wire_command, command.kind, BIT(COMMAND_STACKS))},
    {JSON_FIELD(wire_command, ID, "period_ns", command.period_ns),
     .min = RDZV_PROFILE_PERIOD_MIN_NS, .max = RDZV_PROFILE_PERIOD_MAX_NS,
     JSON_IF_SET(wire_command, command.period_ns)},
};

static const struct json_field stacks_fields[] = {
    {JSON_FIELD(rdzv_stacks, PAIR, "generation", generation)},
    {FROM_1(rdzv_stacks, "world_size", world_size, UINT32_MAX)},
    {FROM_1(rdzv_stacks, "n_nodes", n_nodes, RDZV_NODES_MAX)},
    {JSON_FIELD(rdzv_stacks, U32, "node", node), BELOW(rdzv_stacks, n_nodes)},
    {JSON_FIELD(rdzv_stacks, LINE, "name", name)},
    {JSON_FIELD(rdzv_stacks, U32, "first_rank", first_rank), BELOW(rdzv_stacks, world_size)},
    {FROM_1(rdzv_stacks, "nproc", nproc, RDZV_WORKERS_MAX)},
    {JSON_FIELD(rdzv_stacks, LINE, "missing", missing)},
};

static const struct json_field answer_fields[] = {
    {JSON_FIELD(answer, BOOL, "ok", ok)},
    {JSON_FIELD(answer, LINE, "text", text)},
};

static const struct json_field id_fields[] = {
    {.kind = JSON_FIELD_HEX, .size = sizeof(uint64_t), .min = 1}};
static const struct json_table id = {.fields = id_fields, .n = 1, .size = sizeof(uint64_t)};

#define OF_START(key, member)                               \
    {                                                       \
        JSON_FIELD(overview, ID, key, time.start.member),   \
            JSON_IF_SET(overview, time.start.first_step_ns) \
    }
static const struct json_field overview_fields[] = {
    {JSON_NAMED(overview, "phase", state, group_state_names), .min = 1},
    {JSON_FIELD(overview, ID, "since_ns", since_ns)},
    {FROM_1(overview, "epoch", epoch, UINT32_MAX)},
    {JSON_FIELD(overview, PAIR, "generation", generation)},
    {JSON_FIELD(overview, ID, "running_ns", running_ns)},
    {INCARNATION(overview, "leader", leader)},
    {JSON_FIELD(overview, LINE, "leader_host", leader_host)},
    {JSON_FIELD(overview, LINE, "endpoint", endpoint)},
    {FROM_1(overview, "min_nodes", min_nodes, RDZV_NODES_MAX), AT_MOST(overview, max_nodes)},
    {FROM_1(overview, "max_nodes", max_nodes, RDZV_NODES_MAX)},
    {FROM_1(overview, "node_unit", node_unit, RDZV_NODES_MAX)},
    {UP_TO(overview, "n_members", n_members, RDZV_NODES_MAX)},
    {JSON_FIELD(overview, U32, "world_size", world_size)},
    {UP_TO(overview, "n_nodes", n_nodes, RDZV_NODES_MAX)},
    {UP_TO(overview, "n_spares", n_spares, RDZV_NODES_MAX)},
    {UP_TO(overview, "n_excluded", n_excluded, RDZV_NODES_MAX)},
    {JSON_FIELD(overview, U32, "restarts_used", restarts_used)},
    {JSON_FIELD(overview, U32, "max_restarts", max_restarts)},
    {JSON_FIELD(overview, U32, "losses", losses)},
    {JSON_FIELD(overview, LIST, "successors", successors), .table = &id,
     .count_offset = JSON_HOLES},
    {JSON_FIELD(overview, ID, "job_ns", job_ns)},
    {JSON_FIELD(overview, TEXT, "command", command)},
    {JSON_FIELD(overview, LINE, "incident", incident)},
    {JSON_FIELD(overview, ID, "incident_ns", incident_ns)},
    {JSON_FIELD(overview, ID, "restart_ns", restart_ns)},
    {JSON_NAMED(overview, "outcome", outcome, outcome_names)},
    {JSON_FIELD(overview, TEXT, "reason", reason)},
    {JSON_NAMED(overview, "watchdog", watchdog.state, watchdog_state_names)},
    {JSON_FIELD(overview, ID, "quiet_ns", watchdog.quiet_ns)},
    {JSON_FIELD(overview, ID, "quiet_limit_ns", watchdog.limit_ns)},
    {JSON_FIELD(overview, TEXT, "quiet_text", watchdog.said)},
    {JSON_FIELD(overview, TEXT, "time", time.text), JSON_IF_TEXT(overview, time.text)},
    {JSON_FIELD(overview, TEXT, "late", time.late), JSON_IF_TEXT(overview, time.late)},
    OF_START("import_ns", import_ns),
    OF_START("init_ns", init_ns),
    OF_START("load_ns", load_ns),
    OF_START("first_step_ns", first_step_ns),
    {JSON_FIELD(overview, ID, "step", time.step), JSON_IF_SET(overview, time.step)},
    {JSON_STRUCT(overview, "history", history, history)},
    {JSON_NAMED(overview, "auth", access.state, auth_state_words), .min = 1},
    {JSON_LIST(overview, "auth_keys", access.keys, access.n_keys, key_id)},
    {JSON_FIELD(overview, ID, "refused", access.refused)},
};

static const struct json_field row_fields[] = {
    {INCARNATION(overview_node, "incarnation", incarnation)},
    {JSON_FIELD(overview_node, LINE, "name", name)},
    {JSON_FIELD(overview_node, TEXT, "addr", addr)},
    {JSON_FIELD(overview_node, LINE, "domain", domain)},
    {JSON_FIELD(overview_node, LINE, "fabric", fabric)},
    {JSON_NAMED(overview_node, "place", place, overview_place_names), .min = 1},
    {JSON_NAMED(overview_node, "state", state, node_state_names), .min = 1},
    {JSON_FIELD(overview_node, BOOL, "connected", connected)},
    {JSON_FIELD(overview_node, ID, "silent_ns", silent_ns)},
    {UP_TO(overview_node, "node_rank", node_rank, RDZV_NODES_MAX)},
    {JSON_FIELD(overview_node, U32, "first_rank", first_rank)},
    {FROM_1(overview_node, "nproc", nproc, RDZV_WORKERS_MAX)},
    {JSON_FIELD(overview_node, I32, "pid", pid)},
    {JSON_FIELD(overview_node, ID, "since_ns", since_ns)},
    {JSON_FIELD(overview_node, U32, "stalls", stalls)},
    {JSON_FIELD(overview_node, ID, "longest_stall_ns", longest_stall_ns)},
    {JSON_FIELD(overview_node, TEXT, "why", why)},
    {JSON_STRUCT(overview_node, "warm", warm, warm), JSON_IF_TRUE(overview_node, has_warm)},
};
static const struct json_table row = JSON_TABLE(overview_node, row_fields);

static const struct json_field nodes_fields[] = {
    {UP_TO(wire_nodes, "first", first, RDZV_NODES_MAX - 1)},
    {JSON_LIST(wire_nodes, "nodes", list, n, row), .min = 1},
};

#define ROWS(type, rows) JSON_ROWS(type, rows), .beside = "kind"

static const struct wire_row wire_rows[WIRE_KIND_COUNT] = {
    [WIRE_GREETING] = {"GREETING", {ROWS(auth_greeting, greeting_fields)}},
    [WIRE_HELLO] = {"HELLO", {ROWS(wire_hello, hello_fields)}},
    [WIRE_JOIN] = {"JOIN", {ROWS(wire_join, join_fields)}},
    [WIRE_WELCOME] = {"WELCOME", {ROWS(wire_welcome, welcome_fields)}},
    [WIRE_REFUSED] = {"REFUSED", {ROWS(wire_refused, refused_fields)}},
    [WIRE_REPORT] = {"REPORT", {ROWS(report, whole_report_fields)}, .for_leader = true},
    [WIRE_RENEW] = {"RENEW", {ROWS(renew, renew_fields)}, .for_leader = true},
    [WIRE_LEAVE] = {"LEAVE", {.beside = "kind"}, .for_leader = true},
    [WIRE_DESIRED] = {"DESIRED", {ROWS(desired, desired_fields), .check = check_desired}},
    [WIRE_LEASE] = {"LEASE", {ROWS(lease, lease_fields)}},
    [WIRE_STATUS] = {"STATUS", {ROWS(rdzv_status, status_fields)}},
    [WIRE_NAMED] = {"NAMED", {ROWS(successors, named_fields)}},
    [WIRE_MEMBERS] = {"MEMBERS", {ROWS(wire_members, members_fields), .check = check_members}},
    [WIRE_REDIRECT] = {"REDIRECT", {ROWS(wire_redirect, redirect_fields)}},
    [WIRE_COMMAND] = {"COMMAND", {ROWS(wire_command, command_fields)}},
    [WIRE_ANSWER] = {"ANSWER", {ROWS(answer, answer_fields)}},
    [WIRE_OVERVIEW] = {"OVERVIEW", {ROWS(overview, overview_fields)}},
    [WIRE_NODES] = {"NODES", {ROWS(wire_nodes, nodes_fields)}},
    [WIRE_ECHO] = {"ECHO", {ROWS(echo, echo_fields)}, .for_leader = true},
    [WIRE_CALL] = {"CALL", {ROWS(call, call_fields)}, .for_leader = true},
    [WIRE_NODE_SUMMARY] = {"DIGEST",
                           {ROWS(wire_node_summary, node_summary_fields)},
                           .for_leader = true},
    [WIRE_WARM] = {"WARM", {ROWS(rdzv_warm, warm_fields)}, .for_leader = true},
    [WIRE_SIGNS] = {"SIGNS", {ROWS(rdzv_signs, signs_fields)}, .for_leader = true},
    [WIRE_ASK] = {"ASK", {ROWS(rdzv_ask, ask_fields)}},
    [WIRE_SUSPECTS] = {"SUSPECTS", {ROWS(rdzv_suspects, suspects_fields)}},
    [WIRE_PROCEED] = {"PROCEED", {.beside = "kind"}},
    [WIRE_EVIDENCE] = {"EVIDENCE", {ROWS(rdzv_evidence, evidence_fields)}, .for_leader = true},
    [WIRE_STACKS] = {"STACKS", {ROWS(rdzv_stacks, stacks_fields)}},
    [WIRE_WHOSE] = {"WHOSE", {ROWS(rdzv_whose, whose_fields)}},
    [WIRE_OWNER] = {"OWNER", {ROWS(rdzv_owners, owner_fields)}, .for_leader = true},
};

/* Depth: message > report > failure, message > form > neighbours > each. NODES has the most
 * values. */
static const struct json_limits limits = {
    .max_bytes = WIRE_MESSAGE_MAX, .max_depth = 4, .max_values = 1024};

const char *wire_kind_name(enum wire_kind kind) { return wire_rows[kind].name; }

const struct json_table *wire_table(enum wire_kind kind) { return &wire_rows[kind].table; }

#define BODY offsetof(struct wire_message, body)

bool wire_is_for_leader(enum wire_kind kind) { return wire_rows[kind].for_leader; }

/* The number of this name among the message's own fields; NULL: it has none. */
static uint32_t *number_in(const struct wire_message *m, const char *key) {
    const struct json_table *t = wire_table(m->kind);
    for (size_t i = 0; i < t->n; i++)
        if (t->fields[i].kind == JSON_FIELD_U32 && strcmp(t->fields[i].key, key) == 0)
            return (void *)((char *)(uintptr_t)m + BODY + t->fields[i].offset);
    return NULL;
}

uint32_t wire_epoch_of(const struct wire_message *m) {
    const uint32_t *epoch = m->kind == WIRE_REPORT ? &m->report.epoch : number_in(m, "epoch");
    return epoch != NULL ? *epoch : 0;
}

uint32_t wire_version_of(const struct wire_message *m) {
    const uint32_t *version = number_in(m, "version");
    return version != NULL ? *version : WIRE_VERSION;
}

void wire_encode(const struct wire_message *m, struct strbuf *ret) {
    strbuf_clear(ret);
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", wire_rows[m->kind].name);
    json_table_write(&w, wire_table(m->kind), (const char *)m + BODY);
    json_write_object_end(&w);
}

void wire_add_frame(const struct wire_message *m, struct strbuf *to) {
    uint8_t head[FRAME_HEADER_BYTES];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    frame_header(text.len, head);
    strbuf_add_bytes(to, head, sizeof head);
    strbuf_add_bytes(to, strbuf_text(&text), text.len);
}

static int read_kind(const struct json *doc, enum wire_kind *ret, struct err *err) {
    const char *text = "";
    int r = json_get_string(doc, "kind", KIND_BYTES, &text, err);
    for (unsigned i = 1; r == 0 && i < WIRE_KIND_COUNT; i++)
        if (strcmp(wire_rows[i].name, text) == 0) {
            *ret = (enum wire_kind)i;
            return 0;
        }
    return r < 0 ? r : err_set(err, -EINVAL, "\"kind\" has the unknown value '%s'", text);
}

/* So that both sides can report that the versions differ. */
static bool other_version(const struct json *doc, struct wire_message *ret) {
    uint32_t version, *at = number_in(ret, "version");
    if (at == NULL || json_get_u32(doc, "version", UINT32_MAX, &version, NULL) != 0 ||
        version == WIRE_VERSION)
        return false;
    *at = version;
    return true;
}

int wire_decode(const char *text, size_t len, struct wire_message *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    memset(ret, 0, sizeof *ret);
    r = read_kind(doc, &ret->kind, err);
    if (r < 0)
        return r;
    if (other_version(doc, ret))
        return WIRE_E_VERSION;
    return json_table_read(doc, wire_table(ret->kind), (char *)ret + BODY, err);
}
