#include "node_rig.h"

#include "rig/unit.h"

static void init(struct rig *r) {
    *r = (struct rig){0};
    r->t.source = TOPO_SYSROOT;
    r->facts.cloud = CLOUD_NONE;
    r->netif = (struct netif_choice){.netif = "eth0", .addr = "10.0.0.2", .why = "the route goes by eth0"};
    r->in = (struct env_input){.mode = NCCL_ENV_FULL,
                               .envp = r->env,
                               .set = r->set,
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

/* What a word sets: its number, or, without one, this. */
#define FIELD(word, member, number) \
    { word, offsetof(struct rig, member), sizeof(((struct rig *)0)->member), number }
static const struct {
    const char *word;
    size_t at, size;
    uint64_t number;
} numbers[] = {
    FIELD("off", in.mode, NCCL_ENV_OFF),
    FIELD("minimal", in.mode, NCCL_ENV_MINIMAL),
    FIELD("nodes", in.n_nodes, 0),
    FIELD("nproc", in.nproc, 0),
    FIELD("rank", in.local_rank, 0),
    FIELD("visible", in.n_visible, 0),
    FIELD("each", in.gpus_per_worker, 0),
    FIELD("virtual", in.virtual_local_rank, 1),
    FIELD("ras", in.ras_port, 0),
    FIELD("debug", in.debug, 1),
    FIELD("strict", in.strict, 1),
    FIELD("preview", in.preview, 1),
    FIELD("omp", in.omp_cores, 1),
    FIELD("cores", in.bound_cores, 0),
    FIELD("nccl", facts.nccl_version, 0),
    FIELD("memlock", facts.memlock_hard, 0),
    FIELD("nofile", facts.nofile_hard, 0),
    FIELD("stack", facts.stack, UINT64_MAX),
    FIELD("shm", facts.shm_bytes, 0),
    FIELD("gone", facts.topo_file_gone, 1),
    FIELD("aws", facts.cloud, CLOUD_AWS),
    FIELD("tcpx", facts.cloud, CLOUD_GCP_TCPX),
    FIELD("tcpxo", facts.cloud, CLOUD_GCP_TCPXO),
    FIELD("gib", facts.cloud, CLOUD_GCP_GIB),
    FIELD("oracle", facts.cloud, CLOUD_ORACLE),
    FIELD("coreweave", facts.cloud, CLOUD_COREWEAVE),
    FIELD("links", t.nvlinks_known, 1),
};

static bool set_number(struct rig *r, const char *word, const char *value) {
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (strcmp(numbers[i].word, word) == 0) {
            uint64_t n = value != NULL ? strtoull(value, NULL, 10) : numbers[i].number;
            memcpy((char *)r + numbers[i].at, &n, numbers[i].size); /* the lowest byte is first */
            return true;
        }
    return false;
}

static void add_text(char **list, char *text) {
    size_t n = 0;
    for (; list[n] != NULL; n++)
        continue;
    cr_assert_lt(n, RIG_TEXTS_MAX);
    list[n] = text;
}

/* "*:3:v2:v4": of all NICs, or of one, the GID at index 3. */
static void add_gids(struct rig *r, char *value) {
    char *nic = strsep(&value, ":"), *index = strsep(&value, ":"), *type = strsep(&value, ":");
    enum topo_gid_type of = strcmp(type, "v1") == 0   ? TOPO_GID_ROCE_V1
                            : strcmp(type, "v2") == 0 ? TOPO_GID_ROCE_V2
                                                      : TOPO_GID_IB;
    for (uint32_t i = 0; i < r->t.n_nics; i++)
        if (nic[0] == '*' || (uint32_t)atoi(nic) == i)
            rig_gid(&r->t.nics[i], (uint32_t)atoi(index), of, value);
}

/* GPUs and CPU are those of a rack, with NVLink between nodes. */
static void be_rack(struct rig *r) {
    for (uint32_t i = 0; i < r->t.n_gpus; i++) {
        r->t.gpus[i].fabric = TOPO_FABRIC_COMPLETED;
        (void)strcpy(r->t.gpus[i].fabric_uuid, "3f8e2a10");
    }
    r->t.imex = TOPO_IMEX_PRESENT;
    *topology_add_nvlink(&r->t) = (struct topo_nvlink){.end = TOPO_NVLINK_CPU, .c2c = true, .count = 1};
}

static void apply(struct rig *r, char *word) {
    char *value = word, *first;
    word = strsep(&value, ":");
    if (set_number(r, word, value))
        return;
    if (strcmp(word, "env") == 0) {
        add_text(r->env, value);
    } else if (strcmp(word, "set") == 0) {
        add_text(r->set, value);
    } else if (strcmp(word, "etc") == 0) {
        nccl_conf_parse("/etc/nccl.conf", value, strlen(value), &r->facts.system_conf);
    } else if (strcmp(word, "home") == 0) {
        nccl_conf_parse("/home/u/.nccl.conf", value, strlen(value), &r->facts.user_conf);
    } else if (strcmp(word, "gpus") == 0) {
        rig_gpus(r, (uint32_t)atoi(value), TOPO_LINK_INFINIBAND, 400);
    } else if (strcmp(word, "roce") == 0) {
        rig_gpus(r, (uint32_t)atoi(value), TOPO_LINK_ETHERNET, 200);
    } else if (strcmp(word, "roce400") == 0) {
        rig_gpus(r, (uint32_t)atoi(value), TOPO_LINK_ETHERNET, 400);
    } else if (strcmp(word, "rdmap") == 0) { /* the NICs are EFA */
        for (uint32_t i = 0; i < r->t.n_nics; i++) {
            (void)snprintf(r->t.nics[i].name, sizeof r->t.nics[i].name, "rdmap%us0", i + 16);
            r->t.nics[i].kind = TOPO_NIC_EFA;
            r->t.nics[i].ports[0] = (struct topo_port){.number = 1, .state = TOPO_PORT_UNKNOWN};
        }
    } else if (strcmp(word, "ib") == 0 || strcmp(word, "eth") == 0) { /* NAME:RATE */
        first = strsep(&value, ":");
        rig_nic(r, first, word[0] == 'i' ? TOPO_LINK_INFINIBAND : TOPO_LINK_ETHERNET, (uint32_t)atoi(value));
    } else if (strcmp(word, "down") == 0) {
        r->t.nics[atoi(value)].ports[0].state = TOPO_PORT_DOWN;
    } else if (strcmp(word, "efa") == 0) {
        for (uint32_t i = 0; i < (uint32_t)atoi(value); i++)
            (i < r->t.n_nics ? &r->t.nics[i] : rig_nic(r, "rdmap1s0", TOPO_LINK_UNKNOWN, 0))->kind = TOPO_NIC_EFA;
    } else if (strcmp(word, "gid") == 0) {
        add_gids(r, value);
    } else if (strcmp(word, "netif") == 0) { /* NAME:ADDR */
        first = strsep(&value, ":");
        rig_netif(r, first, value);
    } else if (strcmp(word, "stopped") == 0) {
        r->t.netifs[atoi(value)].running = false;
    } else if (strcmp(word, "rack") == 0) {
        be_rack(r);
    } else if (strcmp(word, "amd") == 0) {
        r->t.gpus[0].vendor = TOPO_VENDOR_AMD;
    } else if (strcmp(word, "torch") == 0) {
        (void)snprintf(r->facts.torch_version, sizeof r->facts.torch_version, "%s", value);
    } else if (strcmp(word, "product") == 0) {
        (void)snprintf(r->facts.signs.product_name, sizeof r->facts.signs.product_name, "%s", value);
    } else if (strcmp(word, "plugin") == 0) {
        r->facts.plugins[r->facts.n_plugins++] = xstrdup(value);
    } else if (strcmp(word, "log") == 0) {
        r->in.log_dir = value;
    } else if (strcmp(word, "comm") == 0) {
        r->in.comm_id = value;
    } else {
        cr_assert_fail("unknown word \"%s\"", word);
    }
}

void rig_make(struct rig *r, const char *words) {
    rig_fini(r);
    init(r);
    cr_assert_lt(snprintf(r->text, sizeof r->text, "%s", words), (int)sizeof r->text);
    char *rest = r->text;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        for (char *c = word; *c != '\0'; c++)
            *c = *c == '~' ? ' ' : *c == '|' ? '\n' : *c;
        if (word[0] != '\0')
            apply(r, word);
    }
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
    for (uint32_t i = 0; i < r->result.warnings.n; i++)
        if (strstr(r->result.warnings.list[i], part) != NULL)
            return true;
    return false;
}
