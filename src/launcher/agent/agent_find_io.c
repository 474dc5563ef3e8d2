#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/hosts_file.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/agent/job_arbiter_io.h"
#include "launcher/job/program.h"
#include "launcher/node/node_discovery_io.h"
#include "launcher/starter/starter_link_io.h"
#include "rendezvous/protocol/endpoint_io.h"
#include "topology/discover/discovery_io.h"

#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
#define OWN_ADDRS_MAX 32
static_assert(JOB_ENDPOINT_PORTS_MAX == RDZV_ENDPOINT_PORTS_MAX, "all ports of the endpoint");

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

/* Nodes of one NVLink domain (one rack's NVSwitches: cluster and clique) are placed together, then
 * those of one switch. */
static void fill_place(const struct agent *a, struct node_info *info) {
    const struct topology *t = a->discovery != NULL ? node_discovery_topology(a->discovery) : NULL;
    const char *place = a->config.spec->topology != NULL ? a->config.spec->topology : "";
    const struct topo_gpu *g = t != NULL && t->n_gpus > 0 ? &t->gpus[0] : NULL;
    if (g != NULL && g->fabric_uuid[0] != '\0')
        (void)snprintf(info->topology, sizeof info->topology, "nvl-%.39s-%u.%.70s", g->fabric_uuid,
                       g->fabric_clique, place[0] != '\0' ? place : a->host);
    else
        (void)snprintf(info->topology, sizeof info->topology, "%s", place);
}

/* own: the endpoint is this agent's, and it reaches it at this address; else NULL. */
static int join(struct agent *a, const struct addr *own) {
    const struct job_spec *spec = a->config.spec;
    struct member_config member;
    member_config_from(a, &member);
    struct rdzv_client_config config = {
        .info = {.incarnation = a->incarnation,
                 .listener_port = a->node_port,
                 .nproc = spec->nproc,
                 .node_rank = spec->node_rank,
                 .pid = getpid()},
        .port = spec->endpoint_port,
        .has_addr = own != NULL,
        .arbiter = a->arbiter,
        .auth = a->auth,
        .own_listener = a->own_listener,
        .gate = a->gate,
        .ops = agent_client_ops,
        .arg = a,
    };
    if (own == NULL && agent_has_ports(a)) {
        config.n_ports = spec->n_endpoint_ports;
        memcpy(config.ports, spec->endpoint_ports, sizeof config.ports);
    }
    if (spec->workers_store && own != NULL && spec->node_rank < 0)
        config.info.node_rank = 0; /* rank 0 serves at the leader's address */
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", spec->run_id);
    (void)snprintf(config.info.host, sizeof config.info.host, "%s", a->host);
    (void)snprintf(config.info.role, sizeof config.info.role, "%s", spec->role);
    fill_place(a, &config.info);
    program_of(spec, &config.program);
    if (own != NULL)
        config.addr = *own;
    else if (spec->endpoint_host != NULL)
        (void)snprintf(config.host, sizeof config.host, "%s", spec->endpoint_host);
    return rdzv_client_new(a->loop, &member, &config, &a->client);
}

static void begin_now(struct agent *a, const struct addr *own) {
    int r = join(a, own);
    if (r < 0) {
        char text[256];
        (void)snprintf(text, sizeof text, "can't begin to join: %s", strerror(-r));
        agent_give_up(a, LIFE_EVENT_FAILURE, text);
    }
}

static void on_discovered(void *arg) {
    struct agent *a = arg;
    if (a->life.state < LIFE_LINGERING)
        begin_now(a, a->own_endpoint.len > 0 ? &a->own_endpoint : NULL);
}

/* The order by topology needs the NVLink domain, which only NVML reports. */
static void begin_with(struct agent *a, const struct addr *own) {
    bool waits = a->config.spec->rdzv.rank_order == RANK_ORDER_TOPOLOGY && a->discovery != NULL &&
                 (node_discovery_what(a->discovery) & DISCOVER_NVML) != 0;
    if (own != NULL)
        a->own_endpoint = *own;
    if (waits && !node_discovery_ended(a->discovery))
        node_discovery_wait(a->discovery, on_discovered, a);
    else
        begin_now(a, own);
}

/* ---- a fixed endpoint ---- */

/* Another process listens at the endpoint, which is on this machine. True: it was fatal. */
static bool give_up_port(struct agent *a, const char *name, bool only_guessed) {
    const struct job_spec *spec = a->config.spec;
    struct addr at;
    struct err err = {0};
    _cleanup_(freep) char *setting =
        spec->endpoint_is_master ? xasprintf("--master-port=%u", spec->endpoint_port)
                                 : xasprintf("--rdzv-endpoint=%s:%u", name, spec->endpoint_port);
    endpoint_bind_addr(name, spec->endpoint_port, &at);
    bool stranger = leading_port_taken(setting, &at, &err);
    bool by_order = !only_guessed && spec->is_host == 1 && !job_backend(spec)->ranks_are_chosen;
    if (!stranger && by_order)
        agent_notice_joins(a);
    if (!stranger && (by_order || only_guessed))
        return false; /* another agent of this machine leads; it refuses those of other runs */
    agent_give_up(a, stranger ? LIFE_EVENT_USAGE : LIFE_EVENT_FAILURE, err.text);
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
    agent_give_up(a, r == -EADDRINUSE ? LIFE_EVENT_USAGE : LIFE_EVENT_FAILURE, err.text);
    return false;
}

/* Whether this agent is the one that listens: 0; -EADDRINUSE: another agent of this machine is;
 * -ECANCELED: it can't, and has given up. */
