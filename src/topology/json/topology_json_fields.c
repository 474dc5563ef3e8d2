#include "topology/json/topology_json_priv.h"

#include <stddef.h>

#define FIELD(type, key, kind, member)                                                             \
    {                                                                                              \
        key, JSON_FIELD_##kind, offsetof(struct type, member), sizeof(((struct type *)0)->member), \
            NULL, 0                                                                                \
    }
#define NAMED(type, key, member, names)                                                          \
    {                                                                                            \
        key, JSON_FIELD_NAME, offsetof(struct type, member), sizeof(((struct type *)0)->member), \
            names, ARRAY_SIZE(names)                                                             \
    }
#define TABLE(fields) \
    { fields, ARRAY_SIZE(fields) }

static const char *const sources[] = {[TOPO_LIVE] = "live",
                                      [TOPO_SYSROOT] = "sysroot",
                                      [TOPO_HWLOC_XML] = "hwloc",
                                      [TOPO_NCCL_XML] = "nccl",
                                      [TOPO_JSON] = "json"};
static const char *const vendors[] = {[TOPO_VENDOR_OTHER] = "other",
                                      [TOPO_VENDOR_NVIDIA] = "nvidia",
                                      [TOPO_VENDOR_AMD] = "amd",
                                      [TOPO_VENDOR_INTEL] = "intel"};
static const char *const ends[] = {
    [TOPO_NVLINK_GPU] = "gpu", [TOPO_NVLINK_SWITCH] = "switch", [TOPO_NVLINK_CPU] = "cpu"};
static const char *const nic_kinds[] = {[TOPO_NIC_RDMA] = "rdma",
                                        [TOPO_NIC_EFA] = "efa",
                                        [TOPO_NIC_SLINGSHOT] = "slingshot",
                                        [TOPO_NIC_SOCKET] = "socket"};
static const char *const port_states[] = {
    [TOPO_PORT_UNKNOWN] = "unknown", [TOPO_PORT_DOWN] = "DOWN",     [TOPO_PORT_INIT] = "INIT",
    [TOPO_PORT_ARMED] = "ARMED",     [TOPO_PORT_ACTIVE] = "ACTIVE",
};
static const char *const link_layers[] = {[TOPO_LINK_UNKNOWN] = "unknown",
                                          [TOPO_LINK_INFINIBAND] = "InfiniBand",
                                          [TOPO_LINK_ETHERNET] = "Ethernet"};
static const char *const gid_types[] = {[TOPO_GID_UNKNOWN] = "unknown",
                                        [TOPO_GID_IB] = "IB",
                                        [TOPO_GID_ROCE_V1] = "RoCE v1",
                                        [TOPO_GID_ROCE_V2] = "RoCE v2"};
static const char *const netif_kinds[] = {
    [TOPO_NETIF_PHYSICAL] = "physical", [TOPO_NETIF_LOOPBACK] = "loopback",
    [TOPO_NETIF_BRIDGE] = "bridge",     [TOPO_NETIF_VETH] = "veth",
    [TOPO_NETIF_MACVLAN] = "macvlan",   [TOPO_NETIF_VLAN] = "vlan",
    [TOPO_NETIF_BOND] = "bond",         [TOPO_NETIF_TUNNEL] = "tunnel",
    [TOPO_NETIF_DUMMY] = "dummy",       [TOPO_NETIF_OTHER] = "other",
};

static const struct json_field whole[] = {
    NAMED(topology, "source", source, sources),
    FIELD(topology, "from", TEXT, from),
    FIELD(topology, "host", TEXT, host),
    FIELD(topology, "arch", TEXT, arch),
    FIELD(topology, "cpu_vendor", TEXT, cpu_vendor),
    FIELD(topology, "cpu_family", U32, cpu_family),
    FIELD(topology, "cpu_model", U32, cpu_model),
    FIELD(topology, "packages", U32, packages),
    FIELD(topology, "allowed", CPUS, allowed),
    FIELD(topology, "online", CPUS, online),
    FIELD(topology, "driver", TEXT, driver),
    FIELD(topology, "cuda", TEXT, cuda),
    FIELD(topology, "nvlinks_known", BOOL, nvlinks_known),
};
const struct json_table topology_json_whole = TABLE(whole);

static const struct json_field numa[] = {
    FIELD(topo_numa, "index", I32, index),
    FIELD(topo_numa, "cpus", CPUS, cpus),
    FIELD(topo_numa, "memory_bytes", U64, bytes),
    FIELD(topo_numa, "package", I32, package),
    FIELD(topo_numa, "gpu_memory", BOOL, gpu_memory),
};
const struct json_table topology_json_numa = TABLE(numa);

static const struct json_field cores[] = {
    FIELD(topo_core, "cpus", CPUS, cpus),
    FIELD(topo_core, "first", U32, first),
    FIELD(topo_core, "numa", I32, numa),
    FIELD(topo_core, "package", I32, package),
};
const struct json_table topology_json_cores = TABLE(cores);

static const struct json_field caches[] = {
    FIELD(topo_cache, "level", U32, level),
    FIELD(topo_cache, "cpus", CPUS, cpus),
    FIELD(topo_cache, "first", U32, first),
};
const struct json_table topology_json_caches = TABLE(caches);

