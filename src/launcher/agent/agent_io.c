#include "launcher/agent/agent_io.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/net/tls_psk.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/node/node_setup_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/tempdir_io.h"
#include "launcher/place/place_io.h"
#include "launcher/preflight/node_summary_io.h"
#include "launcher/supervise/cgroup_io.h"
#include "rendezvous/operate/leader_file_io.h"
#include "rendezvous/protocol/endpoint_io.h"
#include "rendezvous/store/store_io.h"
#include "topology/discover/discovery_io.h"

bool agent_leads(const struct agent *a) { return a->leading != NULL && a->leading->server != NULL; }

/* ---- what killed agents left behind ----
 *
 * Temporary folders, cgroups and files in the run directory of this user. What a living agent owns
 * is never touched, even one in another container: it holds locks (flock(2)) on it, and nothing
 * counts as left behind whose lock can't be seen here (tempdir_io.h). */

#define TIDY_AFTER_NS NS_PER_S
#define LEFTOVERS_NS (3 * NS_PER_S) /* for each kind; then the rest is left to other agents */

/* cgroups: the cgroup that has those of guardians. */
static int sweep(int cgroups, void *arg) {
    const struct guardian_link *link = arg;
    (void)tempdir_sweep(clock_now_ns() + LEFTOVERS_NS);
    registry_sweep(clock_now_ns() + LEFTOVERS_NS);
    leader_file_sweep(clock_now_ns() + LEFTOVERS_NS);
    if (link->cgroup_parent_fd >= 0)
        cgroup_sweep(cgroups, GUARDIAN_CGROUP_PREFIX, clock_now_ns() + LEFTOVERS_NS);
    return 0;
}

static void on_tidy_timer(void *arg) {
    struct agent *a = arg;
    struct guardian_link *link = a->config.link;
    loop_timer_free(TAKE_PTR(a->tidy_timer));
    if (helper_start(a->loop, "muster-tidy", sweep, link, link->cgroup_parent_fd, &a->leftovers) <
        0)
        log_debug("what killed agents left behind is not removed: no process could be started");
}

/* ---- who of this machine may connect ---- */

static _must_use_ int make_gate(struct agent *a, struct err *err) {
    int r = peer_gate_new(a->config.node_fd, log_warning_line, a, &a->gate, err);
    if (r == 0 && a->config.spec->store_check == STORE_CHECK_UID)
        peer_gate_set_remedy(a->gate, "--store-check=member admits workers of other users, "
                                      "--auth=none all users");
    return r;
}

/* Needs the listening socket. Logs a warning if there can be no gate. */
static void make_peer_gate(struct agent *a) {
    struct err err = {0};
    if (a->config.spec->auth == AUTH_NONE || make_gate(a, &err) == 0)
        return;
    log_line(agent_show_level(a, LOG_LEVEL_WARNING),
             "this machine's kernel does not report the user of a connection (%s), so all "
             "users of this machine can reach this job; --auth=none turns this check off",
             err.text);
}

/* This node sends JOIN from this address (len 0: not known), with these interfaces: its own port
 * serves only those from now on. Not with an arbiter, where others learn all its addresses. */
static void choose_addrs(struct agent *a, const struct addr *local, const struct node_info *info) {
    struct addr at = *local, given, each[RESOLVE_ADDRS_MAX];
    if (a->arbiter != NULL || at.len == 0 || addr_is_loopback(&at))
        return;
    addr_set_port(&at, a->node_port);
    rdzv_listener_choose(a->listener, &at);
    if (a->config.spec->local_addr != NULL &&
        leading_local_addr(a->config.spec->local_addr, &given)) {
        addr_set_port(&given, a->node_port);
        rdzv_listener_choose(a->listener, &given);
    }
    for (size_t i = 0; i < RDZV_NETS_MAX; i++) {
        size_t n = addr_from_list(info->nets[i].addrs, a->node_port, each, ARRAY_SIZE(each));
        for (size_t k = 0; k < n; k++)
            rdzv_listener_choose(a->listener, &each[k]);
    }
}

/* ---- who of other machines may, and to whom this agent talks ---- */

