#include "launcher/preflight/node_summary_io.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/net/resolver.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "topology/discover/discovery_io.h"
#include "topology/nccl/nccl_graph.h"
#include "watchdog/look/kernel_log.h"

#define MEMLOCK_ENOUGH_BYTES (UINT64_C(64) << 20) /* with RDMA adapters; unlimited is usual */
#define SHM_ENOUGH_BYTES (UINT64_C(128) << 20)    /* a container's default is 64 MiB */
#define DISK_WARN_BYTES (UINT64_C(1) << 30)
#define DISK_FAIL_BYTES (UINT64_C(64) << 20)
#define BUSY_MAX 256      /* the most processes on GPUs that are examined */
#define PROC_FDS_MAX 4096 /* the most descriptors of one process that are examined */

static void size_text(uint64_t bytes, char out[32]) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u + 1 < ARRAY_SIZE(units); u++)
        v /= 1024;
    if (bytes == UINT64_MAX)
        (void)snprintf(out, 32, "unlimited");
    else
        (void)snprintf(out, 32, v < 10 && u > 0 ? "%.1f %s" : "%.0f %s", v, units[u]);
}

/* ---- facts that are known at once ---- */

static void look_limits(struct node_summary *d, bool has_hcas) {
    struct rlimit l;
    char size[32];
    if (getrlimit(RLIMIT_MEMLOCK, &l) < 0)
        return;
    /* muster run raises the soft limit to the hard one */
    uint64_t bytes = l.rlim_max == RLIM_INFINITY ? UINT64_MAX : l.rlim_max;
    size_text(bytes, size);
    node_summary_set(d, NODE_SUMMARY_MEMLOCK, "%s", size);
    if (has_hcas && bytes < MEMLOCK_ENOUGH_BYTES)
        node_summary_add(d, NODE_SUMMARY_FAIL, "MEMLOCK-LOW",
                         "memory that may be locked: %s; RDMA registers more (ulimit -l unlimited)",
                         size);
    else
        node_summary_add(d, NODE_SUMMARY_OK, "MEMLOCK", "memory that may be locked: %s", size);
}

static void look_shm(struct node_summary *d) {
    struct statvfs v;
    char size[32];
    if (statvfs("/dev/shm", &v) < 0) {
        node_summary_add(d, NODE_SUMMARY_WARN, "SHM-SMALL", "/dev/shm: %s", strerror(errno));
        node_summary_set(d, NODE_SUMMARY_SHM, "none");
        return;
    }
    uint64_t bytes = (uint64_t)v.f_blocks * v.f_frsize;
    size_text(bytes, size);
    node_summary_set(d, NODE_SUMMARY_SHM, "%s", size);
    if (bytes < SHM_ENOUGH_BYTES)
        node_summary_add(
            d, NODE_SUMMARY_WARN, "SHM-SMALL",
            "/dev/shm has %s: too little for data loaders and NCCL (docker: --shm-size)", size);
    else
        node_summary_add(d, NODE_SUMMARY_OK, "SHM", "/dev/shm has %s", size);
}

/* If the folder does not exist yet, uses the nearest existing one above it. */
static void look_disk(const struct node_summary_config *c, struct node_summary *d) {
    const char *log_dir = c->log_dir;
    char path[4096], size[32];
    struct statvfs v;
    if (log_dir == NULL || log_dir[0] == '\0' || strlen(log_dir) >= sizeof path)
        return;
    (void)snprintf(path, sizeof path, "%s", log_dir);
    while (statvfs(path, &v) < 0) {
        char *slash = strrchr(path, '/');
        if ((errno != ENOENT && errno != ENOTDIR) || strcmp(path, ".") == 0 || slash == path) {
            node_summary_add(d, NODE_SUMMARY_FAIL, "DISK-BAD", "%.150s (logs): %s", log_dir,
                             strerror(errno));
            return;
        }
        if (slash != NULL)
            *slash = '\0';
        else
            (void)snprintf(path, sizeof path, "."); /* relative, and nothing of it exists */
    }
    uint64_t bytes = (uint64_t)v.f_bavail * v.f_frsize;
    size_text(bytes, size);
    node_summary_set(d, NODE_SUMMARY_DISK, "%s", size);
    enum node_summary_level level = bytes < DISK_FAIL_BYTES   ? NODE_SUMMARY_FAIL
                                    : bytes < DISK_WARN_BYTES ? NODE_SUMMARY_WARN
                                                              : NODE_SUMMARY_OK;
    node_summary_add(d, level, level == NODE_SUMMARY_OK ? "DISK" : "DISK-LOW",
                     "%.150s (logs): %s are free", log_dir, size);
}

