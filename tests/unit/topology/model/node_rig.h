/* Nodes for tests, built in C. */
#pragma once

#include <inttypes.h>

#include "rig/unit.h"
#include "topology/model/topology.h"

static inline uint32_t rig_pci(struct topology *t, const char *at, uint32_t parent, bool bridge, int32_t numa) {
    uint32_t i = t->n_pci;
    struct topo_pci *p = topology_add_pci(t);
    cr_assert_eq(pci_addr_parse(at, &p->at), 0, "%s", at);
    p->parent = parent;
    p->root = parent == TOPO_NONE ? (struct pci_addr){p->at.domain, p->at.bus, 0, 0} : t->pci[parent].root;
    p->bridge = bridge;
    p->class_id = bridge ? 0x060400 : 0;
    p->numa = numa;
    (void)strcpy(p->link_speed, "32.0 GT/s PCIe");
    p->link_width = 16;
    (void)strcpy(p->up_speed, p->link_speed);
    p->up_width = 16;
    return i;
}

static inline uint32_t rig_gpu(struct topology *t, const char *at, uint32_t parent, int32_t numa) {
    uint32_t pci = rig_pci(t, at, parent, false, numa), i = t->n_gpus;
    t->pci[pci].class_id = 0x030200;
    t->pci[pci].vendor = 0x10de;
    t->pci[pci].device = 0x2330;
    struct topo_gpu *g = topology_add_gpu(t);
    g->pci = pci;
    g->index = i;
    g->vendor = TOPO_VENDOR_NVIDIA;
    g->numa = numa;
    g->sm = 90;
    (void)strcpy(g->name, "NVIDIA H100 80GB HBM3");
    return i;
}

static inline uint32_t rig_nic(struct topology *t, const char *name, const char *at, uint32_t parent, int32_t numa) {
    uint32_t i = t->n_nics, pci = TOPO_NONE;
    if (at != NULL) {
        pci = rig_pci(t, at, parent, false, numa);
        t->pci[pci].class_id = 0x020700;
        t->pci[pci].vendor = 0x15b3;
    }
    struct topo_nic *n = topology_add_nic(t);
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    n->pci = pci;
    n->numa = numa;
    n->n_ports = 1;
    n->ports[0] = (struct topo_port){
        .number = 1, .state = TOPO_PORT_ACTIVE, .link_layer = TOPO_LINK_INFINIBAND, .rate_mbps = 400000};
    return i;
}

static inline void rig_nvlink(struct topology *t, uint32_t gpu, enum topo_nvlink_end end, uint32_t peer,
                              uint32_t count) {
    struct topo_nvlink *l = topology_add_nvlink(t);
    l->gpu = gpu;
    l->end = end;
    l->peer = peer;
    l->count = count;
}

static inline void rig_cpus(struct topology *t, uint32_t nodes, uint32_t cpus, uint32_t nodes_per_package) {
    for (uint32_t i = 0; i < nodes; i++) {
        struct topo_numa *n = topology_add_numa(t);
        n->index = (int32_t)i;
        n->package = (int32_t)(i / nodes_per_package);
        n->bytes = UINT64_C(256) << 30;
        for (uint32_t c = 0; c < cpus; c++)
            cpuset_add(&n->cpus, i * cpus + c);
        cpuset_or(&t->allowed, &n->cpus);
    }
    t->online = t->allowed;
    t->packages = nodes / nodes_per_package;
}

/* Two packages with one node each. Each has two switches, with a GPU and a NIC behind each switch; NVSwitch. */
static inline void rig_dgx(struct topology *t) {
    t->source = TOPO_SYSROOT;
    (void)strcpy(t->host, "node7");
    (void)strcpy(t->from, "a rig");
    (void)strcpy(t->arch, "x86_64");
    (void)strcpy(t->cpu_vendor, "GenuineIntel");
    t->cpu_family = 6;
    t->cpu_model = 0x8f;
    t->nvlinks_known = true;
    rig_cpus(t, 2, 8, 1);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t bus = 0x10 + i * 0x20;
        int32_t numa = (int32_t)i / 2;
        uint32_t root = rig_pci(t, rig_text("0000:%02x:01.0", bus), TOPO_NONE, true, numa);
        uint32_t up = rig_pci(t, rig_text("0000:%02x:00.0", bus + 1), root, true, numa);
        t->pci[up].vendor = 0x1000;
        uint32_t a = rig_pci(t, rig_text("0000:%02x:00.0", bus + 2), up, true, numa);
        uint32_t b = rig_pci(t, rig_text("0000:%02x:01.0", bus + 2), up, true, numa);
        uint32_t gpu = rig_gpu(t, rig_text("0000:%02x:00.0", bus + 3), a, numa);
        rig_nvlink(t, gpu, TOPO_NVLINK_SWITCH, TOPO_NONE, 18);
        (void)rig_nic(t, rig_text("mlx5_%u", i), rig_text("0000:%02x:00.0", bus + 4), b, numa);
    }
    topology_sort(t);
}