/* After the gate. 0, or a negative errno: it is reported. */
static int make_auth(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct err err = {0};
    _cleanup_(freep) char *socket = slurm_munge_socket(a->config.envp);
    struct auth_config config = {
        .mode = spec->auth,
        .run_id = spec->run_id,
        .gate = a->gate,
        .keys = a->config.keys,
        .local = start_is_local(spec),
        .munge = true,
        .munge_socket = socket,
        .line = log_warning_line,
        .arg = a,
    };
    int r = auth_new(a->loop, &config, &a->auth, &err);
    keyring_free(TAKE_PTR(a->config.keys)); /* copied */
    if (r == 0)
        return 0;
    return agent_refuse_usage(a, r, err.text);
}

bool agent_is_authenticated(const struct agent *a) {
    return auth_state(a->auth) == AUTH_STATE_KEYS;
}

static void on_auth_ready(void *arg, const struct auth_choice *none) {
    struct agent *a = arg;
    a->auth_ask = NULL;
    auth_tell_no_key(a->auth);
}

void agent_tell_if_no_key(struct agent *a) {
    if (a->auth_ask == NULL && auth_state(a->auth) != AUTH_STATE_NONE)
        a->auth_ask = auth_wait(a->auth, on_auth_ready, a);
}

/* For operators on this machine. After registry_add(); again when munge may have carried a key. */
static void leave_key(struct agent *a) {
    const uint8_t *secret = auth_job_secret(a->auth);
    struct err err = {0};
    if (secret != NULL && !a->registry.has_key && registry_add_key(&a->registry, secret, &err) < 0)
        log_debug("%s", err.text);
}

/* ---- the watchdog on this node ---- */

static const char *hides_prompt(const struct job_spec *spec, uint32_t local_rank) {
    if (spec->console_ranks != NULL && !spec->console_ranks[local_rank])
        return "--local-ranks-filter hides its prompt; add its local rank to the filter";
    if ((std_map_get(&spec->redirects, local_rank) & STD_OUT) != 0 &&
        (std_map_get(&spec->tee, local_rank) & STD_OUT) == 0)
        return "--redirects hides its prompt; use --tee instead";
    return NULL;
}

static void begin_hang_watch(struct agent *a) {
    static const struct hang_watch_ops ops = {.signs = rdzv_client_signs,
                                              .leader = rdzv_client_welcomes,
                                              .evidence = rdzv_client_evidence,
                                              .gathered = agent_stop_gathered};
    struct hang_watch_config config = {.client = &a->client,
                                       .settings = a->config.spec->hang,
                                       .nproc = a->config.spec->nproc,
                                       .host = a->host,
                                       .workers = local_workers_for_hangs(a->local_workers),
                                       .hides_prompt = hides_prompt,
                                       .spec = a->config.spec};
    a->hang = hang_watch_new(a->loop, &config, &ops, a);
}

static void on_local_event(void *arg, const struct member_event *event) {
    struct agent *a = arg;
    if (event->kind == MEMBER_EVENT_FAILURE)
        agent_health_blame(a);
    if (event->kind != MEMBER_EVENT_ALL_GONE || !agent_health_holds_gone(a))
        rdzv_client_event(a->client, event);
    agent_check(a);
}

static void local_event(struct agent *a, enum member_event_kind kind, struct generation g) {
    on_local_event(a, &(struct member_event){.kind = kind, .generation = g});
}

static void on_prepared(void *arg, struct generation g, const struct err *err);

static void on_warm(void *arg, const struct rdzv_warm *warm) {
    struct agent *a = arg;
    if (a->client != NULL)
        rdzv_client_warm(a->client, warm);
}

static struct node_discovery *lend(void *arg, const char *leader) {
    struct agent *a = arg;
    return preflight_lend(a->preflight, leader);
}

static const struct local_workers_ops local_workers_ops = {.on_event = on_local_event,
                                                           .on_prepared = on_prepared,
                                                           .lend = lend,
                                                           .on_warm = on_warm,
                                                           .on_over = agent_check};

/* ---- requests of the rendezvous and of the preflight ---- */

static void node_failed(struct agent *a, struct generation g, const char *text) {
    struct failure f;
    local_workers_node_failure(a->local_workers, text, &f);
    rdzv_client_event(a->client, &(struct member_event){
                                     .kind = MEMBER_EVENT_FAILURE, .generation = g, .failure = &f});
}

static void prepared(void *arg, struct generation g, uint32_t reachability, const char *why_not) {
    struct agent *a = arg;
    if (why_not != NULL)
        node_failed(a, g, why_not);
    else
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_PREPARED,
                                                            .generation = g,
                                                            .reachability = reachability});
}

