#include "launcher/agent_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/idmap.h"
#include "base/log.h"
#include "io/clock.h"
#include "launcher/agent_priv.h"
#include "rendezvous/endpoint_io.h"

/* How long the console may take for what is still queued when the agent exits. */
#define CONSOLE_PATIENCE_NS (2 * NS_PER_S)
#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)

/* ---- the end ---- */

static void quit_if_over(struct agent *a) {
    if (a->ended && (a->server == NULL || a->server_done) && !crew_has_workers(a->crew))
        loop_quit(a->loop);
}

static void give_up(struct agent *a, const char *text) {
    log_error("%s", text);
    a->failed_early = a->ended = a->server_done = true;
    if (crew_has_workers(a->crew))
        crew_kill(a->crew);
    quit_if_over(a);
}

/* ---- what the crew says ---- */

static void on_failure(void *arg, struct generation g, const struct failure *failure) {
    struct agent *a = arg;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_FAILURE,
                                                        .generation = g,
                                                        .failure = failure});
}

static void on_succeeded(void *arg, struct generation g) {
    struct agent *a = arg;
    rdzv_client_event(a->client,
                      &(struct member_event){.kind = MEMBER_EVENT_SUCCEEDED, .generation = g});
}

static void on_all_gone(void *arg, struct generation g) {
    struct agent *a = arg;
    rdzv_client_event(a->client,
                      &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE, .generation = g});
    quit_if_over(a);
}

static void on_unkillable(void *arg, const char *text) {
    struct agent *a = arg;
    log_error("%s can't be killed; this node takes part no more", text);
    rdzv_client_event(a->client,
                      &(struct member_event){.kind = MEMBER_EVENT_UNKILLABLE, .reason = text});
}

static const struct crew_ops crew_ops = {on_failure, on_succeeded, on_all_gone, on_unkillable};

/* ---- what the rendezvous wants ---- */

static void node_failed(struct agent *a, struct generation g, const char *text) {
    struct failure f;
    crew_node_failure(a->crew, text, &f);
    on_failure(a, g, &f);
}

static void prepare(void *arg, struct generation g, const struct form *form) {
    struct agent *a = arg;
    agent_show_formed(a, g, form);
    struct err err = {0};
    if (crew_prepare(a->crew, g, form, &err) < 0)
        node_failed(a, g, err.text);
    else
        rdzv_client_event(a->client,
                          &(struct member_event){.kind = MEMBER_EVENT_PREPARED, .generation = g});
}

static void start(void *arg, struct generation g) {
    struct agent *a = arg;
    struct err err = {0};
    if (crew_start(a->crew, &err) == 0)
        return;
    node_failed(a, g, err.text);
    on_all_gone(a, g);
}

static void stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause) {
    struct agent *a = arg;
    agent_show_stop(a, reason, cause);
    if (crew_has_workers(a->crew))
        crew_stop(a->crew, grace_ns);
    else
        on_all_gone(a, (struct generation){0, 0});
}

static void fence(void *arg) {
    struct agent *a = arg;
    log_warning("no word from the leader within the lease: the workers of this node are killed");
    if (crew_has_workers(a->crew))
        crew_kill(a->crew);
    else
        on_all_gone(a, (struct generation){0, 0});
}

static void lease_end(void *arg, uint64_t end_ns) {
    struct agent *a = arg;
    guardian_lease(a->config.link, end_ns);
}

static void on_status(void *arg, const struct rdzv_status *status) {
    agent_show_status(arg, status);
}

static void waiting_for_leader(void *arg, const char *text) { agent_show_waiting(arg, text); }

static void on_end(void *arg, const struct member_end *end) {
    struct agent *a = arg;
    a->end = *end;
    a->ended = true;
    /* With the leader gone, or this node out, nobody else's end is to be waited for. */
    if (end->kind == MEMBER_END_LEFT || end->kind == MEMBER_END_LEADER_LOST)
        a->server_done = true;
    quit_if_over(a);
}

/* ---- leading ---- */

static void store_line(void *arg, const char *line) {
    (void)arg;
    log_warning("%s", line);
}

