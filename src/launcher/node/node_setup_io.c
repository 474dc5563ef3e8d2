#include "launcher/node/node_setup_io.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "io/process/proc.h"
#include "nccl_env/facts/facts_io.h"
#include "topology/nccl/nccl_graph.h"

/* ---- the network ---- */

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
        _cleanup_(file_close) int fd = -1;
        if (addr_from_literal(any[i], wanted, &at) == 0 && listen_socket(&at, 1, &fd, NULL) == 0 &&
            addr_of_socket(fd, &at) == 0)
            port = addr_port(&at);
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

/* A leader on loopback: all nodes are on this host. */
bool node_net_is_far(const struct node_setup_place *p) {
    struct addr a;
    return p->spec->nccl_env > NCCL_ENV_OFF && p->form->n_nodes > 1 &&
           !(addr_from_literal(p->form->store_host, 0, &a) == 0 && addr_is_loopback(&a));
}

int node_net_discover(struct loop *loop, const struct node_setup_place *p,
                      struct node_discovery **ret, struct err *err) {
    const struct node_found *known = node_discovery_found(p->discovery);
    struct node_discovery_config config = {
        .what = DISCOVER_NETIFS & ~known->what,
        .facts = known->facts == NULL,
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
    const struct node_found *node = node_discovery_found(p->discovery),
                            *way = node_discovery_found(p->way);
    const struct topology *t = node->what & DISCOVER_NETIFS ? node->topology : way->netifs;
    const struct route_found *route = way->route;
    const char *leader = p->form->store_host;
    struct netif_input in = {.n_nodes = p->form->n_nodes, .leader_addr = leader};
    if (route == NULL)
        log_info("which interface leads to %s is not known: %s", leader,
                 way->no_route != NULL  ? way->no_route
                 : way->failure != NULL ? way->failure
                                        : "no process could be started to ask");
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

/* ---- CPUs and memory that may be used now ---- */

struct limits {
    struct cpuset cpus, nodes;
    int cpus_error, nodes_error; /* negative errno: not known */
    /* a memory policy was set before the start (numactl), and workers inherit it */
    bool has_policy;
};

/* The kernel uses one bit less than the number it gets. get_mempolicy(2), BUGS */
static void read_limits(struct limits *ret) {
    *ret = (struct limits){0};
    if (sched_getaffinity(0, sizeof ret->cpus, (cpu_set_t *)(void *)ret->cpus.words) < 0)
        ret->cpus_error = -errno;
    if (syscall(SYS_get_mempolicy, NULL, ret->nodes.words, CPUSET_MAX + 1UL, NULL,
                (unsigned long)MPOL_F_MEMS_ALLOWED) < 0)
        ret->nodes_error = -errno;
    int policy = MPOL_DEFAULT;
    /* if it is refused, has_policy stays false */
    (void)syscall(SYS_get_mempolicy, &policy, NULL, 0UL, NULL, 0UL);
    ret->has_policy = policy != MPOL_DEFAULT;
}

static void narrow(struct affinity *a, const struct limits *now, bool by_default, bool *no_memory) {
    if (!a->bound)
        return;
    if (now->cpus_error == 0)
        cpuset_and(&a->cpus, &now->cpus);
    if (cpuset_is_empty(&a->cpus)) {
        char why[sizeof a->why];
        (void)snprintf(why, sizeof why, "no CPU of %.80s may be used any more", a->why);
        *a = (struct affinity){0};
        memcpy(a->why, why, sizeof why);
        return;
    }
    if (by_default && now->has_policy && !a->strict)
        a->nodes = (struct cpuset){0};
    if (cpuset_is_empty(&a->nodes))
        return;
    /* If the user insists on memory that is not available, the kernel should report the error. */
    if (now->nodes_error == 0 && (!a->strict || cpuset_intersects(&a->nodes, &now->nodes)))
        cpuset_and(&a->nodes, &now->nodes);
    else if (!a->strict)
        a->nodes = (struct cpuset){0};
    *no_memory |= now->nodes_error != 0 && !a->strict;
}

/* Which NIC NCCL uses for each GPU; NULL: it does not matter, or can't be predicted. */
static struct nccl_graph *predict_nics(const struct node_setup_place *p, const struct topology *t) {
    struct nccl_graph *g = NULL;
    struct err err = {0};
    if (t == NULL || !p->any_gpu || p->form->n_nodes <= 1 || p->spec->nccl_env != NCCL_ENV_FULL)
        return NULL;
    if (nccl_graph_new(t, &g, &err) < 0)
        log_info("which NIC NCCL takes is not known: %s", err.text);
    return g;
}

int node_setup_read(const struct node_setup_place *p, struct node_setup *ret, struct err *err) {
    const struct node_found *found = node_discovery_found(p->discovery);
    struct node_setup_input in = {
        .spec = p->spec,
        .env = {.envp = p->envp,
                .any_gpu = p->any_gpu,
                .topology = found->topology,
                .facts = p->spec->nccl_env > NCCL_ENV_OFF ? found->facts : NULL,
                .n_nodes = p->form->n_nodes,
                .rank = p->form->first_rank,
                .log_dir = p->log_dir},
        .rocm = found->rocm,
        .n_rocm = found->n_rocm,
    };
    struct node_net net;
    _cleanup_(nccl_graph_freep) struct nccl_graph *graph = NULL;
    int r = node_net_read(p, &net, err);
    if (r < 0)
        return r;
    in.env.netif = net.has_netif ? &net.netif : NULL;
    if (in.env.facts == NULL)
        in.env.facts = node_discovery_found(p->way)->facts;
    struct nccl_facts now_facts; /* limits can have been raised since the discovery */
    if (in.env.facts != NULL) {
        now_facts = *in.env.facts; /* borrows its pointers */
        nccl_limits_read(&now_facts);
        in.env.facts = &now_facts;
    }
    in.env.ras_port = net.ras_port;
    in.env.comm_id = net.comm_id[0] != '\0' ? net.comm_id : NULL;
    in.env.graph = graph = predict_nics(p, in.env.topology);
    r = node_setup_make(&in, ret, err);
    if (r < 0)
        return r;
    if (ret->mode == BIND_NONE)
        return 0;
    struct limits now;
    read_limits(&now);
    for (uint32_t i = 0; i < ret->n; i++)
        narrow(&ret->workers[i].affinity, &now, p->spec->bind == 0, &ret->no_memory);
    return 0;
}

/* ---- messages ---- */

static void log_threads(const struct node_setup *s, const struct node_setup_place *p) {
    const char *own = env_get(p->envp, "OMP_NUM_THREADS");
    if (p->spec->omp != JOB_OMP_CORES)
        return;
    uint32_t least = s->workers[0].omp_threads, most = least;
    for (uint32_t i = 1; i < s->n; i++) {
        least = MIN2(least, s->workers[i].omp_threads);
        most = MAX2(most, s->workers[i].omp_threads);
    }
    if (own != NULL)
        log_info("OMP_NUM_THREADS=%s from the environment is kept", own);
    else if (most == 0)
        log_warning("--omp=cores: the cores of this node are not known");
    else if (least == most)
        log_info("OMP_NUM_THREADS=%u for each worker: as many as it has cores", most);
    else
        log_info("OMP_NUM_THREADS=%u to %u for the workers: as many as each has cores", least,
                 most);
}

/* Rarely intended: srun gives a task one CPU by default, and has not inherited --cpus-per-task from
 * sbatch since 22.05 (Slurm release notes). */
static void warn_few_cpus(const struct node_setup_place *p) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t may = cpu_count_allowed();
    if (may >= p->spec->nproc || online <= (long)may)
        return;
    log_warning("%u workers share %u CPU%s: of the %ld of this node no more may be used here%s",
                p->spec->nproc, may, may == 1 ? "" : "s", online,
                p->spec->place.job_id != NULL ? " (srun --cpus-per-task=N gives more)" : "");
}

static void log_warnings(const struct topology *t) {
    for (uint32_t i = 0; t != NULL && i < t->n_warnings; i++)
        log_line(t->warning_kinds[i] == TOPO_WARNING_FAULT ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
                 "%s", t->warnings[i]);
}

static void log_each(const struct node_setup *s) {
    for (uint32_t i = 0; i < s->n && log_enabled(LOG_LEVEL_INFO); i++) {
        _cleanup_(strbuf_fini) struct strbuf line = {0};
        node_setup_describe_worker(s, i, &line);
        log_info("%s", strbuf_text(&line));
    }
}

/* Threads are reported elsewhere. */
static bool is_reported_elsewhere(const struct env_choice *c) {
    return c->action == ENV_SET && strcmp(c->name, "OMP_NUM_THREADS") != 0;
}

/* "A=1, B=2: because", of those with the same reason. Returns the first of the others. */
static uint32_t log_alike(const struct env_result *env, uint32_t first) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    const char *reason = env->choices[first].reason;
    uint32_t i = first;
    for (; i < env->n && is_reported_elsewhere(&env->choices[i]) &&
           strcmp(env->choices[i].reason, reason) == 0;
         i++)
        strbuf_printf(&line, "%s%s=%s", i > first ? ", " : "", env->choices[i].name,
                      env->choices[i].value);
    log_info("%s: %s", strbuf_text(&line), reason);
    return i;
}