static void look_clock(struct node_summary *d) {
    struct timex t = {.modes = 0};
    d->has_clock = true;
    d->clock_ns = clock_wall_offset_ns();
    int state = adjtimex(&t);
    if (state == TIME_ERROR || (state >= 0 && (t.status & STA_UNSYNC) != 0))
        node_summary_add(d, NODE_SUMMARY_WARN, "CLOCK-UNSYNCED",
                         "no NTP or PTP daemon synchronizes the clock, according to the kernel");
    else if (state >= 0)
        node_summary_add(d, NODE_SUMMARY_OK, "CLOCK",
                         "an NTP or PTP daemon synchronizes the clock");
}

/* ---- interfaces and adapters ---- */

static void look_fast(const struct node_summary_config *c, const struct topology *t,
                      struct node_summary *d) {
    if (c->fast_netif == NULL)
        return;
    uint32_t i = c->fast_netif[0] != '\0' ? topology_find_netif(t, c->fast_netif) : TOPO_NONE;
    node_summary_set(d, NODE_SUMMARY_FAST, "%s", i != TOPO_NONE ? c->fast_netif : "none");
    if (i != TOPO_NONE && t->netifs[i].mtu > 0)
        node_summary_set(d, NODE_SUMMARY_FAST_MTU, "%u", t->netifs[i].mtu);
}

static void look_netif(const struct node_summary_config *c, const struct topology *t,
                       struct node_summary *d) {
    uint32_t i = c->netif[0] != '\0' ? topology_find_netif(t, c->netif) : TOPO_NONE;
    if (i != TOPO_NONE) {
        const struct topo_netif *n = &t->netifs[i];
        node_summary_set(d, NODE_SUMMARY_NETIF, "%s", n->name);
        if (n->mtu > 0)
            node_summary_set(d, NODE_SUMMARY_MTU, "%u", n->mtu);
        node_summary_add(d, n->up ? NODE_SUMMARY_OK : NODE_SUMMARY_WARN,
                         n->up ? "NET-ROUTE" : "NET-DOWN",
                         "workers reach other nodes by %s (%s, mtu %u)%s", n->name,
                         topo_netif_kind_names[n->kind], n->mtu, n->up ? "" : ", which is down");
        return;
    }
    uint32_t global = 0;
    for (uint32_t k = 0; k < t->n_netifs; k++)
        for (uint32_t a = 0; a < t->netifs[k].n_addrs; a++)
            global += t->netifs[k].kind != TOPO_NETIF_LOOPBACK && t->netifs[k].up &&
                      !t->netifs[k].addrs[a].link_local;
    if (global == 0)
        node_summary_add(d, NODE_SUMMARY_WARN, "NET-ROUTE",
                         "no interface has an address that other machines could reach");
    else
        node_summary_add(d, NODE_SUMMARY_OK, "NET-ROUTE", "%u address%s for other machines", global,
                         global == 1 ? "" : "es");
}

static const char *layer_name(enum topo_link_layer l) {
    return l == TOPO_LINK_INFINIBAND ? " IB" : l == TOPO_LINK_ETHERNET ? " RoCE" : "";
}