static int listen_there(struct agent *a, bool only_guessed, int *ret_fd) {
    struct err err = {0};
    *ret_fd = starter_take_listener(a->config.envp);
    if (*ret_fd >= 0)
        return 0;
    if (agent_has_ports(a))
        return agent_listen_at_ports(a, endpoint_name(a), only_guessed, ret_fd);
    int r = endpoint_listen(endpoint_name(a), a->config.spec->endpoint_port, ret_fd, &err);
    if (r == -EADDRINUSE && !give_up_port(a, endpoint_name(a), only_guessed))
        return r;
    if (r < 0 && r != -EADDRINUSE)
        agent_give_up(a, LIFE_EVENT_FAILURE, err.text);
    return r < 0 ? -ECANCELED : 0;
}

/* This agent leads if it can bind the endpoint's socket. */
static void begin(struct agent *a, bool host, bool only_guessed) {
    const struct job_spec *spec = a->config.spec;
    struct addr own;
    int fd;
    if (!host) {
        begin_with(a, NULL);
        return;
    }
    int r = listen_there(a, only_guessed, &fd);
    if (r == -EADDRINUSE) {
        a->may_lead_later = !spec->workers_store;
        begin_with(a, NULL);
    } else if (r == 0 && lead_at(a, fd, &own)) {
        begin_with(a, &own);
    }
}

/* Stores the address by which other nodes know the endpoint, if it is on this machine. */
static void keep_endpoint(struct agent *a, const struct addr *addrs, size_t n) {
    for (size_t i = 0; i < n && a->endpoint.len == 0; i++)
        if (!addr_is_loopback(&addrs[i]) && !addr_is_wildcard(&addrs[i]) &&
            addr_is_local(&addrs[i]))
            a->endpoint = addrs[i];
}

/* A name that was not known at the start can turn out to be that of another machine. */
void agent_try_endpoint(struct agent *a, const struct addr *at) {
    const char *host = endpoint_name(a);
    struct addr own;
    int fd, r;
    if (!a->may_lead_later || a->life.state >= LIFE_LINGERING || agent_leads(a) ||
        !addr_is_local(at))
        return;
    r = agent_has_ports(a) ? agent_try_ports(a, host, &fd)
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
        char all[512];
        (void)snprintf(all, sizeof all,
                       "%.300s; the job's only node leads there: name this machine, or leave the "
                       "endpoint out",
                       text);
        agent_give_up(a, LIFE_EVENT_USAGE, all);
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
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n = 0;
    if (spec->endpoint_host == NULL || spec->is_host >= 0) {
        if (spec->endpoint_host != NULL &&
            resolve_now(spec->endpoint_host, spec->endpoint_port, addrs, &n) == 0)
            keep_endpoint(a, addrs, n);
        begin(a, spec->endpoint_host == NULL || spec->is_host == 1, false);
        return;
    }
    int r = resolve_now(spec->endpoint_host, spec->endpoint_port, addrs, &n);
    if (r == RESOLVE_E_LOOKUP &&
        hosts_file_find("/etc", spec->endpoint_host, spec->endpoint_port, addrs, &n))
        r = 0;
    if (r == 0)
        keep_endpoint(a, addrs, n);
    if (r == 0)
        begin(a, endpoint_is_here(-1, spec->endpoint_host, addrs, n), true);
    else if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(a->loop, spec->endpoint_host, spec->endpoint_port, RESOLVE_TIMEOUT_NS,
                          on_resolved, a, &a->resolve);
    if (r < 0) {
        char text[512];
        (void)snprintf(text, sizeof text, "can't look up the endpoint's host %.200s: %s",
                       spec->endpoint_host, strerror(-r));
        agent_give_up(a, LIFE_EVENT_FAILURE, text);
    }
}

/* ---- an arbiter ---- */

static void add_own_addr(struct rdzv_peer *self, const struct addr *addr) {
    char text[ADDR_TEXT_MAX];
    size_t len = strlen(self->addr);
    addr_host_text(addr, text);
    if (len + 1 + strlen(text) < sizeof self->addr)
        (void)snprintf(self->addr + len, sizeof self->addr - len, "%s%s", len > 0 ? "," : "", text);
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
    for (size_t i = 0; i < n; i++)
        add_own_addr(&a->self, &addrs[i]);
    if (n == 0)
        (void)snprintf(a->self.addr, sizeof a->self.addr, "127.0.0.1");
}

/* This node can reach the endpoint over loopback, but others can't. */
bool agent_leader_text(const struct agent *a, const struct addr *leader, char out[ADDR_TEXT_MAX]) {
    const struct job_spec *spec = a->config.spec;
    struct addr at = *leader, own;
    char first[RDZV_ADDRS_MAX];
    if (addr_is_loopback(&at) && spec->local_addr != NULL &&
        leading_local_addr(spec->local_addr, &own))
        at = own;
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(a->self.addr, ","), a->self.addr);
    if (addr_is_loopback(&at) && a->arbiter != NULL && addr_from_literal(first, 0, &own) == 0)
        at = own;
    if (addr_is_loopback(&at) && a->endpoint.len > 0)
        at = a->endpoint;
    addr_host_text(&at, out);
    return !addr_is_loopback(&at) || a->config.spec->check_only;
}

void agent_find_place(struct agent *a) {
    struct err err = {0};
    if (!job_backend(a->config.spec)->any_node_leads) {
        find_endpoint(a);
        return;
    }
    struct job_arbiter_config config = {.spec = a->config.spec};
    if (job_arbiter_new(a->loop, &config, &a->arbiter, &err) < 0) {
        agent_give_up(a, LIFE_EVENT_FAILURE, err.text);
        return;
    }
    find_own_addrs(a);
    begin_with(a, NULL);
}
