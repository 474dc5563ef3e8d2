/* How far apart two devices of a node are, in nvidia-smi's words (`nvidia-smi topo -m`). Pure.
 *
 * PIX: the same innermost bridge, or two downstream ports of one switch. PXB: below one root port,
 * through more than one switch. PHB: the same root bus (host bridge). NODE: the same NUMA node,
 * which is known. Else SYS. NV#: GPUs joined by NVLink, with the number of links, whatever their
 * PCI distance is; behind NVSwitches it is the number of links that each of the two has. (Source:
 * nvidia-smi's legend. The rule was derived from recorded matrices; some of VMs and consumer boards
 * show SYS where it gives NODE.) */
#pragma once

#include "topology/model/topology.h"

enum topo_path {
    TOPO_PATH_SELF = 1,
    TOPO_PATH_NV,
    TOPO_PATH_PIX,
    TOPO_PATH_PXB,
    TOPO_PATH_PHB,
    TOPO_PATH_NODE,
    TOPO_PATH_SYS,
};

struct topo_link {
    enum topo_path path;
    uint32_t nvlinks; /* NV only */
};

/* a, b: indices in pci[], or TOPO_NONE for a device that is not in pci[] (SYS to everything else).
 */
enum topo_path distance_pci(const struct topology *t, uint32_t a, uint32_t b);

/* The devices of the matrix by number: GPUs come first, then NICs, in the order of the topology. */
uint32_t distance_endpoints(const struct topology *t); /* n_gpus + n_nics */
int32_t distance_numa(const struct topology *t, uint32_t i);
struct topo_link distance_between(const struct topology *t, uint32_t a, uint32_t b);
/* "X", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS". */
void topo_link_text(struct topo_link link, char out[16]);
