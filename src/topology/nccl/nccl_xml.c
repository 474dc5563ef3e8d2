#include "topology/nccl/nccl_xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/nccl/nccl_graph_priv.h"
#include "topology/nccl/nccl_xml_priv.h"

/* Each rank adds the bridges, GPU and NETs that the file lacks, before NCCL counts again. From this
 * number on NCCL is known to have exceeded its limit. */
#define MANY_ELEMENTS 120

struct checking {
    const struct nccl_xml *x;
    const struct topology *machine;
    struct nccl_xml_log *log;
};

#define REPORT(c, level, i, ...) \
    nccl_xml_report((c)->log, level, (c)->x->elements[i].line, __VA_ARGS__)

static bool machine_has(const struct checking *c, const char *busid) {
    struct pci_addr at;
    return pci_addr_parse(busid, &at) < 0 || topology_find_pci(c->machine, at) != TOPO_NONE;
}

/* A made-up switch, in domain ffff, need not exist. */
static bool made_up(const char *busid) { return strncmp(busid, "ffff:", 5) == 0; }

/* NCCL ignores an attribute with a misspelled name, so its value is lost. */
static void check_attrs(struct checking *c, uint32_t i) {
    static const char *const known[] = {
        [NCCL_XML_SYSTEM] = " version ",
        [NCCL_XML_CPU] = " host_hash numaid affinity arch vendor familyid modelid ",
        [NCCL_XML_PCI] = " busid class vendor device subsystem_vendor subsystem_device link_speed "
                         "link_width ",
        [NCCL_XML_GPU] = " dev sm rank gdr mlopart ",
        [NCCL_XML_NVLINK] = " target count tclass ",
        [NCCL_XML_C2C] = " bw count ",
        [NCCL_XML_NIC] = " ",
        [NCCL_XML_NET] = " name dev speed port latency guid maxconn gdr coll net gin rma rail "
                         "plane keep ",
        [NCCL_XML_PCILINK] = " target ",
    };
    const struct nccl_xml_element *e = &c->x->elements[i];
    for (uint32_t k = 0; k < e->n_attrs; k++) {
        char key[NCCL_XML_TEXT_MAX + 2];
        const char *value = e->values[k];
        (void)snprintf(key, sizeof key, " %s ", e->keys[k]);
        if (*e->keys[k] != '\0' && strstr(known[e->kind], key) == NULL)
            REPORT(c, NCCL_XML_NOTICE, i, "NCCL does not look at%.60sof %s", key,
                   nccl_xml_kind_name(e->kind));
        if (strchr(value, '&') != NULL)
            REPORT(c, NCCL_XML_WARNING, i, "\"%.60s\" stays as it is: NCCL knows no entities",
                   value);
    }
}

static void check_pci(struct checking *c, uint32_t i) {
    const char *busid = nccl_xml_text(c->x, i, "busid");
    const char *speed = nccl_xml_attr(c->x, i, "link_speed");
    const char *width = nccl_xml_attr(c->x, i, "link_width");
    if (speed != NULL && !nccl_pci_speed_known(speed))
        REPORT(c, NCCL_XML_WARNING, i,
               "link_speed \"%s\" of %s is of no form that NCCL knows: it "
               "counts 8 GT/s (write \"32.0 GT/s PCIe\")",
               speed, busid);
    long lanes = width != NULL ? strtol(width, NULL, 0) : 1;
    if (lanes == 0)
        REPORT(c, NCCL_XML_WARNING, i, "link_width \"%s\" of %s: NCCL counts 16 lanes", width,
               busid);
    else if (lanes > 32 || lanes < 0)
        REPORT(c, NCCL_XML_WARNING, i, "link_width \"%s\" of %s: PCIe has 32 lanes at most", width,
               busid);
    if (c->machine != NULL && !made_up(busid) && !machine_has(c, busid))
        REPORT(c, NCCL_XML_ERROR, i, "%s is not on this machine: the file is of another one",
               busid);
}

/* An attribute of which each element of a kind has its own value. */
static void check_twice(struct checking *c, uint32_t i, const char *key, enum nccl_xml_level level,
                        const char *before, const char *is) {
    const char *value = nccl_xml_attr(c->x, i, key), *other;
    for (uint32_t k = 0; value != NULL && k < i; k++)
        if (c->x->elements[k].kind == c->x->elements[i].kind &&
            (other = nccl_xml_attr(c->x, k, key)) != NULL && strcmp(value, other) == 0) {
            REPORT(c, level, i, "%s%s is %s line %" PRIu32 ", too", before, value, is,
                   c->x->elements[k].line);
            return;
        }
}

