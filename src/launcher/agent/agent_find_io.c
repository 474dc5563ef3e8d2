/* How this agent finds its job: the endpoint, which it may lead at, or the arbiter. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/port_owner.h"
#include "io/net/resolver.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/node/node_discovery_io.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"
#include "rendezvous/protocol/endpoint_io.h"
#include "topology/discover/nvml/nvml_io.h"

/* ---- an endpoint of several ports ---- */

/* The leader takes the first port that is free. It holds a name as long as it lives, and only the
 * holder tries the ports, so that no other agent of this machine leads the same run at another. */
static bool has_ports(const struct agent *a) { return a->config.spec->n_endpoint_ports > 1; }

/* The same in all agents of the run that can lead on this machine, however they write its name. */
static void name_of(const struct agent *a, char ret[SOLE_NAME_MAX]) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf ports = {0};
    port_list_text(spec->endpoint_ports, spec->n_endpoint_ports, &ports);
    uint64_t first = hash_text(hash_text(HASH_BEGIN, spec->run_id), strbuf_text(&ports));
    uint64_t second = hash_text(hash_text(first, strbuf_text(&ports)), spec->run_id);
    (void)snprintf(ret, SOLE_NAME_MAX, "muster-leads-%016" PRIx64 "%016" PRIx64, first, second);
}

/* 0; -EADDRINUSE: the name is held; or another negative errno. *ret_stranger: a line for the user
 * if its holder is a user who may not talk to this job, so no agent of it can lead here. */
static _must_use_ int take_name(struct agent *a, char **ret_stranger) {
    const struct job_spec *spec = a->config.spec;
    char name[SOLE_NAME_MAX];
    uid_t uid;
    name_of(a, name);
    int r = sole_name_take(name, &a->lead_name);
    if (r != -EADDRINUSE || a->gate == NULL || sole_name_holder(name, &uid) < 0 || uid == 0 ||
        uid == geteuid())
        return r;
    *ret_stranger = xasprintf(
        "no agent of this machine can lead the run '%s': uid %u holds the name of a unix socket "
        "that its leader needs, @%s, for a run with the same id and ports, or to keep this one "
        "from starting; give all nodes another --rdzv-id, or one port: --rdzv-endpoint=HOST:PORT",
        spec->run_id, (unsigned)uid, name);
    return r;
}

/* "29400: nginx, pid 7": who has the port. */
static void add_owner(const char *host, uint16_t port, struct strbuf *out) {
    struct addr at;
    endpoint_bind_addr(host, port, &at);
    struct port_owner owner = port_owner_find(&at);
    strbuf_printf(out, "%s%u: ", out->len > 0 ? "; " : "", port);
    if (owner.pid > 0)
        strbuf_printf(out, "%s, pid %d", owner.name, (int)owner.pid);
    else
        strbuf_add(out, owner.listens ? "a process of another user" : "another process");
}

/* The first port that is free. -EADDRINUSE: none is. */
static int listen_at_first(const struct agent *a, const char *host, int *ret_fd, struct err *err) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf taken = {0};
    int r = -EADDRINUSE;
    for (unsigned i = 0; i < spec->n_endpoint_ports && r == -EADDRINUSE; i++) {
        uint16_t port = spec->endpoint_ports[i];
        r = endpoint_listen(host, port, ret_fd, err);
        if (r == -EADDRINUSE && log_enabled(LOG_LEVEL_INFO))
            add_owner(host, port, &taken);
        if (r == 0)
            log_info("run '%s' is led at %s, port %u%s%s%s", spec->run_id, host, port,
                     taken.len > 0 ? ", as ports are taken (" : "", strbuf_text(&taken),
                     taken.len > 0 ? ")" : "");
    }
    return r;
}