static void on_prepared(void *arg, struct generation g, const struct err *err) {
    struct agent *a = arg;
    if (err != NULL)
        node_failed(a, g, err->text);
    else if (!preflight_prepare(a->preflight, g, member_form(rdzv_client_member(a->client))))
        prepared(a, g, 0, NULL);
}

static bool joining(void *arg, const struct addr *leader, const struct addr *local,
                    struct node_info *info) {
    struct agent *a = arg;
    char text[ADDR_TEXT_MAX];
    bool far = agent_leader_text(a, leader, text);
    if (!preflight_joining(a->preflight, far ? text : NULL, info))
        return false;
    choose_addrs(a, local, info);
    return true;
}

static void prepare(void *arg, struct generation g, const struct form *form) {
    struct agent *a = arg;
    (void)agent_stop_wait_no_more(a);
    agent_show_formed(a, g, form);
    leave_key(a);
    struct err err = {0};
    int r = local_workers_prepare(a->local_workers, g, form, &err);
    if (r != LOCAL_WORKERS_E_LATER)
        on_prepared(a, g, r < 0 ? &err : NULL);
}

static void start(void *arg, struct generation g, uint32_t reachability) {
    struct agent *a = arg;
    /* muster check only needs all nodes to come this far */
    if (a->config.spec->check != JOB_CHECK_OFF) {
        local_event(a, MEMBER_EVENT_SUCCEEDED, g);
        return;
    }
    struct err err = {0};
    struct netif_choice netif;
    bool other = preflight_pick(a->preflight, reachability, &netif);
    if (a->n_started++ == 0)
        agent_gpus_begin(a);
    const struct form *form = member_form(rdzv_client_member(a->client));
    agent_open_door(a, form);
    if (local_workers_start(a->local_workers, other ? &netif : NULL, &err) == 0) {
        if (a->tidy_timer != NULL)
            loop_timer_set(a->tidy_timer, clock_now_ns() + TIDY_AFTER_NS);
        hang_watch_start(a->hang, g, form);
        agent_ends_started(a);
        agent_requeue_begin(a);
        return;
    }
    node_failed(a, g, err.text);
    local_event(a, MEMBER_EVENT_ALL_GONE, g);
}

/* No other group can form while this agent is frozen: its workers need no guard. */
static bool is_only_node(const struct agent *a) {
    return a->config.spec->rdzv.max_nodes == 1 && a->arbiter == NULL && agent_leads(a);
}

static void lease_end(void *arg, uint64_t end_ns) {
    struct agent *a = arg;
    if (end_ns == TIME_NEVER)
        loop_timer_set(a->stop.hold_timer, TIME_NEVER);
    else if (is_only_node(a))
        return;
    guardian_lease(a->config.link, end_ns);
}

static void waiting(void *arg, enum rdzv_wait why, const char *text) {
    struct agent *a = arg;
    if (why == RDZV_WAIT_PLACE || a->own_endpoint.len == 0 ||
        rdzv_client_finding(a->client) != RDZV_FINDING_SILENCE) {
        agent_show_waiting(a, why, text);
        return;
    }
    /* over loopback, where later attempts fail, too */
    agent_give_up(a, LIFE_EVENT_FAILURE,
                  "this node leads the job and cannot connect to itself: %.*s",
                  (int)strcspn(text, ";"), text);
}

static void other_limits(void *arg, uint32_t min_nodes, uint32_t max_nodes) {
    const struct agent *a = arg;
    const struct rdzv_settings *own = &a->config.spec->rdzv;
    log_notice("this node was started with --nnodes %u:%u, the leader with %u:%u; the leader's "
               "numbers count",
               own->min_nodes, own->max_nodes, min_nodes, max_nodes);
}

static void lead_on(void *arg, const struct group_config *lead) {
    struct agent *a = arg;
    int r = leading_on(a->leading, lead);
    if (r >= 0)
        agent_leads_now(a);
    else
        agent_give_up(a, LIFE_EVENT_FAILURE, "can't lead the job: %s", strerror(-r));
}

static void join_policy(void *arg, enum member_join_policy what, const struct rdzv_peer *peer,
                        uint32_t epoch) {
    struct agent *a = arg;
    rdzv_listener_join_policy(a->listener, what, peer, epoch);
}

static void on_end(void *arg, const struct member_end *end) {
    struct agent *a = arg;
    a->end = *end;
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_END, .end = end->kind});
}