static bool is_rank(const struct checking *c, uint32_t i) {
    return c->x->elements[i].kind == NCCL_XML_GPU && nccl_xml_attr(c->x, i, "rank") != NULL;
}

/* The GPU to which an nvlink leads; TOPO_NONE: to none in the file, or to itself. */
static uint32_t target_of(const struct checking *c, uint32_t link) {
    const struct nccl_xml *x = c->x;
    struct pci_addr to, at;
    if (x->elements[link].kind != NCCL_XML_NVLINK ||
        nccl_xml_class_of(nccl_xml_text(x, link, "tclass")) != NCCL_CLASS_GPU ||
        nccl_xml_int(x, link, "count", 0) <= 0 ||
        pci_addr_parse(nccl_xml_text(x, link, "target"), &to) < 0)
        return TOPO_NONE;
    for (uint32_t i = 0; i < x->n; i++)
        if (is_rank(c, i) && i != x->elements[link].parent &&
            pci_addr_parse(nccl_xml_text(x, x->elements[i].parent, "busid"), &at) == 0 &&
            pci_addr_compare(to, at) == 0)
            return i;
    return TOPO_NONE;
}

static void check_nvlink(struct checking *c, uint32_t link) {
    const struct nccl_xml *x = c->x;
    const char *class = nccl_xml_text(x, link, "tclass");
    uint32_t gpu = x->elements[link].parent, peer = target_of(c, link);
    enum nccl_xml_class of = nccl_xml_class_of(class);
    if (of == NCCL_CLASS_PCI || of == NCCL_CLASS_NIC)
        REPORT(c, NCCL_XML_WARNING, link,
               "tclass \"%s\" is of no GPU (0x030200), NVSwitch (0x068000) or CPU (0x068001): NCCL "
               "takes it for an NVSwitch",
               class);
    if (peer == TOPO_NONE || !is_rank(c, gpu))
        return;
    bool back = false;
    for (uint32_t k = peer + 1; k < x->n && !back; k++)
        back = x->elements[k].parent == peer && target_of(c, k) == gpu;
    if (!back)
        REPORT(c, NCCL_XML_ERROR, link,
               "the GPU of line %" PRIu32 " has no nvlink from %s back to %s: NCCL fails on this; "
               "add it there, or leave this one out",
               x->elements[peer].line, nccl_xml_text(x, link, "target"),
               nccl_xml_text(x, x->elements[gpu].parent, "busid"));
}

/* Links to itself are reported when it is read. */
static void check_gpu(struct checking *c, uint32_t i) {
    const struct nccl_xml *x = c->x;
    const char *busid = nccl_xml_text(x, x->elements[i].parent, "busid");
    long count = 0, sm = nccl_xml_int(x, i, "sm", 0);
    bool any = false;
    for (uint32_t k = i + 1; k < x->n; k++) {
        if (x->elements[k].parent != i || x->elements[k].kind != NCCL_XML_NVLINK)
            continue;
        long n = nccl_xml_int(x, k, "count", -1);
        any = true;
        if (n <= 0 || n > 1 << 16)
            REPORT(c, NCCL_XML_ERROR, k,
                   "nvlink without a count above 0: write it, or leave the nvlink out");
        else
            count += n;
    }
    uint32_t most = nccl_nvlinks_max(sm > 0 && sm < 1000 ? (uint32_t)sm : 0);
    if (any && count > (long)most)
        REPORT(c, NCCL_XML_ERROR, i,
               "GPU %s has %ld NVLinks here; a GPU of compute capability "
               "%ld.%ld has %" PRIu32 " at most",
               busid, count, sm / 10, sm % 10, most);
    if (is_rank(c, i) && nccl_xml_int(x, i, "dev", -1) < 0)
        REPORT(c, NCCL_XML_NOTICE, i,
               "gpu without a dev: NCCL fills it in on a machine that has it");
    check_twice(c, i, "dev", NCCL_XML_ERROR, "dev ", "the GPU of");
}

