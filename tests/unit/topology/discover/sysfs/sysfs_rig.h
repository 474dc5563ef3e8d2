/* A tree, and the topology that was read from it; both are cleaned up by the suite's fini, `clean`. */
#pragma once

#include "../../recorded.h"
#include "../../tree_rig.h"
#include "rig/unit.h"
#include "topology/discover/sysfs/sysfs_io.h"

static struct tree tree;
static struct topology topo;

static inline void clean(void) {
    tree_remove(&tree);
    topology_fini(&topo);
}

static inline void fill(void) {
    sysfs_fill_pci(tree.root, &topo);
    sysfs_fill_rdma(tree.root, &topo);
    sysfs_fill_netifs(tree.root, &topo);
    topology_sort(&topo);
}

static inline void fill_preset(const char *preset) {
    tree_preset(&tree, preset);
    fill();
}

#define SKIP_WITHOUT(archive, under)                      \
    do {                                                  \
        if (!tree_recorded(&tree, archive, under, false)) \
            cr_skip_test("%s is not beside us", archive); \
    } while (0)

static inline const struct topo_pci *pci(const char *at) {
    struct pci_addr a;
    cr_assert_eq(pci_addr_parse(at, &a), 0);
    uint32_t i = topology_find_pci(&topo, a);
    cr_assert_neq(i, TOPO_NONE, "%s is there", at);
    return &topo.pci[i];
}

static inline const struct topo_nic *nic(const char *name) {
    uint32_t i = topology_find_nic(&topo, name);
    cr_assert_neq(i, TOPO_NONE, "%s is there", name);
    return &topo.nics[i];
}

static inline const struct topo_netif *netif(const char *name) {
    uint32_t i = topology_find_netif(&topo, name);
    cr_assert_neq(i, TOPO_NONE, "%s is there", name);
    return &topo.netifs[i];
}

static inline void check_chain(const char *at, const char *chain) {
    char got[512];
    recorded_chain(&topo, (uint32_t)(pci(at) - topo.pci), got);
    cr_assert_str_eq(got, chain);
}
