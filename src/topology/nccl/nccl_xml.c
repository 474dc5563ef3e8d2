/* Turns a file into a topology, as NCCL would read it (src/graph/topo.cc,
 * ncclTopoGetSystemFromXml). */
#include "topology/nccl/nccl_xml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/nccl/nccl_xml_priv.h"

struct reading {
    const struct nccl_xml *x;
    struct topology *t;
    struct nccl_xml_log log;
    struct err *err;
    uint32_t lost[NCCL_XML_ELEMENTS_MAX];
    uint32_t pci[NCCL_XML_ELEMENTS_MAX]; /* for a pci element: its index in pci[] */
    uint32_t gpu[NCCL_XML_ELEMENTS_MAX]; /* for a gpu element: its index in gpus[] */
    /* PCI devices that are one by class, but have no gpu or nic element */
    unsigned bare_gpus, bare_nics;
};

static unsigned line_of(const struct reading *rd, uint32_t i) { return rd->x->elements[i].line; }

/* Copies an attribute of an element. */
static bool get(const struct reading *rd, uint32_t i, const char *key,
                char out[NCCL_XML_TEXT_MAX]) {
    return nccl_xml_attr(rd->x, i, key, out);
}
static uint32_t get_u32(const struct reading *rd, uint32_t i, const char *key) {
    long v = nccl_xml_int(rd->x, i, key, 0);
    return v > 0 && v <= INT32_MAX ? (uint32_t)v : 0;
}
static void get_text(const struct reading *rd, uint32_t i, const char *key, char *out,
                     size_t size) {
    char value[NCCL_XML_TEXT_MAX];
    (void)get(rd, i, key, value);
    size_t len = MIN2(strlen(value), size - 1); /* longer ones are cut */
    memcpy(out, value, len);
    out[len] = '\0';
}

static bool within_int(long v) { return v >= INT32_MIN && v <= INT32_MAX; }

/* ---- cpu ---- */

static void read_cpu_model(struct reading *rd, uint32_t i) {
    struct topology *t = rd->t;
    char arch[NCCL_XML_TEXT_MAX];
    if (t->arch[0] != '\0' || !get(rd, i, "arch", arch))
        return;
    const char *ours = strcmp(arch, "arm64") == 0   ? "aarch64"
                       : strcmp(arch, "ppc64") == 0 ? "ppc64le"
                                                    : arch;
    (void)snprintf(t->arch, sizeof t->arch, "%.31s", ours);
    get_text(rd, i, "vendor", t->cpu_vendor, sizeof t->cpu_vendor);
    t->cpu_family = get_u32(rd, i, "familyid");
    t->cpu_model = get_u32(rd, i, "modelid");
}

static int read_cpu(struct reading *rd, uint32_t i) {
    char value[NCCL_XML_TEXT_MAX];
    if (!get(rd, i, "numaid", value))
        return err_set(rd->err, -EINVAL, "line %u: cpu has no numaid", line_of(rd, i));
    long numa = strtol(value, NULL, 0);
    if (numa < -1 || numa >= CPUSET_MAX)
        return err_set(rd->err, -EINVAL, "line %u: numaid %.40s", line_of(rd, i), value);
    read_cpu_model(rd, i);
    struct cpuset cpus = {0};
    if (get(rd, i, "affinity", value) && cpuset_parse_mask(value, &cpus) < 0)
        nccl_xml_report(&rd->log, NCCL_XML_WARNING, line_of(rd, i),
                        "affinity \"%s\" is no mask of "
                        "CPUs",
                        value);
    cpuset_or(&rd->t->allowed, &cpus);
    cpuset_or(&rd->t->online, &cpus);
    if (numa < 0)
        return 0;
    for (uint32_t k = 0; k < rd->t->n_numa; k++)
        if (rd->t->numa[k].index == numa) {
            cpuset_or(&rd->t->numa[k].cpus, &cpus);
            return 0;
        }
    struct topo_numa *n = topology_add_numa(rd->t);
    if (n == NULL)
        return err_set(rd->err, -E2BIG, "more than %d NUMA nodes", TOPO_NUMA_MAX);
    n->index = (int32_t)numa;
    n->cpus = cpus;
    return 0;
}

/* ---- pci ---- */

static int32_t numa_of(const struct reading *rd, uint32_t i) {
    while (i != TOPO_NONE && rd->x->elements[i].kind != NCCL_XML_CPU)
        i = rd->x->elements[i].parent;
    return i == TOPO_NONE ? -1 : (int32_t)nccl_xml_int(rd->x, i, "numaid", -1);
}

static uint16_t get_id(const struct reading *rd, uint32_t i, const char *key) {
    return (uint16_t)nccl_xml_int(rd->x, i, key, 0);
}