static void give_up_ports(struct agent *a, const char *host) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf owners = {0}, ports = {0};
    for (unsigned i = 0; i < spec->n_endpoint_ports; i++)
        add_owner(host, spec->endpoint_ports[i], &owners);
    port_list_text(spec->endpoint_ports, spec->n_endpoint_ports, &ports);
    agent_give_up(a, LIFE_EVENT_USAGE,
                  "run '%s' can't be led at %s, ports %s: all are taken (%s); stop one of these "
                  "programs, or give all nodes other ports: --rdzv-endpoint=HOST:LOW-HIGH",
                  spec->run_id, host, strbuf_text(&ports), strbuf_text(&owners));
}

static void notice_joins(const struct agent *a) {
    log_notice("--rdzv-conf=is_host=1: another agent of this machine already leads at the "
               "endpoint of the run '%s'; joining it",
               a->config.spec->run_id);
}

/* Listens at the first port of the endpoint that is free. 0; -EADDRINUSE: another agent of this
 * machine leads the run, or is about to; -ECANCELED: it can't, and has given up. */
static int listen_at_ports(struct agent *a, const char *host, bool only_guessed, int *ret_fd) {
    _cleanup_(freep) char *stranger = NULL;
    struct err err = {0};
    int r = take_name(a, &stranger);
    if (stranger != NULL) {
        agent_give_up(a, LIFE_EVENT_USAGE, "%s", stranger);
        return -ECANCELED;
    }
    if (r == -EADDRINUSE) {
        /* the holder belongs to this run, so both lead to the same group */
        if (!only_guessed)
            notice_joins(a);
        return r;
    }
    if (r < 0) {
        agent_give_up(a, LIFE_EVENT_FAILURE,
                      "can't take a unix socket's name for the leader of the run '%.255s': %s; "
                      "give all nodes one port: --rdzv-endpoint=HOST:PORT",
                      a->config.spec->run_id, strerror(-r));
        return -ECANCELED;
    }
    r = listen_at_first(a, host, ret_fd, &err);
    if (r == 0)
        return 0;
    if (r == -EADDRINUSE)
        give_up_ports(a, host);
    else
        agent_give_up(a, LIFE_EVENT_FAILURE, "%s", err.text);
    return -ECANCELED;
}

/* The same later, when no agent leads. 0, or a negative errno: not now. */
static int try_ports(struct agent *a, const char *host, int *ret_fd) {
    _cleanup_(freep) char *stranger = NULL;
    int r = take_name(a, &stranger);
    if (stranger != NULL && (a->logged & AGENT_LOGGED_STRANGER) == 0)
        log_warning("%s", stranger);
    a->logged |= stranger != NULL ? AGENT_LOGGED_STRANGER : 0;
    if (r == 0)
        r = listen_at_first(a, host, ret_fd, NULL);
    if (r < 0) /* all taken: perhaps by the last leader, which is at its end */
        file_close(&a->lead_name);
    return r;
}

#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
#define OWN_ADDRS_MAX 32
static_assert(JOB_ENDPOINT_PORTS_MAX == RDZV_ENDPOINT_PORTS_MAX, "all ports of the endpoint");

/* ---- the domain of this node ---- */

/* NVML is asked again so often, and at most so many times, while GPUs join their fabric. */
#define FABRIC_ASK_NS (5 * NS_PER_S)
#define FABRIC_ASKS_MAX 120
static_assert(TOPO_DOMAIN_MAX == RDZV_DOMAIN_MAX, "each domain of NVML has a name");

bool agent_may_have_domain(const struct agent *a) {
    const struct rdzv_settings *s = &a->config.spec->rdzv;
    return s->unit_of == UNIT_OF_DOMAIN && s->max_nodes > 1 && nvml_may_answer();
}

