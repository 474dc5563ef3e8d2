#include "launcher/preflight/node_nets_io.h"

#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "launcher/preflight/ring_probe_io.h"

/* Adds the interface's address of one family: the chosen one, or its first. */
static void add_addr(struct rdzv_net *to, const struct topo_netif *n, const char *chosen, bool v6) {
    const char *addr = chosen[0] != '\0' && (strchr(chosen, ':') != NULL) == v6 ? chosen : NULL;
    for (uint32_t i = 0; i < n->n_addrs && addr == NULL; i++)
        if (n->addrs[i].ipv6 == v6 && !n->addrs[i].link_local)
            addr = n->addrs[i].addr;
    size_t len = strlen(to->addrs);
    if (addr != NULL && len + 1 + strlen(addr) < sizeof to->addrs)
        (void)snprintf(to->addrs + len, sizeof to->addrs - len, "%s%s", len > 0 ? "," : "", addr);
}

/* NCCL and Gloo use an interface's first address in the order of getifaddrs(): IPv4 if there is
 * one, whatever the route to the leader is. (NCCL user guide, NCCL_SOCKET_FAMILY.) */
static void take(struct rdzv_net *to, const struct topo_netif *n, const char *chosen,
                 bool v6_first) {
    if (strlen(n->name) >= sizeof to->netif)
        return;
    (void)snprintf(to->netif, sizeof to->netif, "%s", n->name);
    add_addr(to, n, chosen, v6_first);
    add_addr(to, n, chosen, !v6_first);
}

/* The user's own setting has precedence. If it names one interface, workers will use that. */
static const char *users_netif(const struct job_spec *spec, char *const *envp) {
    const char *name = job_worker_value(spec, envp, "NCCL_SOCKET_IFNAME");
    return name == NULL ? NULL : name + (name[0] == '=');
}

/* user: the interface that the user named, or NULL. */
static const struct topo_netif *choose(const struct topology *t, uint32_t n_nodes, const char *user,
                                       const char *leader, const struct route_found *route,
                                       struct netif_choice *choice) {
    struct netif_input input = {.n_nodes = n_nodes,
                                .route_netif = route->netif,
                                .route_source = route->source,
                                .leader_addr = leader};
    uint32_t i = user != NULL ? topology_find_netif(t, user) : TOPO_NONE;
    netif_choose(t, &input, choice);
    /* else it is a list, a prefix or an exclusion: the route is the best guess */
    if (i != TOPO_NONE) {
        choice->addr[0] = '\0';
        (void)snprintf(choice->why, sizeof choice->why, "NCCL_SOCKET_IFNAME");
    } else if (choice->netif[0] != '\0') {
        i = topology_find_netif(t, choice->netif);
    }
    return i != TOPO_NONE ? &t->netifs[i] : NULL;
}

void node_nets_choose(const struct job_spec *spec, char *const *envp, const char *leader,
                      const struct node_discovery *discovery, const struct node_discovery *way,
                      struct rdzv_net ret[RDZV_NETS_MAX]) {
    const struct topology *t = node_discovery_found(discovery)->netifs;
    const struct node_found *found = node_discovery_found(way);
    const struct route_found *route = found->route;
    struct netif_choice choice = {0};
    if (route == NULL || t == NULL) {
        log_info("preflight: which interface leads to %s is not known: %s", leader,
                 found->no_route != NULL ? found->no_route
                 : t == NULL             ? node_discovery_found(discovery)->failure
                                         : found->failure);
        return;
    }
    const char *family = job_worker_value(spec, envp, "NCCL_SOCKET_FAMILY");
    const char *user = users_netif(spec, envp);
    bool v6_first = family != NULL && strcmp(family, "AF_INET6") == 0;
    const struct topo_netif *n = choose(t, spec->rdzv.max_nodes, user, leader, route, &choice);
    if (n != NULL)
        take(&ret[RING_NET], n, choice.addr, v6_first);
    const struct topo_netif *fast = user == NULL ? netif_fast(t) : NULL;
    if (fast != NULL && spec->nccl_env > NCCL_ENV_OFF)
        take(&ret[RING_FAST], fast, "", v6_first);
    log_debug("preflight: interface '%s' (%s): %s; of a faster network: '%s' (%s)",
              ret[RING_NET].netif, ret[RING_NET].addrs, choice.why, ret[RING_FAST].netif,
              ret[RING_FAST].addrs);
}

/* ---- at START ---- */

static void pick(const struct rdzv_net *net, bool v6, struct netif_choice *ret) {
    *ret = (struct netif_choice){0};
    const char *addr = net->addrs, *second = strchr(addr, ',');
    if (second != NULL && (strchr(addr, ':') < second && strchr(addr, ':') != NULL) != v6)
        addr = second + 1;
    (void)snprintf(ret->netif, sizeof ret->netif, "%s", net->netif);
    (void)snprintf(ret->addr, sizeof ret->addr, "%.*s", (int)strcspn(addr, ","), addr);
    ret->family_v6 = v6 && second != NULL; /* it has both, and NCCL would use the other */
}

bool node_nets_pick(const struct node_nets *n, uint32_t reachability, struct netif_choice *ret) {
    const struct rdzv_net *fast = &n->nets[RING_FAST], *net = &n->nets[RING_NET];
    if ((reachability & RING_WAY_TRIED) == 0)
        return false;
    /* The leader has confirmed that all nodes have the network, including this one. */
    if ((reachability & (RING_WAY_FAST_V4 | RING_WAY_FAST_V6)) != 0 && fast->netif[0] != '\0') {
        pick(fast, (reachability & RING_WAY_FAST_V4) == 0, ret);
        (void)snprintf(ret->why, sizeof ret->why,
                       "every node has an interface of such a fast network, and all reach their "
                       "neighbours by it");
        return true;
    }
    if ((reachability & (RING_WAY_V4 | RING_WAY_V6)) != RING_WAY_V6 || net->netif[0] == '\0')
        return false;
    pick(net, true, ret);
    (void)snprintf(ret->why, sizeof ret->why, "the route to the leader goes by %s", net->netif);
    return ret->family_v6;
}