static int read_pci(struct reading *rd, uint32_t i) {
    const struct nccl_xml_element *e = &rd->x->elements[i];
    char value[NCCL_XML_TEXT_MAX];
    struct pci_addr at;
    if (!get(rd, i, "busid", value))
        return err_set(rd->err, -EINVAL, "line %u: pci has no busid", line_of(rd, i));
    if (pci_addr_parse(value, &at) < 0)
        return err_set(rd->err, -EINVAL, "line %u: busid \"%.60s\" is no PCI address",
                       line_of(rd, i), value);
    struct topo_pci *p = topology_add_pci(rd->t);
    if (p == NULL)
        return err_set(rd->err, -E2BIG, "more than %d PCI devices", TOPO_PCI_MAX);
    rd->pci[i] = rd->t->n_pci - 1;
    p->at = at;
    p->parent = rd->x->elements[e->parent].kind == NCCL_XML_PCI ? rd->pci[e->parent] : TOPO_NONE;
    p->root = p->parent == TOPO_NONE ? (struct pci_addr){at.domain, at.bus, 0, 0}
                                     : rd->t->pci[p->parent].root;
    p->class_id = (uint32_t)nccl_xml_int(rd->x, i, "class", 0) & 0xffffffu;
    p->vendor = get_id(rd, i, "vendor");
    p->device = get_id(rd, i, "device");
    p->subvendor = get_id(rd, i, "subsystem_vendor");
    p->subdevice = get_id(rd, i, "subsystem_device");
    p->bridge = p->class_id >> 8 == 0x0604;
    if (p->parent != TOPO_NONE)
        rd->t->pci[p->parent].bridge = true;
    p->numa = numa_of(rd, i);
    get_text(rd, i, "link_speed", p->link_speed, sizeof p->link_speed);
    p->link_width = get_u32(rd, i, "link_width");
    bool filled = nccl_xml_sub(rd->x, i, NCCL_XML_GPU) != TOPO_NONE ||
                  nccl_xml_sub(rd->x, i, NCCL_XML_NIC) != TOPO_NONE;
    (void)get(rd, i, "class", value);
    if (!filled && nccl_xml_class_of(value) == NCCL_CLASS_GPU)
        rd->bare_gpus++;
    if (!filled && nccl_xml_class_of(value) == NCCL_CLASS_NIC)
        rd->bare_nics++;
    return 0;
}

/* ---- gpu ---- */

static int read_gpu(struct reading *rd, uint32_t i) {
    char value[NCCL_XML_TEXT_MAX];
    uint32_t pci = rd->x->elements[i].parent;
    if (!get(rd, i, "rank", value)) {
        nccl_xml_report(&rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                        "gpu without a rank is skipped: NCCL fills it in on a machine that has it");
        return 0;
    }
    if (nccl_xml_sub(rd->x, pci, NCCL_XML_GPU) != i)
        return 0; /* 2.30.7 uses the first */
    struct topo_gpu *g = topology_add_gpu(rd->t);
    if (g == NULL)
        return err_set(rd->err, -E2BIG, "more than %d GPUs", TOPO_GPUS_MAX);
    rd->gpu[i] = rd->t->n_gpus - 1;
    g->pci = rd->pci[pci];
    uint16_t vendor = rd->t->pci[g->pci].vendor;
    g->vendor = vendor == 0x1002   ? TOPO_VENDOR_AMD
                : vendor == 0x8086 ? TOPO_VENDOR_INTEL
                                   : TOPO_VENDOR_NVIDIA;
    g->numa = rd->t->pci[g->pci].numa;
    long dev = nccl_xml_int(rd->x, i, "dev", -1), rank = strtol(value, NULL, 0);
    long gdr = nccl_xml_int(rd->x, i, "gdr", -1);
    g->index = dev >= 0 && dev < INT32_MAX ? (uint32_t)dev : TOPO_NONE;
    g->rank = within_int(rank) && rank >= 0 ? (int32_t)rank : -1;
    g->sm = get_u32(rd, i, "sm");
    g->gdr = gdr < 0 ? -1 : gdr != 0;
    return 0;
}

static uint32_t gpu_at(const struct reading *rd, const char *target) {
    struct pci_addr at;
    if (pci_addr_parse(target, &at) < 0)
        return TOPO_NONE;
    for (uint32_t i = 0; i < rd->t->n_gpus; i++)
        if (pci_addr_compare(rd->t->pci[rd->t->gpus[i].pci].at, at) == 0)
            return i;
    return TOPO_NONE;
}

/* Call this after all GPUs are read. NCCL ignores a link to a GPU that does not exist, or to
 * itself. */