static void check_net(struct checking *c, uint32_t i) {
    const struct nccl_xml *x = c->x;
    const char *name = nccl_xml_text(x, i, "name"), *speed = nccl_xml_attr(x, i, "speed");
    long dev = nccl_xml_int(x, i, "dev", -1);
    if (dev < 0)
        return;
    if (nccl_xml_attr(x, i, "name") == NULL)
        REPORT(c, NCCL_XML_WARNING, i,
               "net without a name: NCCL looks for its NETs by name, and adds them once more");
    if (speed == NULL)
        REPORT(c, NCCL_XML_NOTICE, i,
               "net without a speed: NCCL fills it in on a machine that has it");
    else if (strtol(speed, NULL, 0) <= 0)
        REPORT(c, NCCL_XML_WARNING, i, "speed \"%s\" of the net: NCCL counts 10 Gb/s", speed);
    for (uint32_t k = 0; k < i; k++) {
        if (x->elements[k].kind != NCCL_XML_NET || nccl_xml_int(x, k, "dev", -1) != dev)
            continue;
        const char *first = nccl_xml_text(x, k, "name");
        if (strcmp(first, name) != 0)
            REPORT(c, NCCL_XML_ERROR, i, "dev %ld is %s here and %s in line %" PRIu32, dev, name,
                   first, x->elements[k].line);
        return;
    }
}

static void check_cpu(struct checking *c, uint32_t i) {
    const char *hash = nccl_xml_attr(c->x, i, "host_hash"), *other;
    check_twice(c, i, "numaid", NCCL_XML_WARNING, "numaid ", "in");
    for (uint32_t k = 0; hash != NULL && k < i; k++)
        if (c->x->elements[k].kind == NCCL_XML_CPU &&
            (other = nccl_xml_attr(c->x, k, "host_hash")) != NULL) {
            if (strcmp(hash, other) != 0)
                REPORT(c, NCCL_XML_ERROR, i,
                       "host_hash %s, and %s in line %" PRIu32 ": a file is for one node", hash,
                       other, c->x->elements[k].line);
            return;
        }
}

static void check_elements(struct checking *c) {
    for (uint32_t i = 0; i < c->x->n; i++) {
        check_attrs(c, i);
        switch (c->x->elements[i].kind) {
        case NCCL_XML_CPU: check_cpu(c, i); break;
        case NCCL_XML_PCI:
            check_pci(c, i);
            check_twice(c, i, "busid", NCCL_XML_WARNING, "", "in");
            break;
        case NCCL_XML_GPU: check_gpu(c, i); break;
        case NCCL_XML_NET: check_net(c, i); break;
        case NCCL_XML_NVLINK: check_nvlink(c, i); break;
        case NCCL_XML_C2C:
            if (nccl_xml_int(c->x, i, "bw", 0) <= 0 || nccl_xml_int(c->x, i, "count", 0) <= 0)
                REPORT(c, NCCL_XML_WARNING, i,
                       "c2c without a bw and a count above 0 has no bandwidth");
            break;
        case NCCL_XML_SYSTEM:
        case NCCL_XML_NIC:
        case NCCL_XML_PCILINK: break;
        }
    }
    if (c->x->n >= MANY_ELEMENTS)
        nccl_xml_report(c->log, NCCL_XML_WARNING, 0,
                        "%" PRIu32
                        " elements: with the bridges, GPUs and NETs that NCCL adds on the "
                        "machine they may pass its limit of %d (\"too many XML nodes\")",
                        c->x->n, NCCL_XML_ELEMENTS_MAX);
}

/* Even if a file can be read, NCCL can fail on its graph. */
static void check_graph(struct checking *c, const struct topology *t) {
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = NULL;
    struct err err = {0};
    if (nccl_graph_new(t, &g, &err) < 0)
        nccl_xml_report(c->log, NCCL_XML_ERROR, 0, "%s", err.text);
}

/* Turns a file into a topology, as NCCL would read it (src/graph/topo.cc,
 * ncclTopoGetSystemFromXml). */

struct reading {
    const struct nccl_xml *x;
    struct topology *t;
    struct nccl_xml_log *log;
    uint32_t lost[NCCL_XML_ELEMENTS_MAX];
    uint32_t pci[NCCL_XML_ELEMENTS_MAX]; /* for a pci element: its index in pci[] */
    uint32_t gpu[NCCL_XML_ELEMENTS_MAX]; /* for a gpu element: its index in gpus[] */
    /* PCI devices that are one by class, but have no gpu or nic element */
    unsigned bare_gpus, bare_nics;
};