/* NVML's domain, with its health in *fabric, else Slurm's block. "": none, or GPUs of two. */
static void find_domain(const struct agent *a, const struct topology *t, char ret[RDZV_DOMAIN_MAX],
                        struct strbuf *fabric) {
    char split[TOPO_TEXT_MAX];
    ret[0] = '\0';
    if (t != NULL && topology_domain(t, ret))
        topology_fabric_text(t, fabric);
    else if (a->config.spec->block != NULL && (t == NULL || !topology_domain_split(t, split)))
        utf8_copy_line(ret, RDZV_DOMAIN_MAX, a->config.spec->block);
}

/* from: has ended; NULL: NVML is not asked. */
static void report_domain(struct agent *a, const struct node_discovery *from) {
    const struct job_spec *spec = a->config.spec;
    const struct topology *t = node_discovery_found(from)->topology;
    _cleanup_(strbuf_fini) struct strbuf fabric = {0};
    char domain[RDZV_DOMAIN_MAX];
    bool answered = t != NULL && t->n_gpus > 0; /* else NVML failed or hung */
    if ((answered ? topology_fabric_pending(t) : a->n_fabric_asks > 0) &&
        a->n_fabric_asks < FABRIC_ASKS_MAX) {
        loop_timer_set(a->fabric_timer, clock_now_ns() + FABRIC_ASK_NS);
        return;
    }
    find_domain(a, t, domain, &fabric);
    if (domain[0] != '\0')
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_DOMAIN,
                                                            .domain = domain,
                                                            .fabric = strbuf_text(&fabric)});
    else if (spec->rdzv.rank_order == RANK_ORDER_TOPOLOGY && spec->topology[0] == '\0' &&
             spec->rdzv.max_nodes > 1 && !agent_show_is_brief(a))
        log_warning("--rank-order=topology: this node has no NVLink domain, SLURM_TOPOLOGY_ADDR or "
                    "--topology-file; it is ordered by its host name");
}

static void on_fabric(void *arg) {
    struct agent *a = arg;
    struct node_discovery *from = TAKE_PTR(a->fabric);
    if (a->life.state < LIFE_LINGERING && a->client != NULL)
        report_domain(a, from);
    node_discovery_free(from);
}

static void on_fabric_timer(void *arg) {
    struct agent *a = arg;
    struct node_discovery_config config = {.what = DISCOVER_NVML};
    a->n_fabric_asks++;
    if (node_discovery_new(a->loop, &config, &a->fabric, NULL) == 0)
        node_discovery_wait(a->fabric, on_fabric, a);
    else
        loop_timer_set(a->fabric_timer, clock_now_ns() + FABRIC_ASK_NS);
}

/* ---- joining ---- */

static void member_config_from(const struct agent *a, struct member_config *c) {
    const struct job_spec *spec = a->config.spec;
    member_config_default(c);
    c->incarnation = a->incarnation;
    c->rdzv = spec->rdzv;
    c->has_arbiter = a->arbiter != NULL;
    c->self = a->self;
    c->seed = random_u64();
}

static int join(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    const bool is_own = a->own_endpoint.len > 0;
    struct member_config member;
    member_config_from(a, &member);
    struct rdzv_client_config config = {
        .info = {.incarnation = a->incarnation,
                 .listener_port = a->node_port,
                 .nproc = spec->nproc,
                 .node_rank = spec->node_rank,
                 .pid = getpid()},
        .port = spec->endpoint_port,
        .arbiter = a->arbiter,
        .auth = a->auth,
        .own_listener = a->own_listener,
        .gate = a->gate,
        .ops = agent_client_ops,
        .watchdog = hang_watch_message,
        .watchdog_arg = a->hang,
        .arg = a,
    };
    if (!is_own && has_ports(a)) {
        config.n_ports = spec->n_endpoint_ports;
        memcpy(config.ports, spec->endpoint_ports, sizeof config.ports);
    }
    if (spec->workers_store && is_own && spec->node_rank < 0)
        config.info.node_rank = 0; /* rank 0 serves at the leader's address */
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", spec->run_id);
    (void)snprintf(config.info.host, sizeof config.info.host, "%s", a->host);
    (void)snprintf(config.info.role, sizeof config.info.role, "%s", spec->role);
    if (spec->topology != NULL)
        (void)snprintf(config.info.topology, sizeof config.info.topology, "%s", spec->topology);
    program_of(spec, &config.program);
    if (is_own)
        config.addr = a->own_endpoint;
    else if (spec->endpoint_host != NULL)
        (void)snprintf(config.host, sizeof config.host, "%s", spec->endpoint_host);
    return rdzv_client_new(a->loop, &member, &config, &a->client);
}

