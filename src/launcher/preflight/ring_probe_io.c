#include "launcher/preflight/ring_probe_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/net/addr.h"
#include "rendezvous/protocol/probe_io.h"

#define FAMILIES_MAX 2
#define RING_FAST_WAYS (RING_WAY_FAST_V4 | RING_WAY_FAST_V6)
#define WAYS_MAX (FAMILIES_MAX * RDZV_NETS_MAX)
#define WHY_MAX 160

/* A path from one of our addresses to one of the neighbour's. */
struct ring_path {
    struct ring_probe *ring;
    struct probe *probe; /* NULL: it is over, or never began */
    unsigned net;        /* RING_NET, RING_FAST */
    bool reached;
    char from[ADDR_TEXT_MAX], to[ADDR_TEXT_MAX];
    char why[WHY_MAX]; /* why the neighbour was not reached */
};

struct ring_probe {
    struct loop *loop;
    struct auth *auth; /* borrowed */
    ring_fn *fn;
    void *arg;
    char host[RDZV_HOST_MAX], netifs[RDZV_NETS_MAX][RDZV_NETIF_MAX];
    struct rdzv_neighbour to;
    struct ring_path
        paths[WAYS_MAX]; /* the path to the neighbour's chosen address first; RING_FAST's last */
    unsigned n_paths, n_open;
    unsigned n_net;              /* those of RING_NET */
    uint32_t known_reachability; /* ways that are known without a probe */
};

static void finish(void *arg);

void ring_probe_free(struct ring_probe *p) {
    if (p == NULL)
        return;
    for (unsigned i = 0; i < p->n_paths; i++)
        probe_free(p->paths[i].probe);
    loop_defer_drop(p->loop, finish, p);
    free(p);
}

static void end_text(char *out, size_t size, const char *host, const char *addr,
                     const char *netif) {
    (void)snprintf(out, size, "%s (%s%s%s)", host, addr[0] != '\0' ? addr : "any address",
                   netif[0] != '\0' ? " on " : "", netif);
}

static void describe(const struct ring_probe *p, const struct ring_path *w, struct ring_answer *a) {
    char from[RDZV_HOST_MAX + ADDR_TEXT_MAX + 32], to[sizeof from];
    end_text(from, sizeof from, p->host, w->from, p->netifs[w->net]);
    end_text(to, sizeof to, p->to.host, w->to, p->to.nets[w->net].netif);
    (void)snprintf(a->text, sizeof a->text, "%.180s can't reach %.180s: %.100s", from, to, w->why);
}

static uint32_t way_bit(unsigned net, bool v6) {
    if (net == RING_FAST)
        return v6 ? RING_WAY_FAST_V6 : RING_WAY_FAST_V4;
    return v6 ? RING_WAY_V6 : RING_WAY_V4;
}

static void finish(void *arg) {
    struct ring_probe *p = arg;
    struct ring_answer a = {.result = RING_SKIPPED, .reachability = p->known_reachability};
    bool any = false;
    for (unsigned i = 0; i < p->n_paths; i++) {
        const struct ring_path *w = &p->paths[i];
        if (w->reached)
            a.reachability |= way_bit(w->net, strchr(w->to, ':') != NULL);
        any = any || (w->reached && w->net == RING_NET);
    }
    if (p->n_net > 0 && p->paths[0].reached) {
        a.result = RING_REACHED;
        a.fast_failed = p->n_paths > p->n_net && (a.reachability & RING_FAST_WAYS) == 0;
        if (a.fast_failed)
            describe(p, &p->paths[p->n_net], &a);
    } else if (p->n_net > 0) {
        a.result = any ? RING_OTHER_FAMILY : RING_BLOCKED;
        describe(p, &p->paths[0], &a);
        size_t len = strlen(a.text);
        if (any)
            (void)snprintf(a.text + len, sizeof a.text - len,
                           "; it does from %.45s to %.45s (NCCL_SOCKET_FAMILY=%s, if all do)",
                           p->paths[1].from, p->paths[1].to,
                           strchr(p->paths[1].to, ':') != NULL ? "AF_INET6" : "AF_INET");
    }
    ring_fn *fn = p->fn;
    arg = p->arg;
    ring_probe_free(p);
    fn(arg, &a);
}

