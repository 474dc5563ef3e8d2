/* What this node does as leader: the server, the workers' stores, the leader file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/net/listen.h"
#include "io/net/port_owner.h"
#include "launcher/agent/agent_priv.h"
#include "rendezvous/operate/leader_file_io.h"
#include "rendezvous/protocol/endpoint_io.h"
#include "rendezvous/store/store_guard_io.h"
#include "rendezvous/store/store_io.h"
#include "watchdog/act/hang_evidence_io.h"
#include "watchdog/act/hang_leader_io.h"
#include "watchdog/act/job_time_io.h"

/* A wait this long is reported. */
#define WAIT_SAID_NS (2 * NS_PER_S)

/* The queue of connections that wait to be accepted: the workers of a large job come at once. */
#define STORE_BACKLOG 4096

/* ---- the workers' store ---- */

/* A free port of this node, where rank 0 will run. As with torchrun, it can be taken meanwhile. */
static int find_port(struct addr *at, struct err *err) {
    _cleanup_(file_close) int fd = -1;
    int r = listen_socket(at, 1, &fd, err);
    if (r < 0)
        return r;
    r = addr_of_socket(fd, at);
    return r < 0 ? err_set(err, r, "no port for the workers' store: %s", strerror(-r)) : 0;
}

bool leading_port_taken(const char *setting, const struct addr *at, struct err *err) {
    struct port_owner owner = port_owner_find(at);
    _cleanup_(freep) char *who = port_owner_text(&owner, at);
    (void)err_set(err, -EADDRINUSE, "%s: %s; %s", setting, who,
                  owner.muster ? "give this job another port, on all its nodes"
                               : "stop it, or give the job another port, on all its nodes");
    return owner.pid > 0 && !owner.muster;
}

/* Listens at the port that the user chose for the workers' store. On all addresses, unless the user
 * named one: workers of this node alone come over loopback, others by the endpoint's address, and
 * programs with a MASTER_ADDR of their own by any name of this node. */
static int listen_for_store(struct leading *l, struct err *err) {
    const struct job_spec *spec = l->agent->config.spec;
    bool alone = spec->rdzv.max_nodes == 1 ||
                 (spec->endpoint_host == NULL && !job_backend(spec)->any_node_leads);
    struct addr any;
    int fd;
    if (l->listens_for_store || spec->store_port == 0 || spec->workers_store)
        return 0;
    endpoint_bind_addr(spec->store_host != NULL ? spec->store_host
                       : alone                  ? "127.0.0.1"
                                                : "::",
                       spec->store_port, &any);
    if (spec->store_port != l->agent->node_port &&
        (l->endpoint.len == 0 || spec->store_port != addr_port(&l->endpoint))) {
        char setting[32];
        (void)snprintf(setting, sizeof setting, "--master-port=%u", spec->store_port);
        int r = listen_socket(&any, STORE_BACKLOG, &fd, err);
        if (r == -EADDRINUSE)
            (void)leading_port_taken(setting, &any, err);
        if (r < 0)
            return r;
        rdzv_listener_add(l->agent->listener, fd);
    }
    l->listens_for_store = true;
    return 0;
}

/* Where nobody has a key, clients of the store need none either. What munge says may come later. */
static void judge_clients(struct leading *l) {
    store_guard_apply(l->guard, auth_state(l->agent->auth) == AUTH_STATE_KEYS);
}

/* With a port that the user chose, the clients come through the listener of that port. */
static int store_open(void *arg, struct generation g, struct addr *at, struct err *err) {
    struct leading *l = arg;
    const struct job_spec *spec = l->agent->config.spec;
    judge_clients(l);
    bool own_port =
        spec->store_port == 0 && (l->endpoint.len == 0 || !job_backend(spec)->ranks_are_chosen);
    struct store_server_config config = {.listen_at = at,
                                         .n_listen_at = own_port ? 1 : 0,
                                         .guard = l->guard,
                                         .limits = store_limits_of_machine(),
                                         .log = log_warning_line};
    struct store_server *store;
    if (spec->workers_store) {
        addr_set_port(at, spec->store_port);
        int r = find_port(at, err);
        if (r == 0)
            preflight_forming(l->agent->preflight);
        return r;
    }
    int r = listen_for_store(l, err);
    if (r == 0)
        r = store_server_new(l->agent->loop, &config, &store, err);
    if (r < 0)
        return r;
    if (spec->store_port != 0)
        addr_set_port(at, spec->store_port);
    else if (!own_port)
        *at = l->endpoint;
    else if ((r = store_server_addr(store, 0, at)) < 0) {
        store_server_close(store);
        return err_set(err, r, "the workers' store has no address: %s", strerror(-r));
    }
    idmap_put(&l->stores, generation_to_u64(g), store);
    store_door_serve(l->agent->door, store);
    preflight_forming(l->agent->preflight); /* the group's members are known now */
    return 0;
}