const struct rdzv_client_ops agent_client_ops = {
    .joining = joining,
    .prepare = prepare,
    .start = start,
    .stop = agent_stop,
    .fence = agent_fence,
    .hold = agent_hold,
    .resume = agent_resume,
    .lease_end = lease_end,
    .status = agent_show_status,
    .waiting = waiting,
    .nobody_there = agent_try_endpoint,
    .lead = lead_on,
    .leader = agent_show_leader,
    .other_limits = other_limits,
    .join_policy = join_policy,
    .end = on_end,
};

static void can_join(void *arg) {
    struct agent *a = arg;
    rdzv_client_join(a->client);
}

static void send_summary(void *arg, const char *node_summary) {
    struct agent *a = arg;
    rdzv_client_node_summary(a->client, node_summary);
}

static const struct group *led(void *arg) {
    const struct agent *a = arg;
    return agent_leads(a) ? rdzv_server_group(a->leading->server) : NULL;
}

static void refuse(void *arg, const char *reason) {
    struct agent *a = arg;
    rdzv_server_event(
        a->leading->server,
        &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = reason, .halted = true});
}

static const struct preflight_ops preflight_ops = {
    .can_join = can_join, .send = send_summary, .prepared = prepared, .led = led, .refuse = refuse};

/* ---- events of the listener ---- */

static void on_joiner(void *arg, uint64_t incarnation, bool came) {
    struct agent *a = arg;
    if (a->client != NULL)
        rdzv_client_event(a->client, &(struct member_event){.kind = came ? MEMBER_EVENT_JOINER
                                                                         : MEMBER_EVENT_JOINER_GONE,
                                                            .joiner = incarnation});
}

static bool find_leader(void *arg, uint32_t *ret_epoch, struct rdzv_peer *ret) {
    struct agent *a = arg;
    return a->client != NULL && rdzv_client_leader(a->client, ret_epoch, ret);
}

static void on_store_client(void *arg, int fd) {
    struct agent *a = arg;
    store_door_client(a->door, fd);
}

static void on_leave(void *arg, const char *why, struct answer *ret) {
    struct agent *a = arg;
    char reason[RDZV_REASON_MAX];
    if (agent_leads(a) && a->arbiter == NULL) {
        (void)snprintf(ret->text, sizeof ret->text,
                       "node %s leads the job at a fixed endpoint, where no node can take its "
                       "place: stop the job instead, or use a shared directory or etcd",
                       a->host);
        return;
    }
    ret->ok = true;
    (void)snprintf(ret->text, sizeof ret->text, "node %s stops its workers and leaves", a->host);
    if (agent_life_ends(&a->life))
        return;
    log_notice("an operator asked this node to leave%s%s", why[0] != '\0' ? ": " : "", why);
    (void)snprintf(reason, sizeof reason, "was asked to leave by an operator%s%s",
                   why[0] != '\0' ? ": " : "", why);
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_DRAIN, .reason = reason});
}

/* ---- the whole agent ---- */

static int set_up_listener(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    int r = endpoint_own_addr(a->config.node_fd, &a->own_listener);
    if (r < 0)
        return r;
    a->node_port = addr_port(&a->own_listener);
    make_peer_gate(a);
    r = make_auth(a);
    if (r < 0)
        return r;
    struct rdzv_listener_config config = {
        .incarnation = a->incarnation,
        .lease_ns = spec->rdzv.lease_ns,
        .heartbeat_ns = spec->rdzv.heartbeat_ns,
        .gate = a->gate,
        .auth = a->auth,
        .joiner = on_joiner,
        .leave = on_leave,
        .store_client = on_store_client,
        .store_for_all = a->config.spec->store_check != STORE_CHECK_UID,
        .find_leader = find_leader,
        .arg = a,
    };
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", spec->run_id);
    a->door = store_door_new(a->loop, a->gate, log_warning_line, a);
    a->listener = rdzv_listener_new(a->loop, &config);
    rdzv_listener_add(a->listener, a->config.node_fd);
    a->config.node_fd = -1;
    char host[ADDR_TEXT_MAX];
    struct err err = {0};
    addr_host_text(&a->own_listener, host);
    if (registry_add(spec->run_id, host, a->node_port, &a->registry, &err) < 0)
        log_debug("%s", err.text); /* then 'muster status' needs the address */
    leave_key(a);
    return 0;
}