static int read_link(struct reading *rd, uint32_t i) {
    const struct nccl_xml_element *e = &rd->x->elements[i];
    uint32_t gpu = rd->gpu[e->parent], peer = TOPO_NONE;
    bool c2c = e->kind == NCCL_XML_C2C;
    char target[NCCL_XML_TEXT_MAX], tclass[NCCL_XML_TEXT_MAX];
    (void)get(rd, i, "target", target);
    (void)get(rd, i, "tclass", tclass);
    enum nccl_xml_class class = c2c ? NCCL_CLASS_CPU : nccl_xml_class_of(tclass);
    if (class == NCCL_CLASS_GPU) {
        peer = gpu_at(rd, target);
        if (peer == TOPO_NONE || peer == gpu) {
            nccl_xml_report(&rd->log, NCCL_XML_WARNING, line_of(rd, i),
                            "nvlink to %s does nothing: "
                            "%s",
                            target,
                            peer == gpu ? "that is the GPU itself" : "no such GPU is in the file");
            return 0;
        }
    }
    struct topo_nvlink *l = topology_add_nvlink(rd->t);
    if (l == NULL)
        return err_set(rd->err, -E2BIG, "more than %d NVLinks", TOPO_NVLINKS_MAX);
    l->gpu = gpu;
    l->peer = peer;
    l->end = class == NCCL_CLASS_GPU   ? TOPO_NVLINK_GPU
             : class == NCCL_CLASS_CPU ? TOPO_NVLINK_CPU
                                       : TOPO_NVLINK_SWITCH;
    if (pci_addr_parse(target, &l->target) < 0)
        l->target = (struct pci_addr){UINT32_MAX, 0xff, 0xff, 0xff};
    l->count = MIN2(get_u32(rd, i, "count"), 1u << 16);
    l->c2c = c2c;
    l->bandwidth = c2c ? l->count * (double)get_u32(rd, i, "bw") / 1000.0 : 0;
    rd->t->nvlinks_known = true;
    return 0;
}

/* ---- net ---- */

/* Decides by what each transport writes: sockets have port 0 and 65536 connections, and the
 * plugins' devices have the kernel's names. */
static enum topo_nic_kind kind_of_net(const struct reading *rd, uint32_t i, const char *name) {
    if (nccl_xml_int(rd->x, i, "port", -1) == 0 && nccl_xml_int(rd->x, i, "maxconn", 0) == 65536)
        return TOPO_NIC_SOCKET;
    if (strncmp(name, "rdmap", 5) == 0 || strncmp(name, "efa", 3) == 0)
        return TOPO_NIC_EFA;
    if (strncmp(name, "hsn", 3) == 0 || strncmp(name, "cxi", 3) == 0)
        return TOPO_NIC_SLINGSHOT;
    return TOPO_NIC_RDMA;
}

/* NCCL uses 10 Gb/s for 0 and less. If there is no speed at all, it reads that from the machine, so
 * it is unknown here. */
static uint64_t speed_of_net(const struct reading *rd, uint32_t i) {
    char value[NCCL_XML_TEXT_MAX];
    if (!get(rd, i, "speed", value))
        return 0;
    long mbps = strtol(value, NULL, 0);
    return mbps <= 0 || mbps > INT32_MAX ? 10000 : (uint64_t)mbps;
}

static int read_net(struct reading *rd, uint32_t i) {
    char value[NCCL_XML_TEXT_MAX];
    if (!get(rd, i, "dev", value)) {
        nccl_xml_report(&rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                        "net without a dev is skipped: NCCL fills it in on a machine that has it");
        return 0;
    }
    if (nccl_xml_int(rd->x, i, "net", 1) == 0)
        return 0; /* a part of a fused NET */
    long dev = strtol(value, NULL, 0);
    if (dev < 0 || dev >= INT32_MAX)
        return err_set(rd->err, -EINVAL, "line %u: dev \"%.40s\"", line_of(rd, i), value);
    struct topo_nic *n = topology_add_nic(rd->t);
    if (n == NULL)
        return err_set(rd->err, -E2BIG, "more than %d nets", TOPO_NICS_MAX);
    uint32_t pci = rd->x->elements[rd->x->elements[i].parent].parent;
    n->pci = rd->x->elements[pci].kind == NCCL_XML_PCI ? rd->pci[pci] : TOPO_NONE;
    n->numa = numa_of(rd, i);
    n->dev = (uint32_t)dev;
    get_text(rd, i, "name", n->name, sizeof n->name);
    if (n->name[0] == '\0')
        (void)snprintf(n->name, sizeof n->name, "net%ld", dev);
    n->kind = kind_of_net(rd, i, n->name);
    long gdr = nccl_xml_int(rd->x, i, "gdr", -1), port = nccl_xml_int(rd->x, i, "port", -1);
    n->gdr = gdr < 0 ? -1 : gdr != 0;
    n->port = within_int(port) ? (int32_t)port : -1;
    n->keep = nccl_xml_int(rd->x, i, "keep", 0) != 0;
    (void)get(rd, i, "guid", value);
    n->node_guid = strtoull(value, NULL, 16);
    if (!get(rd, i, "latency", value) || parse_double(value, &n->latency) < 0)
        n->latency = 0;
    n->n_ports = 1;
    n->ports[0].number = n->port > 0 ? (uint32_t)n->port : 1;
    n->ports[0].state = TOPO_PORT_ACTIVE;
    n->ports[0].rate_mbps = speed_of_net(rd, i);
    return 0;
}