/* What the rules did to the first worker; the others differ only in their GPUs. */
static void log_env(const struct node_setup *s, const struct node_setup_place *p) {
    const struct env_result *env = s->workers[0].env;
    if (p->spec->nccl_env <= NCCL_ENV_OFF || (!p->any_gpu && p->form->n_nodes <= 1))
        return;
    for (uint32_t i = 0; i < env->n && log_enabled(LOG_LEVEL_INFO);)
        i = is_reported_elsewhere(&env->choices[i]) ? log_alike(env, i) : i + 1;
    for (size_t i = 0; i < env->warnings.n; i++)
        log_warning("%s", env->warnings.list[i]);
}

void node_setup_log(const struct node_setup *s, const struct node_setup_place *p, char **logged) {
    _cleanup_(strbuf_fini) struct strbuf bound = {0}, unbound = {0}, all = {0};
    const struct node_found *found = node_discovery_found(p->discovery);
    node_setup_describe(s, &bound);
    node_setup_describe_unbound(s, &unbound);
    strbuf_printf(&all, "%s\n%s", strbuf_text(&bound), strbuf_text(&unbound));
    for (size_t i = 0; i < s->workers[0].env->warnings.n; i++)
        strbuf_printf(&all, "\n%s", s->workers[0].env->warnings.list[i]);
    if (*logged != NULL && strcmp(*logged, strbuf_text(&all)) == 0)
        return;
    if (*logged == NULL)
        warn_few_cpus(p);
    if (*logged == NULL)
        log_warnings(found->topology);
    free(*logged);
    *logged = strbuf_take(&all);
    if (found->failure != NULL)
        log_warning("can't examine this node: %s; its workers are not bound", found->failure);
    else if (unbound.len > 0) /* the user did not request the default */
        log_line(p->spec->bind != 0 ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "%s",
                 strbuf_text(&unbound));
    if (bound.len > 0)
        log_notice("%s", strbuf_text(&bound));
    if (s->no_memory)
        log_info("memory policies are refused here (a container without CAP_SYS_NICE?): only CPUs "
                 "are bound");
    if (s->mode != BIND_NONE)
        log_each(s);
    log_threads(s, p);
    log_env(s, p);
}