static unsigned line_of(const struct reading *rd, uint32_t i) { return rd->x->elements[i].line; }

static uint32_t get_u32(const struct reading *rd, uint32_t i, const char *key) {
    long v = nccl_xml_int(rd->x, i, key, 0);
    return v > 0 && v <= INT32_MAX ? (uint32_t)v : 0;
}
static void get_text(const struct reading *rd, uint32_t i, const char *key, char *out,
                     size_t size) {
    const char *value = nccl_xml_text(rd->x, i, key);
    size_t len = MIN2(strlen(value), size - 1); /* longer ones are cut */
    memcpy(out, value, len);
    out[len] = '\0';
}

static bool within_int(long v) { return v >= INT32_MIN && v <= INT32_MAX; }

static void read_cpu_model(struct reading *rd, uint32_t i) {
    struct topology *t = rd->t;
    const char *arch = nccl_xml_attr(rd->x, i, "arch");
    if (t->arch[0] != '\0' || arch == NULL)
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
    const char *value = nccl_xml_attr(rd->x, i, "numaid");
    if (value == NULL)
        return NCCL_XML_FAIL(rd->log, -EINVAL, line_of(rd, i), "cpu has no numaid");
    long numa = strtol(value, NULL, 0);
    if (numa < -1 || numa >= CPUSET_MAX)
        return NCCL_XML_FAIL(rd->log, -EINVAL, line_of(rd, i), "numaid %.40s", value);
    read_cpu_model(rd, i);
    struct cpuset cpus = {0};
    value = nccl_xml_attr(rd->x, i, "affinity");
    if (value != NULL && cpuset_parse_mask(value, &cpus) < 0)
        nccl_xml_report(rd->log, NCCL_XML_WARNING, line_of(rd, i),
                        "affinity \"%s\" is not a mask of CPUs", value);
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
        return NCCL_XML_FAIL(rd->log, -E2BIG, 0, "more than %d NUMA nodes", TOPO_NUMA_MAX);
    n->index = (int32_t)numa;
    n->cpus = cpus;
    return 0;
}

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
    const char *value = nccl_xml_attr(rd->x, i, "busid");
    struct pci_addr at;
    if (value == NULL)
        return NCCL_XML_FAIL(rd->log, -EINVAL, line_of(rd, i), "pci has no busid");
    if (pci_addr_parse(value, &at) < 0)
        return NCCL_XML_FAIL(rd->log, -EINVAL, line_of(rd, i),
                             "busid \"%.60s\" is not a PCI address", value);
    struct topo_pci *p = topology_add_pci(rd->t);
    if (p == NULL)
        return NCCL_XML_FAIL(rd->log, -E2BIG, 0, "more than %d PCI devices", TOPO_PCI_MAX);
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
    p->bridge = p->class_id >> 8 == PCI_CLASS_BRIDGE;
    if (p->parent != TOPO_NONE)
        rd->t->pci[p->parent].bridge = true;
    p->numa = numa_of(rd, i);
    get_text(rd, i, "link_speed", p->link_speed, sizeof p->link_speed);
    p->link_width = get_u32(rd, i, "link_width");
    bool filled = nccl_xml_sub(rd->x, i, NCCL_XML_GPU) != TOPO_NONE ||
                  nccl_xml_sub(rd->x, i, NCCL_XML_NIC) != TOPO_NONE;
    enum nccl_xml_class class = nccl_xml_class_of(nccl_xml_text(rd->x, i, "class"));
    rd->bare_gpus += !filled && class == NCCL_CLASS_GPU;
    rd->bare_nics += !filled && class == NCCL_CLASS_NIC;
    return 0;
}