static void store_close(void *arg, struct generation g) {
    struct leading *l = arg;
    uint64_t id = generation_to_u64(g);
    struct store_server *store = idmap_get(&l->stores, id);
    if (store == NULL)
        return;
    idmap_remove(&l->stores, id);
    store_door_unserve(l->agent->door, store);
    store_server_close(store);
}

static enum peer_source find_source(void *arg, const struct addr *client) {
    const struct leading *l = arg;
    return l->server != NULL ? rdzv_server_source(l->server, client) : PEER_SOURCE_UNKNOWN;
}

static void ask_whose(void *arg, uint32_t id, const struct addr *client, const struct addr *store) {
    struct leading *l = arg;
    if (l->server != NULL)
        rdzv_server_whose(l->server, client, store, id);
}

static void make_guard(struct leading *l) {
    struct store_guard_config config = {.check = l->agent->config.spec->store_check,
                                        .gate = l->agent->gate,
                                        .find = find_source,
                                        .ask = ask_whose,
                                        .log = log_warning_line,
                                        .arg = l};
    l->guard = store_guard_new(l->agent->loop, &config);
    judge_clients(l);
}

/* ---- events of the server ---- */

static void on_notice(void *arg, const char *line) { log_notice("%s", line); }

static void on_started(struct leading *l) {
    _cleanup_(hang_group_fini) struct hang_group group;
    if (!hang_group_read(rdzv_server_group(l->server), &group))
        return;
    hang_leader_begin(l->hang, &group);
    job_clock_begin(l->clock, group.world_size);
}

static void on_stopping(struct leading *l) {
    hang_leader_end(l->hang);
    job_clock_end(l->clock);
}

void leading_let_go(struct leading *l) {
    _cleanup_(hang_group_fini) struct hang_group group;
    hang_leader_let_go(l->hang);
    if (hang_group_read(rdzv_server_group(l->server), &group))
        hang_evidence_let_go(l->evidence, &group);
}

static void write_event(void *arg, const struct timeline_entry *entry) {
    struct leading *l = arg;
    events_write(l->agent->events, entry);
}

static void on_timeline(void *arg, const struct timeline_entry *entry) {
    struct leading *l = arg;
    write_event(l, entry);
    if (entry->kind == TIMELINE_NODE_LOST)
        agent_requeue_lost(l->agent, entry->name);
    else if (entry->kind == TIMELINE_WORKER_FAILED)
        hang_leader_failed(l->hang, entry->incident.failure.rank, entry->why);
}

static void on_workers(void *arg, enum group_effect_kind what) {
    if (what == GROUP_EFFECT_STARTED)
        on_started(arg);
    else if (what == GROUP_EFFECT_STOPPING)
        on_stopping(arg);
    else
        leading_let_go(arg);
}

static void on_idle(void *arg) { agent_check(((struct leading *)arg)->agent); }

static void on_first_step(void *arg, const struct attempt_start *start) {
    struct leading *l = arg;
    struct timeline_entry entry = {.kind = TIMELINE_FIRST_STEP,
                                   .at_ns = clock_now_ns(),
                                   .generation = group_generation(rdzv_server_group(l->server)),
                                   .start = *start};
    write_event(l, &entry);
}

static const struct job_clock_ops clock_ops = {.first_step = on_first_step};

static void report_time(const struct leading *l) {
    _cleanup_(strbuf_fini) struct strbuf incidents = {0}, text = {0};
    struct job_history history;
    group_history(rdzv_server_group(l->server), clock_now_ns(), &history);
    job_history_text(&history, &incidents);
    if (incidents.len > 0)
        log_notice("%s", strbuf_text(&incidents));
    job_clock_report(l->clock, &text);
    if (text.len > 0)
        log_notice("%s", strbuf_text(&text));
}

static const struct hang_leader_ops hang_ops = {
    .event = rdzv_server_event, .idle = on_idle, .timeline = write_event};
static const struct hang_evidence_ops evidence_ops = {
    .send = rdzv_server_watchdog, .add = rdzv_server_stacks_add, .end = rdzv_server_stacks_end};