/* Returns whether there are GPUs. More is discovered while this node waits for its peers; if that
 * can't begin, only the features that need it are lost. */
static bool look_at_node(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct err err = {0};
    bool preflight = preflight_is_wanted(spec);
    bool nvml = agent_may_have_domain(a) || (preflight && spec->rdzv.max_nodes == 1);
    if (node_setup_needs(spec, true) == 0 && !nvml)
        return false;
    bool any_gpu = discover_has_gpus();
    unsigned what = node_setup_needs(spec, any_gpu) | (nvml ? DISCOVER_NVML : 0);
    struct node_discovery_config config = {
        .what = what != 0 && preflight ? what | node_summary_needs(any_gpu) : what,
        .netifs_first = preflight,
        .nvml = preflight,
        .facts = spec->nccl_env > NCCL_ENV_OFF || preflight,
        .rocm = any_gpu,
        .deadline_ns = preflight ? NODE_SUMMARY_DISCOVERY_NS : 0,
        .envp = a->config.envp,
        .set = spec->env,
        .python = a->config.python,
    };
    if (config.what != 0 && node_discovery_new(a->loop, &config, &a->discovery, &err) < 0)
        log_warning("%s; its workers are not bound", err.text);
    if (any_gpu && spec->nccl_env > NCCL_ENV_OFF) {
        node_raise_limits();
        a->nofile_soft = 0; /* descriptors, too: workers get as many as the agent has */
    }
    return any_gpu;
}

/* With fewer descriptors an agent can't even serve itself. */
#define FILES_MIN 32

static int check_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > FILES_MIN)
        return 0;
    log_error("open files are limited to %llu: an agent needs more than %d, and some for each "
              "worker; raise the limit with ulimit -n",
              (unsigned long long)files.rlim_cur, FILES_MIN);
    return -EMFILE;
}

static void begin_preflight(struct agent *a) {
    struct preflight_config config = {.spec = a->config.spec,
                                      .envp = a->config.envp,
                                      .python = a->config.python,
                                      .host = a->host,
                                      .incarnation = a->incarnation,
                                      .discovery = a->discovery,
                                      .auth = a->auth};
    a->preflight = preflight_new(a->loop, &config, &preflight_ops, a);
}

static void fill_begin(void *arg, struct json_writer *w) {
    const struct agent *a = arg;
    struct rdzv_program program;
    char folder[PATH_MAX];
    program_of(a->config.spec, &program);
    json_write_string(w, "command", program.shown);
    json_write_string(w, "folder", getcwd(folder, sizeof folder) != NULL ? folder : "");
    for (int f = NODE_SUMMARY_DRIVER; f <= NODE_SUMMARY_TORCH; f++) {
        const char *version = preflight_fact(a->preflight, (enum node_summary_fact)f);
        if (version[0] != '\0')
            json_write_string(w, node_summary_fact_name((enum node_summary_fact)f), version);
    }
}

static int begin_events(struct agent *a, struct err *err) {
    const struct job_spec *spec = a->config.spec;
    const char *in_logs = spec->log_dir != NULL && !logdir_is_null(spec->log_dir) ? "" : NULL;
    struct events_config config = {.path = spec->event_log != NULL ? spec->event_log : in_logs,
                                   .mode = spec->log_mode,
                                   .console = a->console,
                                   .logs = local_workers_files(a->local_workers),
                                   .run_id = spec->run_id,
                                   .host = a->host,
                                   .fill = fill_begin,
                                   .arg = a,
                                   .loop = spec->warm != JOB_WARM_OFF ? a->loop : NULL};
    return events_new(&config, &a->events, err);
}