/* ---- the whole file ---- */

static void report_lost(struct reading *rd, uint32_t i) {
    const struct nccl_xml_element *e = &rd->x->elements[i];
    if (e->parent != TOPO_NONE && rd->lost[e->parent] != TOPO_NONE)
        return; /* the reason is reported once, at the top */
    char busid[NCCL_XML_TEXT_MAX] = "";
    (void)get(rd, e->kind == NCCL_XML_PCI ? i : e->parent, "busid", busid);
    bool gpu = e->kind == NCCL_XML_GPU || nccl_xml_sub(rd->x, i, NCCL_XML_GPU) != TOPO_NONE;
    bool nic = nccl_xml_sub(rd->x, rd->lost[i], NCCL_XML_NIC) != TOPO_NONE;
    nccl_xml_report(&rd->log, NCCL_XML_ERROR, e->line,
                    "%s %s is lost: NCCL takes the pci of line %u around it for a %s and looks at "
                    "no device in it; put it beside that pci",
                    gpu ? "GPU" : "pci", busid, line_of(rd, rd->lost[i]), nic ? "NIC" : "device");
}

static int read_element(struct reading *rd, uint32_t i) {
    switch (rd->x->elements[i].kind) {
    case NCCL_XML_CPU: return read_cpu(rd, i);
    case NCCL_XML_PCI: return read_pci(rd, i);
    case NCCL_XML_GPU: return read_gpu(rd, i);
    case NCCL_XML_NET: return read_net(rd, i);
    case NCCL_XML_SYSTEM:
    case NCCL_XML_NIC:
    case NCCL_XML_NVLINK: /* handled in the second round */
    case NCCL_XML_C2C:
    case NCCL_XML_PCILINK: return 0;
    }
    return 0;
}

/* Finds where the first system ends: NCCL ignores the others. */
static uint32_t end_of_system(const struct nccl_xml *x) {
    for (uint32_t i = 1; i < x->n; i++)
        if (x->elements[i].kind == NCCL_XML_SYSTEM)
            return i;
    return x->n;
}

static int read_all(struct reading *rd) {
    const struct nccl_xml *x = rd->x;
    uint32_t end = end_of_system(x);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < end; i++) {
        rd->pci[i] = rd->gpu[i] = TOPO_NONE;
        if (rd->lost[i] != TOPO_NONE)
            report_lost(rd, i);
        else
            r = read_element(rd, i);
    }
    for (uint32_t i = 0; r == 0 && i < end; i++) {
        enum nccl_xml_kind k = x->elements[i].kind;
        if ((k == NCCL_XML_NVLINK || k == NCCL_XML_C2C) &&
            rd->gpu[x->elements[i].parent] != TOPO_NONE)
            r = read_link(rd, i);
        else if (k == NCCL_XML_PCILINK)
            nccl_xml_report(&rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                            "pcilink is left out of the prediction");
    }
    if (rd->bare_gpus + rd->bare_nics > 0)
        nccl_xml_report(
            &rd->log, NCCL_XML_NOTICE, 0,
            "%u GPUs and %u NICs, by their class, have no gpu or nic element: NCCL fills "
            "them in on a machine that has them",
            rd->bare_gpus, rd->bare_nics);
    if (end < x->n)
        nccl_xml_report(&rd->log, NCCL_XML_WARNING, line_of(rd, end),
                        "a second system is ignored: a file is for one node");
    return r;
}

int nccl_xml_read(const char *text, size_t len, struct topology *ret, nccl_xml_message_fn *log,
                  void *arg, struct err *err) {
    _cleanup_(freep) struct nccl_xml *x = xcalloc(1, sizeof *x);
    _cleanup_(freep) struct reading *rd = xcalloc(1, sizeof *rd);
    _cleanup_(topology_fini) struct topology t = {.source = TOPO_NCCL_XML};
    uint32_t line;
    *rd = (struct reading){.x = x, .t = &t, .log = {log, arg}, .err = err};
    int r = nccl_xml_parse(text, len, x, &rd->log, &line, err);
    if (r < 0)
        return r;
    nccl_xml_find_lost(x, rd->lost);
    r = read_all(rd);
    if (r < 0)
        return r;
    topology_sort(&t);
    topology_fini(ret);
    *ret = t;
    t = (struct topology){0};
    return 0;
}