/* Lists adapters in the order of the rails, by PCI address. Of a port that is down, only that. */
static void look_hcas(const struct topology *t, struct node_summary *d) {
    _cleanup_(strbuf_fini) struct strbuf set = {0};
    uint32_t down = 0;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *n = &t->nics[i];
        enum topo_port_state state = topo_nic_state(n);
        strbuf_printf(&set, "%s%s", i > 0 ? ", " : "", n->name);
        if (state == TOPO_PORT_UNKNOWN || state == TOPO_PORT_ACTIVE) {
            uint64_t rate = topo_nic_rate_mbps(n);
            if (rate > 0)
                strbuf_printf(&set, " %.0fG", (double)rate / 1000);
            strbuf_add(&set, n->n_ports > 0 ? layer_name(n->ports[0].link_layer) : "");
            continue;
        }
        down++;
        strbuf_printf(&set, " %s", topo_port_state_names[state]);
        node_summary_add(d, NODE_SUMMARY_WARN, "HCA-DOWN", "adapter %s: its port is %s", n->name,
                         topo_port_state_names[state]);
    }
    node_summary_set(d, NODE_SUMMARY_HCAS, "%s", t->n_nics > 0 ? strbuf_text(&set) : "none");
    if (t->n_nics > 0 && down == 0)
        node_summary_add(d, NODE_SUMMARY_OK, "HCA", "%u RDMA adapter%s, all active", t->n_nics,
                         t->n_nics == 1 ? "" : "s");
}

/* Nodes with the same adapters in different slots send on different rails. */
static void look_rails(const struct topology *t, struct node_summary *d) {
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = NULL;
    _cleanup_(strbuf_fini) struct strbuf set = {0};
    _cleanup_(freep) struct nccl_prediction *p = xcalloc(1, sizeof *p);
    if (t->n_gpus == 0 || nccl_graph_new(t, &g, NULL) < 0)
        return;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        nccl_graph_predict(g, i, p);
        if (p->n_nets > 0 && p->nic != TOPO_NONE)
            strbuf_printf(&set, "%sGPU%" PRIu32 " %s", set.len > 0 ? ", " : "", t->gpus[i].index,
                          p->nets[0]);
    }
    if (set.len > 0)
        node_summary_set(d, NODE_SUMMARY_RAILS, "%s", strbuf_text(&set));
}

static bool in_pod(void) { return getenv("KUBERNETES_SERVICE_HOST") != NULL; }

/* A chassis is not a domain to NCCL. With NCCL_MNNVL_ENABLE=0 NCCL needs no IMEX. */
static void look_domain(const struct node_summary_config *c, const struct topology *t,
                        struct node_summary *d) {
    char domain[TOPO_DOMAIN_MAX], size[32];
    const struct nccl_facts *facts = node_discovery_found(c->discovery)->facts;
    const struct nccl_conf_entry *conf =
        facts != NULL ? nccl_facts_conf(facts, "NCCL_MNNVL_ENABLE", NULL) : NULL;
    const char *mnnvl = c->mnnvl != NULL ? c->mnnvl : conf != NULL ? conf->value : "";
    struct rlimit stack;
    if (!topology_domain(t, domain) || strncmp(domain, "nvl-", 4) != 0)
        return;
    node_summary_set(d, NODE_SUMMARY_DOMAIN, "%s", domain);
    node_summary_set(d, NODE_SUMMARY_WORKERS, "%u", c->n_workers > 0 ? c->n_workers : t->n_gpus);
    if (t->imex != TOPO_IMEX_NONE && strcmp(mnnvl, "0") != 0)
        node_summary_set(d, NODE_SUMMARY_IMEX, "%s%s", topo_imex_names[t->imex],
                         t->imex == TOPO_IMEX_MISSING && in_pod() ? " in this pod" : "");
    if (getrlimit(RLIMIT_STACK, &stack) < 0)
        return;
    size_text(stack.rlim_cur == RLIM_INFINITY ? UINT64_MAX : stack.rlim_cur, size);
    node_summary_set(d, NODE_SUMMARY_STACK, "%s", size);
}