static int set_up(struct agent *a) {
    (void)signal(SIGPIPE, SIG_IGN); /* a closed terminal or peer is reported by errno */
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a file at its limit: setrlimit(2) */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && store_raise_descriptors() > files.rlim_cur)
        a->nofile_soft = files.rlim_cur; /* the workers keep the user's limit */
    int r = check_files();
    if (r < 0) {
        agent_event(a, &(struct life_event){.kind = LIFE_EVENT_FAILURE});
        return r;
    }
    r = loop_new(&a->loop);
    if (r < 0)
        return r;
    a->reaper = child_reaper_new(a->loop);
    agent_show_begin(a);
    const struct job_spec *spec = a->config.spec;
    if (!job_backend(spec)->own_tls)
        tls_psk_alone();
    r = agent_find_head(a);
    if (r < 0)
        return r;
    bool any_gpu = look_at_node(a);
    struct local_workers_config local_workers = {
        .place = {.spec = a->config.spec,
                  .envp = a->config.envp,
                  .python = a->config.python,
                  .discovery = a->discovery,
                  .any_gpu = any_gpu},
        .host = a->host,
        .incarnation = a->incarnation,
        .link = a->config.link,
        .nofile_soft = a->nofile_soft,
        .reaper = a->reaper,
        .writer = a->writer,
    };
    a->local_workers = local_workers_new(a->loop, &local_workers, &local_workers_ops, a);
    struct err err = {0};
    r = begin_events(a, &err);
    if (r < 0)
        return agent_refuse_usage(a, r, err.text);
    r = set_up_listener(a);
    if (r < 0)
        return r;
    a->tidy_timer = loop_timer_new(a->loop, on_tidy_timer, a);
    agent_ends_begin(a);
    begin_preflight(a);
    begin_hang_watch(a);
    a->leading = leading_new(a);
    agent_health_begin(a);
    loop_defer(a->loop, LOOP_PRIO_LEASE, agent_find_place, a);
    return 0;
}

/* All but the way to the head, and its loop. Returns whether output of workers is lost. */
static bool tear_down(struct agent *a) {
    a->end_signals = agent_show_end_signals(a);
    resolve_free(a->resolve);
    rdzv_client_free(TAKE_PTR(a->client));
    agent_read_verdict(a);
    agent_record_end(a); /* for "muster status", which gets no answer any more */
    registry_remove(&a->registry);
    if (a->listener != NULL)
        rdzv_listener_serve(a->listener, NULL);
    leading_free(TAKE_PTR(a->leading));
    preflight_free(TAKE_PTR(a->preflight));
    rdzv_listener_free(a->listener);
    auth_ask_free(TAKE_PTR(a->auth_ask));
    auth_free(TAKE_PTR(a->auth));
    keyring_free(TAKE_PTR(a->config.keys));
    peer_gate_free(TAKE_PTR(a->gate));
    file_close(&a->lead_name);
    store_door_free(a->door);
    arbiter_free(TAKE_PTR(a->arbiter));
    loop_timer_free(a->fabric_timer);
    node_discovery_free(a->fabric);
    agent_health_free(a);
    node_discovery_free(a->discovery);
    loop_timer_free(a->tidy_timer);
    helper_end(&a->leftovers);
    if (!a->end.was_closed &&
        (a->end.kind == MEMBER_END_SUCCESS || a->end.kind == MEMBER_END_FAILED))
        worker_logs_ended(local_workers_files(a->local_workers));
    hang_watch_free(a->hang);
    local_workers_free(TAKE_PTR(a->local_workers));
    agent_ends_free(a);
    requeue_free(TAKE_PTR(a->requeue.io));
    events_free(a->events);
    bool lost = agent_show_end(a);
    child_reaper_free(a->reaper);
    file_close(&a->config.node_fd);
    return lost;
}

int agent_run(const struct agent_config *config) {
    struct agent a = {.config = *config, .leftovers = HELPER_INIT, .lead_name = -1};
    agent_life_init(&a.life);
    do
        a.incarnation = random_u64();
    while (a.incarnation == 0);
    resolve_own_name(a.host, sizeof a.host);
    int r = set_up(&a);
    if (r == 0)
        r = loop_run(a.loop);
    if (r < 0 && !agent_life_failed(&a.life)) {
        log_error("the agent can't continue: %s", strerror(-r));
        agent_event(&a, &(struct life_event){.kind = LIFE_EVENT_FAILURE});
    }
    if (!agent_life_failed(&a.life))
        agent_show_outcome(&a);
    int status = a.requeue.state == REQUEUE_ANSWERED ? a.requeue.status : agent_exit_status(&a);
    if (a.life.cause == LIFE_CAUSE_JOB && a.end.kind == MEMBER_END_SUCCESS && !a.end.was_spare &&
        local_workers_leave_kept(a.local_workers))
        guardian_leave(a.config.link);
    bool lost = tear_down(&a);
    if (lost && (status == AGENT_EXIT_SUCCESS || a.left_output))
        status = AGENT_EXIT_FAILED;
    bool asked = agent_head_asked(&a);
    agent_tell_head(&a, status);
    loop_free(a.loop);
    return asked ? AGENT_EXIT_SUCCESS : status;
}