void agent_begin_to_join(struct agent *a) {
    int r = join(a);
    if (r == 0) {
        a->fabric_timer = loop_timer_new(a->loop, on_fabric_timer, a);
        report_domain(a, agent_may_have_domain(a) ? a->discovery : NULL);
        agent_health_report(a);
    } else {
        agent_give_up(a, LIFE_EVENT_FAILURE, "can't begin to join: %s", strerror(-r));
    }
}

static void on_discovered(void *arg) {
    struct agent *a = arg;
    if (a->life.state < LIFE_LINGERING && !agent_health_holds_join(a))
        agent_begin_to_join(a);
}

/* The first group needs the NVLink domain, which only NVML reports. */
static void join_when_discovered(struct agent *a) {
    if (a->discovery != NULL && agent_may_have_domain(a))
        node_discovery_wait(a->discovery, on_discovered, a);
    else
        on_discovered(a);
}

/* ---- a fixed endpoint ---- */

/* Another process listens at the endpoint, which is on this machine. True: it was fatal. */
static bool give_up_port(struct agent *a, const char *name, bool only_guessed) {
    const struct job_spec *spec = a->config.spec;
    struct addr at;
    struct err err = {0};
    _cleanup_(freep) char *setting =
        spec->endpoint_from == JOB_ENDPOINT_MASTER || spec->endpoint_from == JOB_ENDPOINT_ASSUMED
            ? xasprintf("--master-port=%u", spec->endpoint_port)
            : xasprintf("--rdzv-endpoint=%s:%u", name, spec->endpoint_port);
    endpoint_bind_addr(name, spec->endpoint_port, &at);
    bool stranger = leading_port_taken(setting, &at, &err);
    bool by_order = !only_guessed && spec->is_host == 1 && !job_backend(spec)->ranks_are_chosen;
    if (!stranger && by_order)
        notice_joins(a);
    if (!stranger && (by_order || only_guessed))
        return false; /* another agent of this machine leads; it refuses those of other runs */
    agent_give_up(a, stranger ? LIFE_EVENT_USAGE : LIFE_EVENT_FAILURE, "%s", err.text);
    return true;
}

static const char *endpoint_name(const struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    return spec->endpoint_host == NULL ? "127.0.0.1" : spec->endpoint_host;
}

/* False: it can't, and gives up. */
static bool lead_at(struct agent *a, int fd, struct addr *ret_own) {
    struct err err = {0};
    bool down = addr_loopback_is_down();
    int r = down ? err_set(&err, -ENETDOWN, AGENT_NO_LOOPBACK)
                 : leading_at(a->leading, fd, ret_own, &err);
    if (down)
        (void)close(fd);
    if (r >= 0) {
        agent_leads_now(a);
        return true;
    }
    if (err.text[0] == '\0')
        (void)err_set(&err, r, "can't lead the job at %s: %s", endpoint_name(a), strerror(-r));
    agent_give_up(a, r == -EADDRINUSE ? LIFE_EVENT_USAGE : LIFE_EVENT_FAILURE, "%s", err.text);
    return false;
}