/* ---- processes on the GPUs ---- */

enum { HOLDS_NO, HOLDS_GPU, HOLDS_UNKNOWN };

struct links {
    bool gpu;
    unsigned seen;
};

/* Only NVIDIA's GPUs are looked at. */
static bool look_at_link(void *arg, const char *link) {
    struct links *l = arg;
    l->gpu = proc_is_gpu(link) && strcmp(link, "/dev/kfd") != 0;
    return !l->gpu && ++l->seen < PROC_FDS_MAX;
}

/* Root sees the processes of all users; other users see only their own. */
static int holds_gpu(pid_t pid) {
    struct links l = {0};
    int r = proc_each_link(pid, look_at_link, &l);
    return r < 0 ? HOLDS_UNKNOWN : l.gpu ? HOLDS_GPU : HOLDS_NO;
}

struct busy {
    uint64_t own_began;
    struct node_summary_process all[BUSY_MAX];
    uint32_t n;
};

/* A process that began after the agent is not a leftover: it can be a worker of this job. */
static void add_busy(struct busy *b, uint64_t pid, uint32_t gpu, bool by_nvml) {
    struct node_summary_process p = {.pid = pid, .gpu = gpu};
    struct proc_stat st = {.start = 0};
    p.seen = p.pid != 0 && p.pid <= INT32_MAX && proc_read_stat((pid_t)p.pid, &st);
    memcpy(p.name, st.name, sizeof p.name);
    /* NVML can report pids of another pid namespace, which are other processes here. */
    if (by_nvml && p.seen && holds_gpu((pid_t)pid) == HOLDS_NO)
        p = (struct node_summary_process){.gpu = gpu};
    if (b->n < BUSY_MAX && (by_nvml || p.seen) && !(p.seen && st.start >= b->own_began))
        b->all[b->n++] = p;
}

static void add_holder(void *arg, int pid) {
    if (holds_gpu(pid) == HOLDS_GPU)
        add_busy(arg, (uint64_t)pid, TOPO_NONE, false);
}

/* Jobs that share a node have processes on GPUs of others. */
static bool sees_all(const struct nvml_report *r) {
    uint32_t list[GPUS_MAX];
    return r == NULL || nvml_report_visible(r, getenv("CUDA_VISIBLE_DEVICES"), list) == r->n;
}

static void look_busy(const struct nvml_report *r, struct node_summary *d) {
    static struct busy b;
    struct proc_stat self;
    b.n = 0;
    b.own_began = proc_read_stat(getppid(), &self) ? self.start : UINT64_MAX;
    if (proc_each_number("/proc", add_holder, &b) < 0)
        b.n = 0;
    for (uint32_t i = 0; r != NULL && i < r->n; i++) {
        for (uint32_t k = 0; k < r->gpus[i].n_pids; k++)
            add_busy(&b, r->gpus[i].pids[k], i, true);
    }
    node_summary_busy(b.all, b.n, d);
}

/* ---- names and versions ---- */

static void add_unresolved(const char *host, const char *why, struct node_summary *d) {
    node_summary_set(d, NODE_SUMMARY_NAME, "not resolved");
    node_summary_add(d, NODE_SUMMARY_WARN, "NAME-UNRESOLVED",
                     "this host's own name, %.100s: %.100s", host, why);
}

static void add_name(const char *host, const struct addr *addrs, size_t n, struct node_summary *d) {
    bool global = false;
    char text[ADDR_TEXT_MAX] = "";
    for (size_t i = 0; i < n && !global; i++) {
        addr_host_text(&addrs[i], text);
        global = !addr_is_loopback(&addrs[i]);
    }
    node_summary_set(d, NODE_SUMMARY_NAME, "%s", global ? "resolved" : "loopback");
    if (global)
        node_summary_add(d, NODE_SUMMARY_OK, "NAME", "%.100s is %s", host, text);
    else
        node_summary_add(d, NODE_SUMMARY_WARN, "NAME-LOOPBACK",
                         "this host's own name, %.100s, is %s, which no other machine reaches",
                         host, text);
}