static int read_gpu(struct reading *rd, uint32_t i) {
    const char *value = nccl_xml_attr(rd->x, i, "rank");
    uint32_t pci = rd->x->elements[i].parent;
    if (value == NULL) {
        nccl_xml_report(rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                        "gpu without a rank is skipped: NCCL fills it in on a machine that has it");
        return 0;
    }
    if (nccl_xml_sub(rd->x, pci, NCCL_XML_GPU) != i)
        return 0; /* 2.30.7 uses the first */
    struct topo_gpu *g = topology_add_gpu(rd->t);
    if (g == NULL)
        return NCCL_XML_FAIL(rd->log, -E2BIG, 0, "more than %d GPUs", TOPO_GPUS_MAX);
    rd->gpu[i] = rd->t->n_gpus - 1;
    g->pci = rd->pci[pci];
    uint16_t vendor = rd->t->pci[g->pci].vendor;
    g->vendor = vendor == PCI_VENDOR_AMD     ? TOPO_VENDOR_AMD
                : vendor == PCI_VENDOR_INTEL ? TOPO_VENDOR_INTEL
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
    const char *target = nccl_xml_text(rd->x, i, "target");
    enum nccl_xml_class class =
        c2c ? NCCL_CLASS_CPU : nccl_xml_class_of(nccl_xml_text(rd->x, i, "tclass"));
    if (class == NCCL_CLASS_GPU) {
        peer = gpu_at(rd, target);
        if (peer == TOPO_NONE || peer == gpu) {
            nccl_xml_report(rd->log, NCCL_XML_WARNING, line_of(rd, i),
                            "nvlink to %s does nothing: %s", target,
                            peer == gpu ? "that is the GPU itself" : "no such GPU is in the file");
            return 0;
        }
    }
    struct topo_nvlink *l = topology_add_nvlink(rd->t);
    if (l == NULL)
        return NCCL_XML_FAIL(rd->log, -E2BIG, 0, "more than %d NVLinks", TOPO_NVLINKS_MAX);
    l->gpu = gpu;
    l->peer = peer;
    l->end = class == NCCL_CLASS_GPU   ? TOPO_NVLINK_GPU
             : class == NCCL_CLASS_CPU ? TOPO_NVLINK_CPU
                                       : TOPO_NVLINK_SWITCH;
    if (pci_addr_parse(target, &l->target) < 0)
        l->target = PCI_ADDR_UNKNOWN;
    l->count = MIN2(get_u32(rd, i, "count"), 1u << 16);
    l->c2c = c2c;
    l->bandwidth = c2c ? l->count * (double)get_u32(rd, i, "bw") / 1000.0 : 0;
    rd->t->nvlinks_known = true;
    return 0;
}

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
    const char *value = nccl_xml_attr(rd->x, i, "speed");
    if (value == NULL)
        return 0;
    long mbps = strtol(value, NULL, 0);
    return mbps <= 0 || mbps > INT32_MAX ? 10000 : (uint64_t)mbps;
}

static int read_net(struct reading *rd, uint32_t i) {
    const char *value = nccl_xml_attr(rd->x, i, "dev");
    if (value == NULL) {
        nccl_xml_report(rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                        "net without a dev is skipped: NCCL fills it in on a machine that has it");
        return 0;
    }
    if (nccl_xml_int(rd->x, i, "net", 1) == 0)
        return 0; /* a part of a fused NET */
    long dev = strtol(value, NULL, 0);
    if (dev < 0 || dev >= INT32_MAX)
        return NCCL_XML_FAIL(rd->log, -EINVAL, line_of(rd, i), "dev \"%.40s\"", value);
    struct topo_nic *n = topology_add_nic(rd->t);
    if (n == NULL)
        return NCCL_XML_FAIL(rd->log, -E2BIG, 0, "more than %d nets", TOPO_NICS_MAX);
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
    n->node_guid = strtoull(nccl_xml_text(rd->x, i, "guid"), NULL, 16);
    if (parse_double(nccl_xml_text(rd->x, i, "latency"), &n->latency) < 0)
        n->latency = 0;
    n->n_ports = 1;
    n->ports[0].number = n->port > 0 ? (uint32_t)n->port : 1;
    n->ports[0].state = TOPO_PORT_ACTIVE;
    n->ports[0].rate_mbps = speed_of_net(rd, i);
    return 0;
}

