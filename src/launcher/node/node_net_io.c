#include "launcher/node/node_net_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "topology/discover/discovery_io.h"

#define STACK_ENOUGH ((rlim_t)8 << 20)
#define NOFILE_ENOUGH 131072

/* Below the ports that Linux chooses by itself (32768 and up, ip_local_port_range). */
#define COMM_PORT_FIRST 10000
#define COMM_PORTS 20000

/* A port that is free on all addresses: `wanted`, or 0: any. Returns 0 if it is not free. */
static uint16_t free_port(uint16_t wanted) {
    static const char *const any[] = {"::", "0.0.0.0"}; /* the second if there is no IPv6 */
    uint16_t port = 0;
    for (size_t i = 0; i < ARRAY_SIZE(any) && port == 0; i++) {
        struct addr at;
        int fd = -1;
        if (addr_from_literal(any[i], wanted, &at) == 0 && listen_socket(&at, 1, &fd, NULL) == 0 &&
            addr_of_socket(fd, &at) == 0)
            port = addr_port(&at);
        if (fd >= 0)
            (void)close(fd);
    }
    return port;
}

/* All nodes choose the same port without communication, and another one in the next generation. */
static uint16_t comm_port(const struct node_setup_place *p) {
    uint64_t h = p->form->log_nonce;
    h ^= generation_to_u64(p->generation) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 29;
    return (uint16_t)(p->spec->port_low > 0
                          ? p->spec->port_low + h % (p->spec->port_high - p->spec->port_low + 1u)
                          : COMM_PORT_FIRST + h % COMM_PORTS);
}

/* Rank 0 serves at NCCL_COMM_ID, and the one address that all nodes know is the store's. */
static int find_comm_id(const struct node_setup_place *p, struct node_net *n, struct err *err) {
    const char *host = p->form->store_host;
    uint16_t port = comm_port(p);
    if (p->form->node_rank == 0) {
        struct addr at;
        if (addr_from_literal(host, port, &at) < 0 || !addr_is_local(&at))
            return err_set(err, -EINVAL,
                           "--nccl-comm-id: rank 0 must run on the host that leads (%s); give the "
                           "agent there --node-rank=0",
                           host);
        if (free_port(port) == 0)
            return err_set(err, -EADDRINUSE, "--nccl-comm-id: port %u is in use on this host",
                           port);
    }
    (void)snprintf(n->comm_id, sizeof n->comm_id, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                   host, port);
    return 0;
}

/* A leader on loopback: all nodes are on this host, and there is no interface to choose. */
static bool is_on_this_host(const struct form *f) {
    struct addr a;
    return addr_from_literal(f->store_host, 0, &a) == 0 && addr_is_loopback(&a);
}

bool node_net_is_far(const struct node_setup_place *p) {
    return p->spec->nccl_env > NCCL_ENV_OFF && p->form->n_nodes > 1 && !is_on_this_host(p->form);
}

static bool discover_has_netifs(const struct node_discovery *l) {
    return l != NULL && (node_discovery_what(l) & DISCOVER_NETIFS) != 0;
}

int node_net_discover(struct loop *loop, const struct node_setup_place *p,
                      struct node_discovery **ret, struct err *err) {
    struct node_discovery_config config = {
        .what = discover_has_netifs(p->discovery) ? 0 : DISCOVER_NETIFS,
        .facts = p->discovery == NULL || node_discovery_facts(p->discovery) == NULL,
        .route_to = p->form->store_host,
        .envp = p->envp,
        .set = p->spec->env,
        .python = p->python,
    };
    *ret = NULL;
    return node_net_is_far(p) ? node_discovery_new(loop, &config, ret, err) : 0;
}

/* Takes the interfaces from the discovery of the node, or from this one. */
static void find_netif(const struct node_setup_place *p, struct node_net *n) {
    static const struct topology none;
    const struct topology *t = NULL;
    const struct route_found *route = NULL;
    const char *leader = p->form->store_host, *why = "no process could be started to ask";
    struct netif_input in = {.n_nodes = p->form->n_nodes, .leader_addr = leader};
    if (discover_has_netifs(p->discovery))
        t = node_discovery_topology(p->discovery);
    else if (p->way != NULL)
        t = node_discovery_netifs(p->way);
    if (p->way != NULL && node_discovery_failure(p->way) != NULL)
        why = node_discovery_failure(p->way);
    if (p->way != NULL)
        route = node_discovery_route(p->way, &why);
    if (route == NULL)
        log_info("which interface leads to %s is not known: %s", leader, why);
    in.route_netif = route != NULL ? route->netif : "";
    in.route_source = route != NULL ? route->source : "";
    netif_choose(t != NULL ? t : &none, &in, &n->netif);
}

int node_net_read(const struct node_setup_place *p, struct node_net *ret, struct err *err) {
    *ret = (struct node_net){0};
    if (p->spec->nccl_comm_id) {
        int r = find_comm_id(p, ret, err);
        if (r < 0)
            return r;
    }
    if (p->spec->nccl_env <= NCCL_ENV_OFF)
        return 0;
    if (p->any_gpu)
        ret->ras_port = free_port(0);
    if (!node_net_is_far(p))
        return 0;
    if (p->netif != NULL)
        ret->netif = *p->netif;
    else
        find_netif(p, ret);
    ret->has_netif = true;
    return 0;
}

static void raise_limit(int which, rlim_t enough, const char *name) {
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)which, &now) < 0 || now.rlim_cur >= enough)
        return;
    /* Root and processes with CAP_SYS_RESOURCE may exceed the hard limit. */
    struct rlimit more = {enough, MAX2(enough, now.rlim_max)};
    if (setrlimit((__rlimit_resource_t)which, &more) == 0)
        return;
    rlim_t before = now.rlim_cur;
    now.rlim_cur = MIN2(enough, now.rlim_max);
    if (now.rlim_cur != before && setrlimit((__rlimit_resource_t)which, &now) < 0)
        log_info("the limit of %s can't be raised: %s", name, strerror(errno));
}

void node_raise_limits(void) {
    raise_limit(RLIMIT_MEMLOCK, RLIM_INFINITY, "locked memory");
    raise_limit(RLIMIT_NOFILE, NOFILE_ENOUGH, "open files");
    raise_limit(RLIMIT_STACK, STACK_ENOUGH, "the stack");
}