static int store_open(void *arg, struct generation g, const struct addr *bind, uint16_t *ret_port,
                      struct err *err) {
    struct agent *a = arg;
    struct store_server_config config = {.listen_at = bind,
                                         .n_listen_at = 1,
                                         .limits = store_limits_of_machine(),
                                         .log = store_line};
    struct store_server *store;
    int r = store_server_new(a->loop, &config, &store, err);
    if (r < 0)
        return r;
    struct addr at;
    r = store_server_addr(store, 0, &at);
    if (r < 0) {
        store_server_close(store);
        return err_set(err, r, "the workers' store has no address: %s", strerror(-r));
    }
    idmap_put(&a->stores, (uint64_t)g.epoch << 32 | g.counter, store);
    *ret_port = addr_port(&at);
    return 0;
}

static void store_close(void *arg, struct generation g) {
    struct agent *a = arg;
    uint64_t id = (uint64_t)g.epoch << 32 | g.counter;
    struct store_server *store = idmap_get(&a->stores, id);
    if (store == NULL)
        return;
    idmap_remove(&a->stores, id);
    store_server_close(store);
}

static void incident(void *arg, const char *line) {
    (void)arg;
    log_notice("%s", line);
}

static void done(void *arg, enum outcome outcome) {
    struct agent *a = arg;
    (void)outcome;
    a->server_done = true;
    quit_if_over(a);
}

static void group_config_from(const struct agent *a, struct group_config *c) {
    const struct job_spec *spec = a->config.spec;
    group_config_default(c);
    c->leader_incarnation = a->incarnation;
    c->min_nodes = spec->min_nodes;
    c->max_nodes = spec->max_nodes;
    c->max_restarts = spec->max_restarts;
    c->static_ranks = spec->backend == JOB_BACKEND_STATIC;
    c->last_call_ns = spec->last_call_ns;
    c->regroup_wait_ns = spec->regroup_wait_ns;
    c->join_timeout_ns = spec->join_timeout_ns;
    c->close_timeout_ns = spec->close_timeout_ns;
    c->lease_ns = spec->lease_ns;
    c->margin_ns = MAX2(NS_PER_S, spec->lease_ns / 50);
    c->log_nonce = random_u64();
}