static void report_lost(struct reading *rd, uint32_t i) {
    const struct nccl_xml_element *e = &rd->x->elements[i];
    if (e->parent != TOPO_NONE && rd->lost[e->parent] != TOPO_NONE)
        return; /* the reason is reported once, at the top */
    const char *busid = nccl_xml_text(rd->x, e->kind == NCCL_XML_PCI ? i : e->parent, "busid");
    bool gpu = e->kind == NCCL_XML_GPU || nccl_xml_sub(rd->x, i, NCCL_XML_GPU) != TOPO_NONE;
    bool nic = nccl_xml_sub(rd->x, rd->lost[i], NCCL_XML_NIC) != TOPO_NONE;
    nccl_xml_report(rd->log, NCCL_XML_ERROR, e->line,
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
            nccl_xml_report(rd->log, NCCL_XML_NOTICE, line_of(rd, i),
                            "pcilink is left out of the prediction");
    }
    if (rd->bare_gpus + rd->bare_nics > 0)
        nccl_xml_report(
            rd->log, NCCL_XML_NOTICE, 0,
            "%u GPUs and %u NICs, by their class, have no gpu or nic element: NCCL fills "
            "them in on a machine that has them",
            rd->bare_gpus, rd->bare_nics);
    if (end < x->n)
        nccl_xml_report(rd->log, NCCL_XML_WARNING, line_of(rd, end),
                        "a second system is ignored: a file is for one node");
    return r;
}

/* *x is zeroed, *ret is empty. */
static int read_file(const char *text, size_t len, struct nccl_xml *x, struct topology *ret,
                     struct nccl_xml_log *log) {
    _cleanup_(freep) struct reading *rd = xcalloc(1, sizeof *rd);
    ret->source = TOPO_NCCL_XML;
    *rd = (struct reading){.x = x, .t = ret, .log = log};
    int r = nccl_xml_parse(text, len, x, log);
    if (r < 0)
        return r;
    nccl_xml_find_lost(x, rd->lost);
    r = read_all(rd);
    if (r == 0)
        topology_sort(ret);
    return r;
}

int nccl_xml_read(const char *text, size_t len, struct topology *ret, nccl_xml_message_fn *fn,
                  void *arg, struct err *err) {
    _cleanup_(nccl_xml_freep) struct nccl_xml *x = xcalloc(1, sizeof *x);
    struct nccl_xml_log log = {.fn = fn, .arg = arg, .err = err};
    topology_fini(ret);
    int r = read_file(text, len, x, ret, &log);
    if (r < 0)
        topology_fini(ret);
    if (r < 0 && log.failed != 0)
        err_prefix(err, "line %" PRIu32, log.failed);
    return r;
}

unsigned nccl_xml_check(const char *text, size_t len, const struct topology *machine,
                        nccl_xml_message_fn *fn, void *arg) {
    _cleanup_(nccl_xml_freep) struct nccl_xml *x = xcalloc(1, sizeof *x);
    _cleanup_(topology_fini) struct topology t = {0};
    struct err err = {0};
    struct nccl_xml_log log = {.fn = fn, .arg = arg, .err = &err};
    struct checking c = {.x = x, .machine = machine, .log = &log};
    if (read_file(text, len, x, &t, &log) < 0) {
        nccl_xml_report(&log, NCCL_XML_ERROR, log.failed, "%s", err.text);
        return log.errors;
    }
    check_elements(&c);
    if (log.errors == 0) /* else it fails because of errors that were reported */
        check_graph(&c, &t);
    return log.errors;
}

/* The file that NCCL would dump: the tree of nccl_graph, before Broadcom's switches are merged. */

struct writing {
    const struct nccl_graph *g;
    struct strbuf *to;
    uint32_t elements, depth;
    bool empty; /* the innermost element, so far */
};

static void new_line(struct writing *w) {
    for (uint32_t i = 0; i < w->depth; i++)
        strbuf_add(w->to, "  ");
}
static void begin(struct writing *w, const char *name) {
    if (w->empty)
        strbuf_add(w->to, ">\n");
    new_line(w);
    strbuf_printf(w->to, "<%s", name);
    w->elements++;
    w->depth++;
    w->empty = true;
}
static void end(struct writing *w, const char *name) {
    w->depth--;
    if (!w->empty)
        new_line(w);
    strbuf_printf(w->to, w->empty ? "/>\n" : "</%s>\n", name);
    w->empty = false;
}

/* Names come from the machine. A quote in a name would end the value, and NCCL has no way to escape
 * it. */
static void attr_text(struct writing *w, const char *key, const char *value) {
    strbuf_printf(w->to, " %s=\"", key);
    size_t len = 0;
    for (const char *p = value; *p != '\0' && len < NCCL_XML_TEXT_MAX - 1; p++, len++)
        strbuf_add_char(w->to, *p == '"' ? '\'' : *p);
    strbuf_add_char(w->to, '"');
}

