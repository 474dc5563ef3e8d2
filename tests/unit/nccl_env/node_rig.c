#include "node_rig.h"

#include "rig/unit.h"

static char *no_env[] = {NULL};

void rig_init(struct rig *r) {
    *r = (struct rig){0};
    r->t.source = TOPO_SYSROOT;
    r->facts.cloud = CLOUD_NONE;
    r->netif = (struct netif_choice){.netif = "eth0", .addr = "10.0.0.2", .why = "the route goes by eth0"};
    r->in = (struct env_input){.mode = NCCL_ENV_FULL,
                               .envp = no_env,
                               .topology = &r->t,
                               .facts = &r->facts,
                               .netif = &r->netif,
                               .n_nodes = 2,
                               .nproc = 8};
}

void rig_fini(struct rig *r) {
    env_result_fini(&r->result);
    nccl_graph_free(r->graph);
    nccl_facts_fini(&r->facts);
    topology_fini(&r->t);
}

static uint32_t add_pci(struct rig *r, uint8_t bus, uint8_t dev, uint32_t class_id, uint32_t parent) {
    struct topo_pci *p = topology_add_pci(&r->t);
    p->at = (struct pci_addr){.bus = bus, .dev = dev};
    p->root = (struct pci_addr){.bus = (uint8_t)(bus & 0xf0)};
    p->class_id = class_id;
    p->bridge = class_id == 0x060400;
    p->parent = parent;
    p->numa = 0;
    (void)snprintf(p->link_speed, sizeof p->link_speed, "32.0 GT/s PCIe");
    p->link_width = 16;
    return r->t.n_pci - 1;
}

static void add_cpus(struct rig *r) {
    if (r->t.n_numa > 0)
        return;
    struct topo_numa *n = topology_add_numa(&r->t);
    n->index = 0;
    for (uint32_t i = 0; i < 4; i++) {
        cpuset_add(&n->cpus, i);
        cpuset_add(&r->t.allowed, i);
        cpuset_add(&r->t.online, i);
    }
    (void)snprintf(r->t.arch, sizeof r->t.arch, "x86_64");
    (void)snprintf(r->t.cpu_vendor, sizeof r->t.cpu_vendor, "GenuineIntel");
    r->t.packages = 1;
}

static struct topo_nic *add_nic(struct rig *r, const char *name, uint32_t pci, enum topo_link_layer layer,
                                uint32_t rate_gbps) {
    struct topo_nic *n = topology_add_nic(&r->t);
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    n->kind = TOPO_NIC_RDMA;
    n->pci = pci;
    n->numa = 0;
    n->node_guid = n->sys_image_guid = r->t.n_nics;
    n->n_ports = 1;
    n->ports[0] = (struct topo_port){
        .number = 1, .state = TOPO_PORT_ACTIVE, .link_layer = layer, .rate_mbps = rate_gbps * UINT64_C(1000)};
    return n;
}

void rig_gpus(struct rig *r, uint32_t n, enum topo_link_layer layer, uint32_t rate_gbps) {
    add_cpus(r);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bus = (uint8_t)(0x10 * (i + 1));
        uint32_t root = add_pci(r, bus, 0, 0x060400, TOPO_NONE);
        uint32_t below = add_pci(r, (uint8_t)(bus + 2), 0, 0x060400, root);
        uint32_t gpu = add_pci(r, (uint8_t)(bus + 1), 0, 0x030200, below);
        r->t.pci[gpu].vendor = 0x10de;
        struct topo_gpu *g = topology_add_gpu(&r->t);
        g->pci = gpu;
        g->vendor = TOPO_VENDOR_NVIDIA;
        g->sm = 90;
        g->numa = 0;
        (void)snprintf(g->name, sizeof g->name, "NVIDIA H100");
        (void)add_nic(r, rig_text("mlx5_%u", i), add_pci(r, (uint8_t)(bus + 1), 1, 0x020700, below), layer, rate_gbps);
    }
    r->in.any_gpu = true;
}

struct topo_nic *rig_nic(struct rig *r, const char *name, enum topo_link_layer layer, uint32_t rate_gbps) {
    add_cpus(r);
    return add_nic(r, name, add_pci(r, (uint8_t)(0xe0 + r->t.n_nics), 2, 0x020000, TOPO_NONE), layer, rate_gbps);
}

void rig_gid(struct topo_nic *n, uint32_t index, enum topo_gid_type type, const char *kind) {
    struct topo_gid *g = topo_port_add_gid(&n->ports[0]);
    g->index = index;
    g->type = type;
    memset(g->gid, 0, sizeof g->gid);
    if (strcmp(kind, "v4") == 0) {
        g->gid[10] = g->gid[11] = 0xff;
        g->gid[12] = 10;
    } else {
        g->gid[0] = strcmp(kind, "link-local") == 0 ? 0xfe : 0xfd;
        g->gid[1] = 0x80;
    }
    g->gid[15] = 7;
}

struct topo_netif *rig_netif(struct rig *r, const char *name, const char *addr) {
    struct topo_netif *n = topology_add_netif(&r->t);
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    n->kind = strcmp(name, "lo") == 0 ? TOPO_NETIF_LOOPBACK : TOPO_NETIF_PHYSICAL;
    n->up = n->running = true;
    if (addr != NULL) {
        n->n_addrs = 1;
        (void)snprintf(n->addrs[0].addr, sizeof n->addrs[0].addr, "%s", addr);
        n->addrs[0].ipv6 = strchr(addr, ':') != NULL;
        n->addrs[0].link_local = strncmp(addr, "fe80", 4) == 0 || strncmp(addr, "169.254.", 8) == 0;
    }
    return n;
}

void rig_conf(struct rig *r, bool user, const char *path, const char *text) {
    nccl_conf_parse(path, text, strlen(text), user ? &r->facts.user_conf : &r->facts.system_conf);
}

void rig_resolve(struct rig *r) {
    struct err err = {0};
    env_result_fini(&r->result);
    nccl_graph_free(r->graph);
    r->graph = NULL;
    if (r->t.n_gpus > 0) {
        topology_sort(&r->t);
        cr_assert_eq(nccl_graph_new(&r->t, &r->graph, &err), 0, "%s", err.text);
    }
    r->in.graph = r->graph;
    env_resolve(&r->in, &r->result);
}

const struct env_choice *rig_find(struct rig *r, const char *name) {
    rig_resolve(r);
    return env_result_find(&r->result, name);
}

const char *rig_set(struct rig *r, const char *name) {
    const struct env_choice *c = rig_find(r, name);
    return c != NULL && (c->action == ENV_SET || c->action == ENV_ASKED) ? c->value : NULL;
}

bool rig_warns(struct rig *r, const char *part) {
    rig_resolve(r);
    for (uint32_t i = 0; i < r->result.n_warnings; i++)
        if (strstr(r->result.warnings[i], part) != NULL)
            return true;
    return false;
}