/* An address, or a name that this machine itself has. Others would have to be looked up. */
static bool find_local_addr(const char *text, struct addr *ret) {
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

static int lead(struct agent *a, int endpoint_fd, struct addr *ret_own) {
    struct group_config group;
    group_config_from(a, &group);
    struct rdzv_server_config config = {
        .listener_port = a->node_port,
        .heartbeat_ns = a->config.spec->heartbeat_ns,
        .ops = {.store_open = store_open,
                .store_close = store_close,
                .incident = incident,
                .done = done},
        .arg = a,
    };
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", a->config.spec->run_id);
    if (a->config.spec->local_addr != NULL) {
        config.has_local_addr = find_local_addr(a->config.spec->local_addr, &config.local_addr);
        if (!config.has_local_addr)
            log_warning("--local-addr %s is no address of this machine; another is chosen",
                        a->config.spec->local_addr);
    }
    int r = endpoint_own_addr(endpoint_fd, ret_own);
    if (r < 0) {
        (void)close(endpoint_fd);
        return r;
    }
    r = rdzv_server_new(a->loop, &group, &config, &a->server);
    if (r < 0) {
        (void)close(endpoint_fd);
        return r;
    }
    rdzv_listener_serve(a->listener, a->server);
    return rdzv_listener_add(a->listener, endpoint_fd);
}

/* ---- joining ---- */

static int join(struct agent *a, const struct addr *own) {
    const struct job_spec *spec = a->config.spec;
    struct member_config member;
    member_config_default(&member);
    member.incarnation = a->incarnation;
    member.heartbeat_ns = spec->heartbeat_ns;
    member.leader_timeout_ns = spec->leader_timeout_ns;
    member.join_timeout_ns = spec->join_timeout_ns;
    struct rdzv_client_config config = {
        .info = {.incarnation = a->incarnation,
                 .listener_port = a->node_port,
                 .nproc = spec->nproc,
                 .node_rank = spec->node_rank,
                 .pid = getpid()},
        .min_nodes = spec->min_nodes,
        .max_nodes = spec->max_nodes,
        .port = spec->endpoint_port,
        .has_addr = own != NULL,
        .ops = {prepare, start, stop, fence, lease_end, on_status, waiting_for_leader, on_end},
        .arg = a,
    };
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", spec->run_id);
    (void)snprintf(config.info.host, sizeof config.info.host, "%s", a->host);
    (void)snprintf(config.info.role, sizeof config.info.role, "%s", spec->role);
    if (own != NULL)
        config.addr = *own;
    else
        (void)snprintf(config.host, sizeof config.host, "%s", spec->endpoint_host);
    return rdzv_client_new(a->loop, &member, &config, &a->client);
}

static void begin_with(struct agent *a, const struct addr *own) {
    int r = join(a, own);
    if (r < 0) {
        char text[256];
        (void)snprintf(text, sizeof text, "can't begin to join: %s", strerror(-r));
        give_up(a, text);
    }
}

/* This agent leads if it can have the endpoint's socket. */
static void begin(struct agent *a, bool host, bool only_guessed) {
    const struct job_spec *spec = a->config.spec;
    struct addr own;
    int fd, r;
    struct err err = {0};
    if (!host) {
        begin_with(a, NULL);
        return;
    }
    const char *name = spec->endpoint_host == NULL ? "127.0.0.1" : spec->endpoint_host;
    r = endpoint_listen(name, spec->endpoint_port, &fd, &err);
    if (r == -EADDRINUSE && only_guessed) {
        begin_with(a, NULL); /* another agent of this machine leads */
        return;
    }
    if (r < 0) {
        give_up(a, err.text);
        return;
    }
    r = lead(a, fd, &own);
    if (r < 0) {
        char text[256];
        (void)snprintf(text, sizeof text, "can't lead the job at %s: %s", name, strerror(-r));
        give_up(a, text);
        return;
    }
    begin_with(a, &own);
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct agent *a = arg;
    a->resolve = NULL;
    if (code < 0)
        log_info("%s", text);
    const struct job_spec *spec = a->config.spec;
    bool host = code == 0 && endpoint_is_here(spec->is_host, spec->endpoint_host, addrs, n);
    begin(a, host, true);
}

static void find_place(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    if (spec->endpoint_host == NULL || spec->is_host >= 0) {
        begin(a, spec->endpoint_host == NULL || spec->is_host == 1, false);
        return;
    }
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    int r = resolve_now(spec->endpoint_host, spec->endpoint_port, addrs, &n);
    if (r == 0)
        begin(a, endpoint_is_here(-1, spec->endpoint_host, addrs, n), true);
    else if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(a->loop, spec->endpoint_host, spec->endpoint_port, RESOLVE_TIMEOUT_NS,
                          on_resolved, a, &a->resolve);
    if (r < 0) {
        char text[512];
        (void)snprintf(text, sizeof text, "can't look up the endpoint's host %.200s: %s",
                       spec->endpoint_host, strerror(-r));
        give_up(a, text);
    }
}

static void on_begin(void *arg) { find_place(arg); }

/* ---- signals ---- */

static void stop_for_signal(struct agent *a) {
    char name[WORKER_SIGNAL_TEXT_MAX], reason[RDZV_REASON_MAX];
    worker_signal_text(a->signo, name);
    uint32_t alive = crew_workers_alive(a->crew);
    if (alive > 0)
        log_notice("got %s: stopping %u worker%s (up to %.0f s)", name, alive,
                   alive == 1 ? "" : "s",
                   (double)a->config.spec->shutdown_timeout_ns / (double)NS_PER_S);
    else
        log_notice("got %s: leaving", name);
    (void)snprintf(reason, sizeof reason, "node %s was told to stop by %s", a->host, name);
    if (a->server != NULL)
        rdzv_server_stop_job(a->server, reason);
    else if (a->client != NULL)
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_LEAVE,
                                                            .reason = reason,
                                                            .grace_ns = UINT64_MAX});
    if (a->client == NULL) { /* not even joined */
        a->ended = a->server_done = true;
        quit_if_over(a);
    }
}