static void access_of(void *arg, struct rdzv_access *ret) {
    const struct leading *l = arg;
    struct auth_greeting g;
    auth_greet(l->agent->auth, &g);
    *ret = (struct rdzv_access){.state = auth_state(l->agent->auth),
                                .n_keys = g.n_keys,
                                .refused = auth_n_refused(l->agent->auth) +
                                           peer_gate_refused(l->agent->gate)};
    memcpy(ret->keys, g.ids, sizeof ret->keys);
}

static void stop_leading(struct leading *l) {
    on_stopping(l);
    hang_stacks_cancel(l->evidence, ASK_STACKS);
    hang_stacks_cancel(l->evidence, ASK_PROFILE);
    rdzv_listener_serve(l->agent->listener, NULL);
    rdzv_server_free(TAKE_PTR(l->server));
}

/* After it has resigned, nodes look for the next leader at once. */
static void done(void *arg, enum outcome outcome) {
    struct leading *l = arg;
    bool resigned = group_state(rdzv_server_group(l->server)) != GROUP_CLOSED;
    l->end = resigned ? LEADING_RESIGNED : LEADING_INFORMED;
    if (resigned)
        stop_leading(l);
    else
        report_time(l);
    agent_check(l->agent);
}

static void safe_point(void *arg) {
    struct agent *a = ((struct leading *)arg)->agent;
    a->verdict.safe = true;
    starter_link_safe(a->head);
}

static void deposed(void *arg, uint32_t epoch) {
    struct leading *l = arg;
    (void)epoch; /* the group has already reported it */
    stop_leading(l);
    agent_show_leads(l->agent);
    rdzv_client_event(l->agent->client, &(struct member_event){.kind = MEMBER_EVENT_DEPOSED});
    agent_check(l->agent);
}

/* ---- beginning to lead ---- */

static void group_config_from(const struct leading *l, struct group_config *c) {
    const struct job_spec *spec = l->agent->config.spec;
    c->rdzv = spec->rdzv;
    c->leader_incarnation = l->agent->incarnation;
    (void)snprintf(c->role, sizeof c->role, "%s", spec->role);
    program_of(spec, &c->program);
    c->static_ranks = job_backend(spec)->ranks_are_chosen;
    c->log_nonce = random_u64();
    c->grace_ns = spec->shutdown_timeout_ns;
}

bool leading_local_addr(const char *text, struct addr *ret) {
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    if (resolve_now(text, 0, addrs, &n) != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!addr_is_local(&addrs[i]) || (addr_is_loopback(&addrs[i]) && i + 1 < n))
            continue;
        *ret = addrs[i];
        return true;
    }
    return false;
}

static int new_server(struct leading *l, const struct group_config *group) {
    const struct job_spec *spec = l->agent->config.spec;
    struct rdzv_server_config config = {
        .listener_port = l->agent->node_port,
        .auth = l->agent->auth,
        .arbiter = l->agent->arbiter,
        .leader_file = l->leader_file,
        .ops = {.store_open = store_open,
                .store_close = store_close,
                .notice = on_notice,
                .timeline = on_timeline,
                .workers = on_workers,
                .access = access_of,
                .safe_point = safe_point,
                .deposed = deposed,
                .done = done},
        .arg = l,
        .parts = {.summaries = {preflight_received, preflight_forgotten, l->agent->preflight},
                  .watchdog = {hang_leader_signs, hang_leader_watchdog, l->hang},
                  .time = {job_clock_state, l->clock},
                  .evidence = {hang_evidence_piece, hang_evidence_forgotten, l->evidence},
                  .stacks = {hang_stacks_ask, hang_stacks_cancel, l->evidence},
                  .owners = {store_guard_answer, l->guard}},
    };
    l->end = LEADING_SERVES;
    if (spec->local_addr != NULL && !leading_local_addr(spec->local_addr, &config.local_addr))
        log_warning("--local-addr %s is not an address of this machine; another is chosen",
                    spec->local_addr);
    return rdzv_server_new(l->agent->loop, group, &config, &l->server);
}