/* Returns as listen_at_ports(). */
static int listen_there(struct agent *a, bool only_guessed, int *ret_fd) {
    struct err err = {0};
    *ret_fd = starter_take_listener(a->config.envp);
    if (*ret_fd >= 0)
        return 0;
    if (has_ports(a))
        return listen_at_ports(a, endpoint_name(a), only_guessed, ret_fd);
    int r = endpoint_listen(endpoint_name(a), a->config.spec->endpoint_port, ret_fd, &err);
    if (r == -EADDRINUSE && !give_up_port(a, endpoint_name(a), only_guessed))
        return r;
    if (r < 0 && r != -EADDRINUSE)
        agent_give_up(a, LIFE_EVENT_FAILURE, "%s", err.text);
    return r < 0 ? -ECANCELED : 0;
}

static void begin(struct agent *a, bool host, bool only_guessed) {
    int fd;
    if (host) {
        int r = listen_there(a, only_guessed, &fd);
        if (r == -EADDRINUSE)
            a->may_lead_later = !a->config.spec->workers_store;
        else if (r < 0 || !lead_at(a, fd, &a->own_endpoint))
            return;
    }
    join_when_discovered(a);
}

/* Stores the address by which other nodes know the endpoint, if it is on this machine. */
static void keep_endpoint(struct agent *a, const struct addr *addrs, size_t n) {
    for (size_t i = 0; i < n && a->endpoint.len == 0; i++)
        if (!addr_is_loopback(&addrs[i]) && !addr_is_wildcard(&addrs[i]) &&
            addr_is_local(&addrs[i]))
            a->endpoint = addrs[i];
}

/* The name can turn out to be that of another machine. */
void agent_try_endpoint(void *arg, const struct addr *at) {
    struct agent *a = arg;
    const char *host = endpoint_name(a);
    struct addr own;
    int fd, r;
    if (!a->may_lead_later || a->life.state >= LIFE_LINGERING || agent_leads(a) ||
        !addr_is_local(at))
        return;
    r = has_ports(a) ? try_ports(a, host, &fd)
                     : endpoint_listen(host, a->config.spec->endpoint_port, &fd, NULL);
    if (r < 0)
        return; /* another agent of this machine was quicker */
    keep_endpoint(a, at, 1);
    a->may_lead_later = false;
    (void)lead_at(a, fd, &own); /* its client finds it there, like any other node */
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct agent *a = arg;
    const struct job_spec *spec = a->config.spec;
    a->resolve = NULL;
    if (a->life.state >= LIFE_LINGERING)
        return;
    if (code < 0 && spec->rdzv.max_nodes == 1) {
        agent_give_up(a, LIFE_EVENT_USAGE,
                      "%.300s; the job's only node leads there: name this machine, or leave the "
                      "endpoint out",
                      text);
        return;
    }
    if (code < 0)
        log_info("%s", text);
    a->may_lead_later = code < 0 && !spec->workers_store;
    keep_endpoint(a, addrs, n);
    bool host = code == 0 && endpoint_is_here(spec->is_host, spec->endpoint_host, addrs, n);
    begin(a, host, true);
}

static void find_endpoint(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    const char *name = spec->endpoint_host;
    const bool ordered = name == NULL || spec->is_host >= 0;
    struct addr addrs[RESOLVE_ADDRS_MAX] = {0};
    size_t n = 0;
    int r = name == NULL ? 0 : resolve_now(name, spec->endpoint_port, addrs, &n);
    if (r == RESOLVE_E_LOOKUP && !ordered &&
        hosts_file_find("/etc", name, spec->endpoint_port, &addrs[0])) {
        n = 1;
        r = 0;
    }
    if (r == 0)
        keep_endpoint(a, addrs, n);
    if (ordered)
        begin(a, name == NULL || spec->is_host == 1, false);
    else if (r == 0)
        begin(a, endpoint_is_here(-1, name, addrs, n), true);
    else if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(a->loop, name, spec->endpoint_port, RESOLVE_TIMEOUT_NS, on_resolved, a,
                          &a->resolve);
    if (r < 0 && !ordered)
        agent_give_up(a, LIFE_EVENT_FAILURE, "can't look up the endpoint's host %.200s: %s", name,
                      strerror(-r));
}