static void on_signal(void *arg, int signo) {
    struct agent *a = arg;
    if (a->signo == 0) {
        a->signo = signo;
        stop_for_signal(a);
        return;
    }
    /* Slurm and systemd repeat SIGTERM without meaning more; a person's second ^C does. */
    if (signo != SIGINT)
        return;
    if (a->interrupts++ == 0)
        log_notice("got SIGINT again: killing the workers");
    a->ended = a->server_done = true;
    if (crew_has_workers(a->crew))
        crew_kill(a->crew);
    quit_if_over(a);
}

static int watch_signals(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    for (uint32_t i = 0; i < spec->n_signals; i++) {
        int r = loop_signal_new(a->loop, spec->signals[i], on_signal, a, &a->signals[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the whole ---- */

static int set_up(struct agent *a) {
    (void)signal(SIGPIPE, SIG_IGN); /* a closed terminal or peer is an errno */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && store_raise_descriptors() > files.rlim_cur)
        a->nofile_soft = files.rlim_cur; /* the workers keep the user's */
    int r = loop_new(&a->loop);
    if (r < 0)
        return r;
    r = child_reaper_new(a->loop, &a->reaper);
    if (r < 0)
        return r;
    r = agent_show_begin(a);
    if (r < 0)
        return r;
    struct addr node;
    r = addr_of_socket(a->config.node_fd, &node);
    if (r < 0)
        return r;
    a->node_port = addr_port(&node);
    struct crew_config crew = {
        .spec = a->config.spec,
        .envp = a->config.envp,
        .python = a->config.python,
        .host = a->host,
        .incarnation = a->incarnation,
        .link = a->config.link,
        .nofile_soft = a->nofile_soft,
        .reaper = a->reaper,
        .console = a->console,
    };
    r = crew_new(a->loop, &crew, &crew_ops, a, &a->crew);
    if (r < 0)
        return r;
    struct rdzv_listener_config listener = {.incarnation = a->incarnation};
    (void)snprintf(listener.run_id, sizeof listener.run_id, "%s", a->config.spec->run_id);
    r = rdzv_listener_new(a->loop, &listener, &a->listener);
    if (r < 0)
        return r;
    r = rdzv_listener_add(a->listener, a->config.node_fd);
    a->config.node_fd = -1;
    if (r < 0)
        return r;
    r = watch_signals(a);
    if (r < 0)
        return r;
    loop_defer(a->loop, on_begin, a);
    return 0;
}

static void tear_down(struct agent *a) {
    resolve_free(a->resolve);
    rdzv_client_free(a->client);
    if (a->listener != NULL)
        rdzv_listener_serve(a->listener, NULL);
    rdzv_server_free(a->server);
    rdzv_listener_free(a->listener);
    crew_free(a->crew);
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++)
        loop_signal_free(a->signals[i]);
    agent_show_end(a, clock_now_ns() + CONSOLE_PATIENCE_NS);
    idmap_fini(&a->stores);
    child_reaper_free(a->reaper);
    loop_free(a->loop);
    if (a->config.node_fd >= 0)
        (void)close(a->config.node_fd);
}

static int exit_status(const struct agent *a) {
    if (a->signo != 0)
        return 128 + a->signo;
    return !a->failed_early && a->end.kind == MEMBER_END_SUCCESS ? AGENT_EXIT_SUCCESS
                                                                  : AGENT_EXIT_FAILED;
}

int agent_run(const struct agent_config *config) {
    struct agent a = {.config = *config};
    do
        a.incarnation = random_u64();
    while (a.incarnation == 0);
    if (gethostname(a.host, sizeof a.host - 1) < 0 || a.host[0] == '\0')
        (void)snprintf(a.host, sizeof a.host, "localhost");
    int r = set_up(&a);
    if (r == 0)
        r = loop_run(a.loop);
    if (r < 0) {
        log_error("the agent can't go on: %s", strerror(-r));
        a.failed_early = true;
    }
    if (!a.failed_early)
        agent_show_outcome(&a);
    int status = exit_status(&a);
    tear_down(&a);
    return status;
}