static void on_probe(void *arg, const struct probe_answer *answer) {
    struct ring_path *w = arg;
    w->probe = NULL;
    w->reached = answer->result == PROBE_ALIVE;
    const char *why = answer->code == -ECONNREFUSED ? "nothing listens there"
                      : answer->incarnation != 0    ? "another agent answers there"
                      : answer->code == -ETIMEDOUT && w->net == RING_FAST ? "no answer within 0.5 s"
                      : answer->code == -ETIMEDOUT                        ? "no answer within 2 s"
                      /* the error of a blackhole route */
                      : answer->code == -EINVAL ? "this side's routes have no way there"
                      : answer->code < 0        ? strerror(-answer->code)
                                                : "the connection is cut";
    if (!w->reached)
        (void)snprintf(w->why, sizeof w->why, "%s", why);
    if (--w->ring->n_open == 0)
        finish(w->ring);
}

static bool same_family(const char *list, const struct addr *to, struct addr *ret) {
    struct addr all[FAMILIES_MAX];
    size_t n = addr_from_list(list, 0, all, FAMILIES_MAX);
    for (size_t i = 0; i < n; i++)
        if (all[i].ss.ss_family == to->ss.ss_family) {
            *ret = all[i];
            return true;
        }
    return false;
}

static void begin_way(struct ring_probe *p, unsigned net, const struct addr *to,
                      const char *own_addrs) {
    struct ring_path *w = &p->paths[p->n_paths++];
    struct addr from;
    uint64_t timeout_ns = net == RING_FAST ? RING_FAST_NS : RING_PROBE_NS;
    w->ring = p;
    w->net = net;
    addr_host_text(to, w->to);
    bool any = own_addrs[0] == '\0';
    if (!any && !same_family(own_addrs, to, &from)) {
        struct addr own;
        if (addr_from_list(own_addrs, 0, &own, 1) > 0)
            addr_host_text(&own, w->from);
        (void)snprintf(w->why, sizeof w->why, "there is no IPv%d address on this side",
                       to->ss.ss_family == AF_INET6 ? 6 : 4);
        return;
    }
    if (!any)
        addr_host_text(&from, w->from);
    int r = probe_start(p->loop, any ? NULL : &from, to, p->auth, p->to.incarnation, timeout_ns,
                        on_probe, w, &w->probe);
    if (r < 0)
        (void)snprintf(w->why, sizeof w->why, "%s", strerror(-r));
    else
        p->n_open++;
}

/* The kernel is not asked: listing many interfaces takes long, and waits for changes. */
static bool is_here(const struct topology *t, const struct addr *a) {
    char text[ADDR_TEXT_MAX];
    addr_host_text(a, text);
    for (uint32_t i = 0; t != NULL && i < t->n_netifs; i++)
        for (uint32_t k = 0; k < t->netifs[i].n_addrs; k++)
            if (strcmp(t->netifs[i].addrs[k].addr, text) == 0)
                return true;
    return addr_is_loopback(a);
}

/* A neighbour on this machine is reached by all ways that both have. In the faster network only
 * address families that both have are tried. */
static void try_net(struct ring_probe *p, unsigned net, const struct ring_own *own) {
    const char *own_addrs = own->nets[net].addrs;
    struct addr to[FAMILIES_MAX], from;
    size_t n = addr_from_list(p->to.nets[net].addrs, p->to.listener_port, to, FAMILIES_MAX);
    for (size_t i = 0; i < n; i++) {
        bool both = same_family(own_addrs, &to[i], &from);
        if (is_here(own->netifs, &to[i]))
            p->known_reachability |= both ? way_bit(net, to[i].ss.ss_family == AF_INET6) : 0;
        else if (net == RING_NET || both)
            begin_way(p, net, &to[i], own_addrs);
    }
}

struct ring_probe *ring_probe_start(struct loop *loop, const struct ring_own *own,
                                    const struct rdzv_neighbour *to, ring_fn *fn, void *arg) {
    struct ring_probe *p = xcalloc(1, sizeof *p);
    *p = (struct ring_probe){.loop = loop, .auth = own->auth, .fn = fn, .arg = arg, .to = *to};
    (void)snprintf(p->host, sizeof p->host, "%s", own->host);
    for (unsigned net = 0; net < RDZV_NETS_MAX; net++)
        memcpy(p->netifs[net], own->nets[net].netif, sizeof p->netifs[net]);
    for (unsigned net = 0; net < RDZV_NETS_MAX; net++) {
        try_net(p, net, own);
        p->n_net = net == RING_NET ? p->n_paths : p->n_net;
    }
    if (p->n_open == 0)
        loop_defer(loop, LOOP_PRIO_CHILD, finish, p); /* the answer is known at once */
    return p;
}

/* ==== the interfaces ==== */

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