static void write_cpu(struct writing *w, const struct nccl_node *n) {
    const struct topology *t = w->g->t;
    const struct topo_numa *numa = topology_numa(t, n->numa);
    begin(w, "cpu");
    strbuf_printf(w->to, " numaid=\"%" PRId32 "\"", n->numa);
    if (numa != NULL && !cpuset_is_empty(&numa->cpus)) {
        _cleanup_(strbuf_fini) struct strbuf mask = {0};
        cpuset_write_mask(&numa->cpus, &mask);
        if (mask.len < NCCL_XML_TEXT_MAX - 1) /* NCCL could not read a longer one */
            attr_text(w, "affinity", strbuf_text(&mask));
    }
    if (t->arch[0] != '\0')
        attr_text(w, "arch",
                  strcmp(t->arch, "aarch64") == 0     ? "arm64"
                  : strncmp(t->arch, "ppc64", 5) == 0 ? "ppc64"
                                                      : t->arch);
    if (t->cpu_vendor[0] != '\0') {
        attr_text(w, "vendor", t->cpu_vendor);
        strbuf_printf(w->to, " familyid=\"%" PRIu32 "\" modelid=\"%" PRIu32 "\"", t->cpu_family,
                      t->cpu_model);
    }
}

static void write_pci(struct writing *w, const struct nccl_node *n) {
    const struct topology *t = w->g->t;
    const struct topo_pci *p = &t->pci[n->pci];
    char speed[32];
    uint32_t width;
    begin(w, "pci");
    attr_text(w, "busid", pci_addr_text(p->at).text);
    if (p->class_id != 0)
        strbuf_printf(w->to, " class=\"0x%06" PRIx32 "\"", p->class_id);
    if (p->vendor != 0)
        strbuf_printf(w->to,
                      " vendor=\"0x%04x\" device=\"0x%04x\" subsystem_vendor=\"0x%04x\" "
                      "subsystem_device=\"0x%04x\"",
                      p->vendor, p->device, p->subvendor, p->subdevice);
    nccl_pci_link(t, n->pci, speed, &width);
    if (n->host_bridge) { /* as in NCCL's dump */
        strbuf_add(w->to, " link_speed=\"\" link_width=\"0\"");
        return;
    }
    /* If it is not known, it is left out, so that NCCL asks the system. */
    if (speed[0] != '\0')
        attr_text(w, "link_speed", speed);
    if (width != 0)
        strbuf_printf(w->to, " link_width=\"%" PRIu32 "\"", width);
}

static void write_nvlink(struct writing *w, const struct topo_nvlink *l) {
    const struct topology *t = w->g->t;
    struct pci_addr_text target = {"fffffff:ff:ff.0"}; /* NCCL's text for an unknown target */
    if (l->c2c) {
        begin(w, "c2c");
        strbuf_printf(w->to, " bw=\"%.0f\" count=\"1\"", l->bandwidth * 1000.0);
        end(w, "c2c");
        return;
    }
    if (l->end == TOPO_NVLINK_GPU)
        target = pci_addr_text(t->pci[t->gpus[l->peer].pci].at);
    begin(w, "nvlink");
    attr_text(w, "target", target.text);
    strbuf_printf(w->to, " count=\"%" PRIu32 "\"", l->count);
    attr_text(w, "tclass",
              l->end == TOPO_NVLINK_GPU      ? "0x030200"
              : l->end == TOPO_NVLINK_SWITCH ? "0x068000"
                                             : "0x068001");
    end(w, "nvlink");
}

static bool is_written(const struct writing *w, const struct topo_nvlink *l, uint32_t gpu) {
    const struct topology *t = w->g->t;
    if (l->gpu != gpu || (l->count == 0 && !l->c2c))
        return false;
    return l->end != TOPO_NVLINK_GPU || (l->peer < t->n_gpus && t->gpus[l->peer].pci < t->n_pci);
}