/* Only a run whose name others know can have had a leader here before. */
static void leave_leader_file(struct leading *l, struct group_config *group) {
    const struct job_spec *spec = l->agent->config.spec;
    struct leader_file_prev prev;
    struct err err = {0};
    if (!job_id_is_common(spec) || spec->endpoint_host == NULL || spec->endpoint_port == 0)
        return;
    _cleanup_(freep) char *endpoint = job_endpoint_text(spec); /* whichever port it has now */
    int r = leader_file_open(spec->run_id, endpoint, group->rdzv.lease_ns + group->rdzv.margin_ns,
                             &prev, &l->leader_file, &err);
    if (r < 0) {
        log_warning("%s; should this agent be killed and started again, its old group may still "
                    "run for up to %.0f s while the new one starts",
                    err.text,
                    (double)(group->rdzv.lease_ns + group->rdzv.margin_ns) / (double)NS_PER_S);
        return;
    }
    uint64_t now = clock_now_ns();
    group->leadership = LEADERSHIP_LEADER_FILE;
    group->epoch = leader_file_epoch(l->leader_file);
    group->not_before_ns = leader_file_free_from(&prev, now);
    if (group->not_before_ns > now)
        log_notice("the last leader of run '%s' at %s ended without closing it; its workers may "
                   "still run elsewhere: nothing starts here for %.1f s",
                   spec->run_id, endpoint, (double)(group->not_before_ns - now) / (double)NS_PER_S);
}

/* Of several ports: which one it is, for operators and the event log. */
static void tell_endpoint(const struct leading *l, uint16_t port, struct group_config *group) {
    const struct job_spec *spec = l->agent->config.spec;
    if (spec->n_endpoint_ports < 2)
        return;
    bool v6 = strchr(spec->endpoint_host, ':') != NULL;
    (void)snprintf(group->endpoint, sizeof group->endpoint, "%s%s%s:%u", v6 ? "[" : "",
                   spec->endpoint_host, v6 ? "]" : "", port);
}

int leading_at(struct leading *l, int endpoint_fd, struct addr *ret_own, struct err *err) {
    struct group_config group;
    group_config_default(&group);
    group_config_from(l, &group);
    int r = endpoint_own_addr(endpoint_fd, ret_own);
    if (r == 0) {
        leave_leader_file(l, &group);
        tell_endpoint(l, addr_port(ret_own), &group);
        r = new_server(l, &group);
    }
    if (r < 0) {
        (void)close(endpoint_fd);
        return r;
    }
    l->endpoint = *ret_own;
    rdzv_listener_serve(l->agent->listener, l->server);
    rdzv_listener_add(l->agent->listener, endpoint_fd);
    return listen_for_store(l, err);
}

/* Without this line a minute of silence would look like a fault. */
static void log_wait(const struct group_config *lead) {
    uint64_t now = clock_now_ns();
    if (lead->not_before_ns > now + WAIT_SAID_NS)
        log_notice("workers of the previous leader may still run: waiting up to %.0f s until they "
                   "have certainly ended",
                   (double)(lead->not_before_ns - now) / (double)NS_PER_S);
}

int leading_on(struct leading *l, const struct group_config *lead) {
    struct group_config group = *lead;
    assert(l->server == NULL);
    group_config_from(l, &group);
    const struct desired *stop = member_stop_cause(rdzv_client_member(l->agent->client));
    group.stop_reason = stop != NULL ? stop->reason : NULL;
    if (lead->handover != NULL)
        group.log_nonce = lead->handover->log_nonce;
    int r = new_server(l, &group);
    if (r < 0)
        return r;
    log_wait(lead);
    rdzv_listener_serve(l->agent->listener, l->server);
    return 0;
}

/* ---- life ---- */

struct leading *leading_new(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct leading *l = xcalloc(1, sizeof *l);
    l->agent = a;
    l->evidence = hang_evidence_new(a->loop, &evidence_ops, &l->server);
    struct hang_leader_config hang = {
        .cases = {.evidence = l->evidence,
                  .settings = spec->hang,
                  .run_id = spec->run_id,
                  .log_mode = spec->log_mode,
                  .workers = local_workers_for_hangs(a->local_workers)},
        .server = &l->server,
        .restarts = spec->rdzv.max_restarts > 0,
        .incarnation = a->incarnation};
    l->hang = hang_leader_new(a->loop, &hang, &hang_ops, l);
    if (spec->profile == JOB_PROFILE_ON)
        l->clock = job_clock_new(a->loop, l->evidence, &clock_ops, l);
    make_guard(l);
    return l;
}

void leading_free(struct leading *l) {
    if (l == NULL)
        return;
    rdzv_server_free(l->server);
    hang_leader_free(l->hang);
    job_clock_free(l->clock);
    hang_evidence_free(l->evidence);
    leader_file_free(l->leader_file);
    store_guard_free(l->guard);
    idmap_fini(&l->stores);
    free(l);
}