/* The workers' libraries look up the host's own name; Gloo uses the address that it gets. */
static void look_name(const struct node_summary_config *c, struct node_summary *d) {
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    int gai = resolve_lookup(c->host, 0, addrs, &n);
    if (gai != 0)
        add_unresolved(c->host, gai_strerror(gai), d);
    else
        add_name(c->host, addrs, n, d);
}

static void look_versions(const struct nccl_facts *f, struct node_summary *d) {
    uint32_t v = f != NULL ? f->nccl_version : 0;
    if (v > 0)
        node_summary_set(d, NODE_SUMMARY_NCCL, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    node_summary_set(d, NODE_SUMMARY_TORCH, "%s", f != NULL ? f->torch_version : "");
}

/* ---- the whole summary ---- */

static void look_early(const struct node_summary_config *c, struct node_summary *d) {
    struct utsname u;
    if (uname(&u) == 0)
        node_summary_set(d, NODE_SUMMARY_KERNEL, "%s", u.release);
    look_clock(d);
    look_shm(d);
    const struct topology *t = node_discovery_found(c->discovery)->netifs;
    if (t != NULL) {
        look_netif(c, t, d);
        look_fast(c, t, d);
    }
}

unsigned node_summary_needs(bool any_gpu) {
    return any_gpu ? DISCOVER_CPUS | DISCOVER_PCI | DISCOVER_NICS | DISCOVER_NVML : DISCOVER_NICS;
}

/* node_summary_gpus() has a code for each fault: the topology's warnings of NVML are left out. */
static void look_devices(const struct node_summary_config *c, const struct topology *t,
                         const struct discovery_nvml *nvml, bool gpus, struct node_summary *d) {
    const struct nvml_report *report = nvml != NULL && nvml->asked ? &nvml->report : NULL;
    struct node_summary_gpus in = {
        .topology = t, .report = report, .n_nvidia = nvml != NULL ? nvml->n_nvidia : 0};
    struct err err = {0};
    for (uint32_t i = 0; nvml != NULL && i < nvml->n_warnings && gpus; i++)
        node_summary_add(d, NODE_SUMMARY_WARN, "DISCOVERY", "%.200s", t->warnings[i]);
    in.now_ns = clock_now_ns();
    if (report != NULL &&
        kernel_log_read(NULL, in.now_ns + NS_PER_S, node_summary_add_xid, &in, &err) < 0)
        node_summary_add(d, NODE_SUMMARY_OK, "XID", "earlier Xids are not known: %s", err.text);
    node_summary_gpus(&in, d);
    look_hcas(t, d);
    look_rails(t, d);
    look_domain(c, t, d);
    look_limits(d, t->n_nics > 0);
    if (gpus && sees_all(report))
        look_busy(report, d);
}

static void look_all_devices(const struct node_summary_config *c, struct node_summary *d) {
    const struct topology *t = node_discovery_found(c->discovery)->topology;
    look_versions(node_discovery_found(c->discovery)->facts, d);
    if (t != NULL)
        look_devices(c, t, node_discovery_found(c->discovery)->nvml, discover_has_gpus(), d);
    else
        look_limits(d, false);
}

/* ---- the helper, and its deadline ---- */

#define NICE 10

struct node_summary_gathering {
    struct loop *loop;
    struct helper_call *call; /* NULL: nothing can block */
    struct node_summary known;
    node_summary_fn *fn;
    void *arg;
    char host[NODE_SUMMARY_HOST_MAX];
    bool discovered; /* the discovery did not fail */
};

/* Which node summaries have come so far; each has more than the one before. */
enum { TOLD_EARLY = 1, TOLD_DEVICES, TOLD_DISK, TOLD_ALL };

static int discover(int fd, void *arg) {
    static void (*const looks[TOLD_ALL])(const struct node_summary_config *,
                                         struct node_summary *) = {look_early, look_all_devices,
                                                                   look_disk, look_name};
    static struct node_summary d;
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* workers that start meanwhile have precedence */
    for (size_t i = 0; i < TOLD_ALL; i++) {
        looks[i](arg, &d);
        if (!helper_send(fd, &d, sizeof d))
            return 1;
    }
    return 0;
}

void node_summary_stop(struct node_summary_gathering *g) {
    if (g == NULL)
        return;
    helper_call_free(g->call);
    loop_defer_drop(g->loop, NULL, g);
    free(g);
}

/* The discovery has asked for the room of /dev/shm, too, and has got an answer. */
static bool can_block(const struct node_summary_config *c) {
    const struct nccl_facts *facts = node_discovery_found(c->discovery)->facts;
    bool disk = c->log_dir != NULL && c->log_dir[0] != '\0';
    return disk || c->n_own_addrs == 0 || facts == NULL || facts->shm_bytes == 0 ||
           discover_has_gpus();
}

static void report(struct node_summary_gathering *g, const struct node_summary *d, bool whole) {
    const struct node_summary_gathering over = *g;
    node_summary_stop(g);
    over.fn(over.arg, d, whole && over.discovered);
}

static void is_known(void *arg) {
    struct node_summary_gathering *g = arg;
    struct node_summary d = g->known;
    report(g, &d, true);
}

/* Without a helper. */
static void gather_now(const struct node_summary_config *c, struct node_summary_gathering *g) {
    look_early(c, &g->known);
    look_all_devices(c, &g->known);
    add_name(c->host, c->own_addrs, c->n_own_addrs, &g->known);
    loop_defer(g->loop, LOOP_PRIO_CHILD, is_known, g);
}

/* Uses the last node summary that arrived complete. */
static void on_answer(void *arg, const struct helper_answer *answer) {
    struct node_summary_gathering *g = arg;
    size_t n = answer->len / sizeof(struct node_summary);
    struct node_summary best = {0};
    if (n > 0)
        memcpy(&best, answer->data + (n - 1) * sizeof best, sizeof best);
    if (n == TOLD_DEVICES)
        node_summary_add(&best, NODE_SUMMARY_FAIL, "DISK-BAD",
                         "the disk of the logs does not answer");
    else if (n == TOLD_DISK)
        add_unresolved(g->host, "no answer", &best);
    g->call = NULL;
    report(g, &best, n >= TOLD_DEVICES); /* a finding reports what is missing */
}

int node_summary_start(struct loop *loop, const struct node_summary_config *config,
                       node_summary_fn *fn, void *arg, struct node_summary_gathering **ret) {
    struct node_summary_gathering *g = xcalloc(1, sizeof *g);
    struct node_summary_config copy = *config;
    uint64_t now_ns = clock_now_ns();
    uint64_t end_ns = (config->begun_ns > 0 ? config->begun_ns : now_ns) + NODE_SUMMARY_GATHER_NS;
    *g = (struct node_summary_gathering){
        .loop = loop,
        .fn = fn,
        .arg = arg,
        .discovered = node_discovery_found(config->discovery)->failure == NULL};
    (void)snprintf(g->host, sizeof g->host, "%s", config->host);
    struct helper_call_config call = {
        .name = "muster-check",
        .run = discover,
        .arg = &copy,
        .timeout_ns = end_ns > now_ns ? end_ns - now_ns : 1,
        .max_bytes = TOLD_ALL * sizeof(struct node_summary),
    };
    int r = 0;
    if (can_block(config))
        r = helper_call_new(loop, &call, on_answer, g, &g->call);
    else
        gather_now(config, g);
    if (r < 0)
        node_summary_stop(g);
    else
        *ret = g;
    return r;
}