static void write_gpu(struct writing *w, uint32_t gpu) {
    const struct topology *t = w->g->t;
    const struct topo_gpu *p = &t->gpus[gpu];
    begin(w, "gpu");
    strbuf_printf(w->to, " dev=\"%" PRIu32 "\"", p->index);
    if (p->sm != 0)
        strbuf_printf(w->to, " sm=\"%" PRIu32 "\"", p->sm);
    strbuf_printf(w->to, " rank=\"%" PRId32 "\"", p->rank);
    if (p->gdr >= 0)
        strbuf_printf(w->to, " gdr=\"%" PRId32 "\"", p->gdr);
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        if (is_written(w, &t->nvlinks[i], gpu))
            write_nvlink(w, &t->nvlinks[i]);
    end(w, "gpu");
}

static void write_net(struct writing *w, const struct nccl_net *n, uint32_t dev) {
    const struct topo_nic *nic = n->nic != TOPO_NONE ? &w->g->t->nics[n->nic] : NULL;
    begin(w, "net");
    attr_text(w, "name", n->name);
    strbuf_printf(w->to, " dev=\"%" PRIu32 "\" latency=\"%g\"", dev,
                  nic != NULL ? nic->latency : 0.0);
    if (n->mbps != 0)
        strbuf_printf(w->to, " speed=\"%" PRIu64 "\"", MIN2(n->mbps, (uint64_t)INT32_MAX));
    int32_t port = nic == NULL ? 0 : nic->port >= 0 ? nic->port : 1;
    bool socket = nic == NULL || nic->kind == TOPO_NIC_SOCKET;
    strbuf_printf(w->to, " port=\"%" PRId32 "\" guid=\"0x%" PRIx64 "\" maxconn=\"%d\" gdr=\"%d\"",
                  port, nic != NULL ? nic->node_guid : dev, socket ? 65536 : 131072, n->gdr);
    if (nic != NULL && nic->keep)
        strbuf_add(w->to, " keep=\"1\"");
    end(w, "net");
}

static void write_nic(struct writing *w, uint32_t node) {
    const struct nccl_graph *g = w->g;
    begin(w, "nic");
    for (uint32_t i = 0; i < g->n_places; i++)
        if (g->places[i].nic_node == node) {
            const struct nccl_net *n = &g->nets[g->places[i].net];
            write_net(w, n, g->t->source == TOPO_NCCL_XML ? n->dev : g->places[i].net);
        }
    end(w, "nic");
}

/* Opens the element of a node; an element with children stays open. */
static void enter(struct writing *w, uint32_t node) {
    const struct nccl_node *n = &w->g->nodes[node];
    if (n->kind == NCCL_NODE_CPU)
        write_cpu(w, n);
    else if (n->pci != TOPO_NONE)
        write_pci(w, n);
    if (n->kind == NCCL_NODE_GPU && n->pci != TOPO_NONE)
        write_gpu(w, n->index);
    if (n->kind == NCCL_NODE_NIC)
        write_nic(w, node);
}

static void leave(struct writing *w, uint32_t node) {
    const struct nccl_node *n = &w->g->nodes[node];
    if (n->kind == NCCL_NODE_CPU)
        end(w, "cpu");
    else if (n->pci != TOPO_NONE)
        end(w, "pci");
}

static void write_below(struct writing *w, uint32_t cpu) {
    const struct nccl_graph *g = w->g;
    for (uint32_t at = cpu;;) {
        enter(w, at);
        if (g->nodes[at].first_child != TOPO_NONE) {
            at = g->nodes[at].first_child;
            continue;
        }
        leave(w, at);
        while (at != cpu && g->nodes[at].next == TOPO_NONE) {
            at = g->nodes[at].parent;
            leave(w, at);
        }
        if (at == cpu)
            return;
        at = g->nodes[at].next;
    }
}

int nccl_xml_write(const struct topology *t, struct strbuf *to, struct err *err) {
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = NULL;
    int r = nccl_graph_new_tree(t, &g, err);
    if (r < 0)
        return r;
    size_t before = to->len;
    struct writing w = {.g = g, .to = to};
    begin(&w, "system");
    strbuf_add(to, " version=\"1\"");
    for (uint32_t i = 0; i < g->n_cpus; i++)
        write_below(&w, g->cpus[i]);
    end(&w, "system");
    if (w.elements >= NCCL_XML_ELEMENTS_MAX) {
        r = err_set(err, -E2BIG, "%" PRIu32 " elements: NCCL reads %d at most", w.elements,
                    NCCL_XML_ELEMENTS_MAX - 1);
        to->len = before;
        to->data[before] = '\0';
    }
    return r;
}