/* ---- an arbiter ---- */

int job_arbiter_new(struct loop *loop, const struct job_spec *spec, bool read_only,
                    uint64_t timeout_ns, struct arbiter **ret, struct err *err) {
    struct arbiter_dir_config dir = {.path = spec->arbiter_dir,
                                     .run_id = spec->run_id,
                                     .read_only = read_only,
                                     .timeout_ns = timeout_ns};
    struct arbiter_etcd_config etcd = {
        .endpoints = (const char *const *)spec->etcd_endpoints,
        .prefix = spec->etcd_prefix,
        .run_id = spec->run_id,
        .user = spec->etcd_user,
        .password = spec->etcd_password,
        .tls = spec->etcd_tls,
        .cacert = spec->etcd_cacert,
        .cert = spec->etcd_cert,
        .key = spec->etcd_key,
        .timeout_ns = timeout_ns,
    };
    switch (spec->backend) {
    case JOB_BACKEND_DIR: return arbiter_dir_new(loop, &dir, ret, err);
    case JOB_BACKEND_ETCD:
        while (spec->etcd_endpoints[etcd.n] != NULL)
            etcd.n++;
        return arbiter_etcd_new(loop, &etcd, ret, err);
    case JOB_BACKEND_STATIC:
    case JOB_BACKEND_C10D:
    case JOB_BACKEND_COUNT: break;
    }
    assert_not_reached();
}

/* The addresses that other nodes get: --local-addr, or all addresses of this machine; loopback only
 * if there are no others, for a job on this machine alone. */
static void find_own_addrs(struct agent *a) {
    const char *local = a->config.spec->local_addr;
    struct addr addrs[OWN_ADDRS_MAX];
    size_t n = 0;
    a->self = (struct rdzv_peer){.incarnation = a->incarnation, .port = a->node_port};
    if (local != NULL && leading_local_addr(local, &addrs[0])) {
        n = 1;
    } else {
        if (local != NULL)
            log_warning("--local-addr %s is not an address of this machine; the other nodes get "
                        "all that it has",
                        local);
        int r = addr_all_global(addrs, ARRAY_SIZE(addrs), &n);
        if (r < 0)
            log_warning("can't list this machine's addresses: %s", strerror(-r));
    }
    addr_to_list(addrs, n, a->self.addr, sizeof a->self.addr);
    if (n == 0)
        (void)snprintf(a->self.addr, sizeof a->self.addr, "127.0.0.1");
}

/* This node can reach the endpoint over loopback, but others can't. */
bool agent_leader_text(const struct agent *a, const struct addr *leader, char out[ADDR_TEXT_MAX]) {
    const struct job_spec *spec = a->config.spec;
    struct addr at = *leader, own;
    if (addr_is_loopback(&at) && spec->local_addr != NULL &&
        leading_local_addr(spec->local_addr, &own))
        at = own;
    if (addr_is_loopback(&at) && a->arbiter != NULL && addr_from_list(a->self.addr, 0, &own, 1) > 0)
        at = own;
    if (addr_is_loopback(&at) && a->endpoint.len > 0)
        at = a->endpoint;
    addr_host_text(&at, out);
    return !addr_is_loopback(&at) || a->config.spec->check != JOB_CHECK_OFF;
}

void agent_find_place(void *arg) {
    struct agent *a = arg;
    struct err err = {0};
    if (!job_backend(a->config.spec)->any_node_leads) {
        find_endpoint(a);
        return;
    }
    if (job_arbiter_new(a->loop, a->config.spec, false, 0, &a->arbiter, &err) < 0) {
        agent_give_up(a, LIFE_EVENT_FAILURE, "%s", err.text);
        return;
    }
    find_own_addrs(a);
    join_when_discovered(a);
}