static const struct json_field pci[] = {
    FIELD(topo_pci, "bus_id", BUS_ID, at),
    FIELD(topo_pci, "root", BUS_ID, root),
    FIELD(topo_pci, "bridge", BOOL, bridge),
    FIELD(topo_pci, "class", HEX24, class_id),
    FIELD(topo_pci, "vendor", HEX16, vendor),
    FIELD(topo_pci, "device", HEX16, device),
    FIELD(topo_pci, "subvendor", HEX16, subvendor),
    FIELD(topo_pci, "subdevice", HEX16, subdevice),
    FIELD(topo_pci, "numa", I32, numa),
    FIELD(topo_pci, "link_speed", TEXT, link_speed),
    FIELD(topo_pci, "link_width", U32, link_width),
    FIELD(topo_pci, "link_gbs", DOUBLE, link_gbs),
    FIELD(topo_pci, "up_speed", TEXT, up_speed),
    FIELD(topo_pci, "up_width", U32, up_width),
    FIELD(topo_pci, "driver", TEXT, driver),
};
const struct json_table topology_json_pci = TABLE(pci);

static const struct json_field gpus[] = {
    FIELD(topo_gpu, "index", U32, index),
    NAMED(topo_gpu, "vendor", vendor, vendors),
    FIELD(topo_gpu, "name", TEXT, name),
    FIELD(topo_gpu, "uuid", TEXT, uuid),
    FIELD(topo_gpu, "numa", I32, numa),
    FIELD(topo_gpu, "sm", U32, sm),
    FIELD(topo_gpu, "gdr", I32, gdr),
    FIELD(topo_gpu, "rank", I32, rank),
    FIELD(topo_gpu, "pcie_gen", U32, cur_gen),
    FIELD(topo_gpu, "pcie_width", U32, cur_width),
    FIELD(topo_gpu, "pcie_gen_max", U32, max_gen),
    FIELD(topo_gpu, "pcie_width_max", U32, max_width),
    FIELD(topo_gpu, "mig", BOOL, mig),
    FIELD(topo_gpu, "lost", BOOL, lost),
    FIELD(topo_gpu, "memory_bytes", U64, memory_bytes),
    FIELD(topo_gpu, "memory_numa", I32, memory_numa),
    FIELD(topo_gpu, "fabric_uuid", TEXT, fabric_uuid),
    FIELD(topo_gpu, "fabric_clique", U32, fabric_clique),
};
const struct json_table topology_json_gpus = TABLE(gpus);

static const struct json_field nvlinks[] = {
    FIELD(topo_nvlink, "gpu", U32, gpu),
    NAMED(topo_nvlink, "end", end, ends),
    FIELD(topo_nvlink, "peer", U32, peer),
    FIELD(topo_nvlink, "target", BUS_ID, target),
    FIELD(topo_nvlink, "count", U32, count),
    FIELD(topo_nvlink, "c2c", BOOL, c2c),
    FIELD(topo_nvlink, "bandwidth", DOUBLE, bandwidth),
};
const struct json_table topology_json_nvlinks = TABLE(nvlinks);

static const struct json_field nics[] = {
    FIELD(topo_nic, "name", TEXT, name),
    NAMED(topo_nic, "kind", kind, nic_kinds),
    FIELD(topo_nic, "numa", I32, numa),
    FIELD(topo_nic, "netdev", TEXT, netdev),
    FIELD(topo_nic, "driver", TEXT, driver),
    FIELD(topo_nic, "virtual_function", BOOL, virtual_function),
    FIELD(topo_nic, "node_guid", HEX64, node_guid),
    FIELD(topo_nic, "sys_image_guid", HEX64, sys_image_guid),
    FIELD(topo_nic, "dev", U32, dev),
    FIELD(topo_nic, "latency", DOUBLE, latency),
    FIELD(topo_nic, "gdr", I32, gdr),
    FIELD(topo_nic, "port", I32, port),
    FIELD(topo_nic, "keep", BOOL, keep),
};
const struct json_table topology_json_nics = TABLE(nics);

static const struct json_field ports[] = {
    FIELD(topo_port, "number", U32, number),
    NAMED(topo_port, "state", state, port_states),
    FIELD(topo_port, "phys_state", TEXT, phys_state),
    NAMED(topo_port, "link_layer", link_layer, link_layers),
    FIELD(topo_port, "rate_mbps", U64, rate_mbps),
    FIELD(topo_port, "lid", U32, lid),
};
const struct json_table topology_json_ports = TABLE(ports);

static const struct json_field gids[] = {
    FIELD(topo_gid, "index", U32, index),
    FIELD(topo_gid, "gid", GID, gid),
    NAMED(topo_gid, "type", type, gid_types),
    FIELD(topo_gid, "netdev", TEXT, netdev),
};
const struct json_table topology_json_gids = TABLE(gids);

static const struct json_field netifs[] = {
    FIELD(topo_netif, "name", TEXT, name),
    FIELD(topo_netif, "ifindex", U32, ifindex),
    NAMED(topo_netif, "kind", kind, netif_kinds),
    FIELD(topo_netif, "numa", I32, numa),
    FIELD(topo_netif, "driver", TEXT, driver),
    FIELD(topo_netif, "nic", TEXT, nic),
    FIELD(topo_netif, "up", BOOL, up),
    FIELD(topo_netif, "running", BOOL, running),
    FIELD(topo_netif, "mtu", U32, mtu),
    FIELD(topo_netif, "speed_mbps", I64, speed_mbps),
};
const struct json_table topology_json_netifs = TABLE(netifs);

static const struct json_field addrs[] = {
    FIELD(topo_netaddr, "addr", TEXT, addr),
    FIELD(topo_netaddr, "prefix", U32, prefix),
    FIELD(topo_netaddr, "ipv6", BOOL, ipv6),
    FIELD(topo_netaddr, "link_local", BOOL, link_local),
};
const struct json_table topology_json_addrs = TABLE(addrs);
