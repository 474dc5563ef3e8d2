/* The hardware of one node: CPUs and NUMA nodes, the PCI tree, GPUs, RDMA devices, network
 * interfaces. Plain data with everything that later steps need, so that each of them is a pure
 * function of it. Filled by discovery_io (this machine, or a recorded tree), hwloc_io (an hwloc
 * XML), nccl_xml (an NCCL topology file) or topology_json. What a source does not contain stays
 * unknown: -1, 0, "" or TOPO_NONE, as described at each field.
 *
 * Order: NUMA nodes, cores and netifs by number or name as the kernel lists them; PCI devices by
 * address, parents before children; GPUs by PCI address (NVML's order, CUDA's with
 * CUDA_DEVICE_ORDER=PCI_BUS_ID); NICs by PCI address, then name (NCCL's order), those of an NCCL
 * file as in the file.
 * Sources: Linux Documentation/ABI/{stable,testing}/sysfs-{bus-pci,class-net,class-infiniband,
 * devices-node}; hwloc 2.9 manual; NVML API reference. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/cpuset.h"
#include "base/text/strbuf.h"
#include "base/util.h"

/* Limits. A larger file is refused with -E2BIG. On a larger machine the rest is left out, with a
 * warning. */
#define TOPO_NUMA_MAX 1024
#define TOPO_CORES_MAX 8192
#define TOPO_CACHES_MAX 8192
#define TOPO_PCI_MAX 8192
#define TOPO_PCI_DEPTH_MAX 64 /* bridges above a device */
#define TOPO_GPUS_MAX 256
#define TOPO_NICS_MAX 512
#define TOPO_PORTS_MAX 8  /* of one NIC */
#define TOPO_GIDS_MAX 256 /* kept of one port; empty ones are not kept */
#define TOPO_NETIFS_MAX 2048
#define TOPO_ADDRS_MAX 16 /* of one interface */
#define TOPO_NVLINKS_MAX 8192
#define TOPO_MIG_MAX 8 /* MIG devices of one GPU */
#define TOPO_WARNINGS_MAX 64

#define TOPO_NAME_MAX 64 /* names of devices and interfaces, with the NUL */
#define TOPO_TEXT_MAX 128
#define TOPO_MIG_UUID_MAX 80 /* "MIG-…", older "MIG-GPU-…/1/0" */
#define TOPO_CHASSIS_MAX 20
#define TOPO_BUSID_MAX 24    /* "0000:1b:00.0", "10000:e1:00.0" */
#define TOPO_NONE UINT32_MAX /* no such index */

/* ---- PCI ---- */

struct pci_addr {
    uint32_t domain; /* may be above 0xffff (VMD) */
    uint8_t bus, dev, fn;
    uint8_t unused; /* 0: without it, a snapshot would contain a byte that was never written */
};
/* "dddd:bb:dd.f" in any case, domain of 4 to 8 digits ("00000000:1B:00.0" as NVML writes it, too).
 */
_must_use_ int pci_addr_parse(const char *text, struct pci_addr *ret);
struct pci_addr_text {
    char text[TOPO_BUSID_MAX];
};
struct pci_addr_text pci_addr_text(struct pci_addr at); /* lower case */
int pci_addr_compare(struct pci_addr a, struct pci_addr b);
/* All ones: an address that is not known. */
#define PCI_ADDR_UNKNOWN ((struct pci_addr){UINT32_MAX, UINT8_MAX, UINT8_MAX, UINT8_MAX, 0})

/* Vendors, base classes, and classes with their subclass (pci.ids). */
enum {
    PCI_VENDOR_AMD = 0x1002,
    PCI_VENDOR_NVIDIA = 0x10de,
    PCI_VENDOR_CRAY = 0x17db,
    PCI_VENDOR_AMAZON = 0x1d0f,
    PCI_VENDOR_INTEL = 0x8086,
    PCI_BASE_NETWORK = 0x02,
    PCI_BASE_DISPLAY = 0x03,
    PCI_BASE_PROCESSOR = 0x0b,
    PCI_BASE_ACCELERATOR = 0x12,
    PCI_CLASS_VGA = 0x0300,
    PCI_CLASS_3D = 0x0302,
    PCI_CLASS_OTHER_DISPLAY = 0x0380,
    PCI_CLASS_BRIDGE = 0x0604,
    PCI_CLASS_OTHER_BRIDGE = 0x0680, /* NVSwitch; with interface 01 an NVLink bridge of a CPU */
    PCI_CLASS_INFINIBAND = 0x0c06,
    PCI_CLASS_ACCELERATOR = 0x1200,
};

/* One PCI function: a bridge or a device. All bridges above a GPU or NIC are included: root port,
 * switch upstream ports, switch downstream ports. From an NCCL file only the bridges in the file
 * are included. */
struct topo_pci {
    struct pci_addr at;
    uint32_t parent;      /* index of the bridge directly above; TOPO_NONE: on a root bus */
    struct pci_addr root; /* its root bus: domain and bus; dev and fn are 0 */
    bool bridge;          /* PCI-PCI bridge (class 0604) */
    uint32_t class_id;    /* 0x030200: class, subclass, interface */
    uint16_t vendor, device, subvendor, subdevice;
    int32_t numa;        /* kernel's number of the NUMA node; -1: not known */
    char link_speed[32]; /* max_link_speed as the kernel or the file writes it; "" unknown */
    uint32_t link_width; /* max_link_width; 0 unknown */
    double link_gbs;     /* GB/s of the link if only that is known (hwloc XML); 0 unknown */
    char up_speed[32];   /* the same two of the port above it, for NCCL's minimum */
    uint32_t up_width;
    char driver[TOPO_NAME_MAX]; /* "" none or unknown */
};

struct topo_numa {
    int32_t index;      /* the kernel's */
    struct cpuset cpus; /* its own, allowed ones only; may be empty */
    struct cpuset near; /* of a node without CPUs (HBM, CXL, Grace): those nearby, if known */
    uint64_t bytes;     /* of memory; 0 none or unknown */
    int32_t package;    /* of these CPUs; -1: none or several */
    bool gpu_memory;    /* memory of a GPU (POWER9, Grace): workers are never bound to it */
};

struct topo_core {
    struct cpuset cpus;    /* its allowed hardware threads; never empty */
    uint32_t first;        /* its lowest hardware thread, allowed or not; TOPO_NONE: of `cpus` */
    int32_t numa, package; /* -1 unknown */
};

struct topo_cache { /* data or unified */
    uint32_t level;
    struct cpuset cpus; /* allowed ones */
    uint32_t first;     /* the lowest CPU below it, allowed or not; TOPO_NONE: of `cpus` */
};

/* ---- GPUs ---- */

enum topo_vendor { TOPO_VENDOR_OTHER = 1, TOPO_VENDOR_NVIDIA, TOPO_VENDOR_AMD, TOPO_VENDOR_INTEL };
/* Whose GPU a PCI function is; 0: it is not a GPU. A card of its vendor's GPU class is one. Another
 * display is one only if it computes, by its driver or a runtime: old servers have an ATI or Intel
 * display for their console. */
enum topo_vendor topo_gpu_vendor(uint16_t vendor, uint16_t class_id, bool computes);

/* Whether the GPU has joined its NVLink fabric: NVML's numbers, and FAILED for completed with an
 * error. */
enum topo_fabric {
    TOPO_FABRIC_NONE = 0,
    TOPO_FABRIC_NOT_STARTED,
    TOPO_FABRIC_IN_PROGRESS,
    TOPO_FABRIC_COMPLETED,
    TOPO_FABRIC_FAILED,
};
extern const char *const topo_fabric_names[TOPO_FABRIC_FAILED + 1]; /* for people and JSON */

struct topo_gpu {
    uint32_t pci;   /* index in pci[] */
    uint32_t index; /* NVML's; equal to its index here unless the source gives another */
    enum topo_vendor vendor;
    char name[TOPO_TEXT_MAX];    /* "NVIDIA H100 80GB HBM3", "" unknown */
    char uuid[96];               /* "GPU-…", "" unknown */
    int32_t numa;                /* that of its PCI device, or NVML's if sysfs does not have it */
    uint32_t sm;                 /* 90: compute capability 9.0; 0 unknown */
    int32_t gdr;                 /* 1: GPUDirect RDMA, 0: none, -1: unknown (counts as 1) */
    int32_t rank;                /* of an NCCL file; -1 none */
    uint32_t cur_gen, cur_width; /* the link now (NVML); 0 unknown */
    uint32_t max_gen, max_width;
    bool mig;                                        /* MIG mode is on */
    char mig_uuids[TOPO_MIG_MAX][TOPO_MIG_UUID_MAX]; /* names of its MIG devices */
    uint32_t n_mig;
    bool lost;             /* NVML: GPU is lost, or needs a reset */
    uint64_t memory_bytes; /* 0 unknown */
    int32_t memory_numa;   /* the NUMA node of its own memory (Grace); -1 none, unknown */
    enum topo_fabric fabric;
    /* Cluster UUID in hex; "" none: not completed, or the fabric ends at this machine (HGX). */
    char fabric_uuid[40];
    uint32_t fabric_clique;
    uint32_t fabric_health;         /* NVML's healthMask; 0 unknown */
    uint32_t fabric_summary;        /* NVML: 1 healthy, 2 unhealthy, 3 limited; 0 unknown */
    char chassis[TOPO_CHASSIS_MAX]; /* serial number of its rack; "" unknown: then so are: */
    uint32_t slot, tray;            /* of the rack */
};

/* A bundle of NVLinks from one GPU to one other end. */
enum topo_nvlink_end { TOPO_NVLINK_GPU = 1, TOPO_NVLINK_SWITCH, TOPO_NVLINK_CPU };
struct topo_nvlink {
    uint32_t gpu; /* index in gpus[] */
    enum topo_nvlink_end end;
    uint32_t peer;          /* GPU: index in gpus[]; else TOPO_NONE */
    struct pci_addr target; /* from the source; all 0xff… unknown */
    uint32_t count;         /* links that are up */
    bool c2c;               /* NVLink-C2C to the CPU: `bandwidth` is known instead of a count */
    double bandwidth;       /* GB/s one way of the whole bundle; 0: count x NCCL's figure */
};

/* ---- RDMA devices ---- */

enum topo_port_state { /* sysfs "4: ACTIVE" and so on; UNKNOWN if there is no such file (EFA) */
                       TOPO_PORT_UNKNOWN = 0,
                       TOPO_PORT_DOWN,
                       TOPO_PORT_INIT,
                       TOPO_PORT_ARMED,
                       TOPO_PORT_ACTIVE,
};
enum topo_link_layer { TOPO_LINK_UNKNOWN = 0, TOPO_LINK_INFINIBAND, TOPO_LINK_ETHERNET };
enum topo_gid_type { TOPO_GID_UNKNOWN = 0, TOPO_GID_IB, TOPO_GID_ROCE_V1, TOPO_GID_ROCE_V2 };

struct topo_gid {
    uint32_t index;
    uint8_t gid[16];
    enum topo_gid_type type;
    char netdev[TOPO_NAME_MAX]; /* "" unknown */
};

struct topo_port {
    uint32_t number; /* 1, 2 … */
    enum topo_port_state state;
    char phys_state[32]; /* "LinkUp", "" unknown */
    enum topo_link_layer link_layer;
    uint64_t rate_mbps; /* 0 unknown */
    uint32_t lid;
    struct topo_gid *gids; /* owned */
    uint32_t n_gids;
};

enum topo_nic_kind { TOPO_NIC_RDMA = 1, TOPO_NIC_EFA, TOPO_NIC_SLINGSHOT, TOPO_NIC_SOCKET };

/* A device through which NCCL or its plugins would send: one of /sys/class/infiniband, a Slingshot
 * interface (cxi0 / hsn0), or a `net` of an NCCL file. Plain Ethernet is in netifs. */
struct topo_nic {
    char name[TOPO_NAME_MAX]; /* "mlx5_0", "rdmap0s6", "hsn0" */
    enum topo_nic_kind kind;
    uint32_t pci; /* TOPO_NONE: no PCI device (a virtual one, or the file has none) */
    int32_t numa;
    char netdev[TOPO_NAME_MAX]; /* its interface, "" none or unknown */
    char driver[TOPO_NAME_MAX];
    bool virtual_function;              /* SR-IOV VF */
    uint64_t node_guid, sys_image_guid; /* 0 unknown */
    struct topo_port ports[TOPO_PORTS_MAX];
    uint32_t n_ports;
    /* of an NCCL file; else dev is TOPO_NONE */
    uint32_t dev;
    double latency;
    int32_t gdr;  /* 1, 0, -1 not known */
    int32_t port; /* the file's; -1 not given */
    bool keep;
};

/* ---- network interfaces ---- */

enum topo_netif_kind {                          /* by its driver, not by its name */
                       TOPO_NETIF_PHYSICAL = 1, /* has a device below it */
                       TOPO_NETIF_LOOPBACK,
                       TOPO_NETIF_BRIDGE,
                       TOPO_NETIF_VETH,
                       TOPO_NETIF_MACVLAN,
                       TOPO_NETIF_VLAN,
                       TOPO_NETIF_BOND,
                       TOPO_NETIF_TUNNEL,
                       TOPO_NETIF_DUMMY,
                       TOPO_NETIF_OTHER,
};

struct topo_netaddr {
    char addr[46];   /* a literal, no zone, no prefix */
    uint32_t prefix; /* length in bits */
    bool ipv6, link_local;
};

struct topo_netif {
    char name[TOPO_NAME_MAX];
    uint32_t ifindex; /* 0 unknown */
    enum topo_netif_kind kind;
    uint32_t pci; /* TOPO_NONE: none */
    int32_t numa;
    char driver[TOPO_NAME_MAX];
    char nic[TOPO_NAME_MAX]; /* the RDMA device of the same card, "" none */
    bool up, running;        /* IFF_UP, IFF_RUNNING (or operstate up if flags are not known) */
    uint32_t mtu;            /* 0 unknown */
    int64_t speed_mbps;      /* 0 or less: not known (NCCL takes 10000) */
    struct topo_netaddr addrs[TOPO_ADDRS_MAX];
    uint32_t n_addrs;
};

/* What a discovery (topology/discover/discovery_io.h) looks for; bits. */
enum {
    DISCOVER_CPUS = 1, /* NUMA, cores, caches, allowed */
    DISCOVER_PCI = 2,  /* bridges, GPUs and NICs with their PCI devices */
    DISCOVER_NICS = 4, /* RDMA devices */
    DISCOVER_NETIFS = 8,
    DISCOVER_NVML = 16,
    DISCOVER_ALL = 31,
};

enum topo_source { TOPO_LIVE = 1, TOPO_SYSROOT, TOPO_HWLOC_XML, TOPO_NCCL_XML, TOPO_JSON };

enum topo_warning {
    TOPO_WARNING_INCOMPLETE = 0, /* something could not be read */
    TOPO_WARNING_FAULT, /* a device or its driver is faulty: workers will fail or be slow */
};

/* Whether CUDA can use memory of other machines of the NVLink domain: it opens a channel device of
 * IMEX, which no driver makes by default. */
enum topo_imex {
    TOPO_IMEX_NONE = 0, /* the driver has no IMEX, or it is not known */
    TOPO_IMEX_MISSING,  /* no channel that this user can open */
    TOPO_IMEX_PRESENT,
};
extern const char *const topo_imex_names[TOPO_IMEX_PRESENT + 1]; /* for people and JSON */

struct topology {
    enum topo_source source;
    char from[256];           /* "this machine", or the path it was read from */
    char host[TOPO_NAME_MAX]; /* host name, "" unknown */
    char arch[32];            /* "x86_64", "aarch64", "ppc64le"; "" unknown */
    char cpu_vendor[32];      /* "GenuineIntel", "AuthenticAMD", "CentaurHauls", …; "" unknown */
    uint32_t cpu_family, cpu_model; /* x86's, from cpuid; 0 unknown */
    uint32_t packages;
    struct cpuset allowed; /* CPUs this process may use */
    struct cpuset online;  /* all of the machine, if known; else the allowed ones */
    struct topo_numa *numa;
    uint32_t n_numa;
    struct topo_core *cores;
    uint32_t n_cores;
    struct topo_cache *caches;
    uint32_t n_caches;
    struct topo_pci *pci;
    uint32_t n_pci;
    struct topo_gpu *gpus;
    uint32_t n_gpus;
    struct topo_nvlink *nvlinks;
    uint32_t n_nvlinks;
    struct topo_nic *nics;
    uint32_t n_nics;
    struct topo_netif *netifs;
    uint32_t n_netifs;
    char driver[TOPO_TEXT_MAX]; /* NVIDIA's, "535.183.01"; "" unknown */
    char cuda[TOPO_NAME_MAX];   /* what the driver supports, "12.4"; "" unknown */
    enum topo_imex imex;
    bool nvlinks_known;                /* false: not known, so a matrix can't show NV# */
    char *warnings[TOPO_WARNINGS_MAX]; /* owned */
    enum topo_warning warning_kinds[TOPO_WARNINGS_MAX];
    uint32_t n_warnings;
};

/* t must be zeroed or filled. It can be used again afterwards. */
void topology_fini(struct topology *t);
/* Each of these appends a zeroed element, with unknown fields set as described above. It returns
 * the element, which is valid until the next append, or NULL if the limit is reached. */
struct topo_numa *topology_add_numa(struct topology *t);
struct topo_core *topology_add_core(struct topology *t);
struct topo_cache *topology_add_cache(struct topology *t);
struct topo_pci *topology_add_pci(struct topology *t);
struct topo_gpu *topology_add_gpu(struct topology *t);
struct topo_nvlink *topology_add_nvlink(struct topology *t);
struct topo_nic *topology_add_nic(struct topology *t);
struct topo_netif *topology_add_netif(struct topology *t);
struct topo_gid *topo_port_add_gid(struct topo_port *p);
/* Return the element of this name, and append it if there is none. */
struct topo_nic *topology_need_nic(struct topology *t, const char *name);
struct topo_netif *topology_need_netif(struct topology *t, const char *name);
/* Adds a warning: INCOMPLETE, or FAULT. Beyond the limit it does nothing. */
void topology_note(struct topology *t, enum topo_warning kind, const char *fmt, ...) _printf_(3, 4);
#define topology_warn(t, ...) topology_note(t, TOPO_WARNING_INCOMPLETE, __VA_ARGS__)
#define topology_fault(t, ...) topology_note(t, TOPO_WARNING_FAULT, __VA_ARGS__)

/* Sorts all arrays into the order described at the top, and corrects the indices between them
 * (parent, pci, gpu, peer). Every source calls it once, at its end. GPU indices that are TOPO_NONE
 * are set. */
void topology_sort(struct topology *t);

uint32_t topology_find_pci(const struct topology *t, struct pci_addr at); /* all: or TOPO_NONE */
uint32_t topology_find_gpu(const struct topology *t, uint32_t pci);       /* by its PCI device */
/* The bridges above a PCI device, innermost first; returns how many. A bus number has eight bits,
 * so no chain is longer. The limit also ends a cycle of parents. */
#define TOPO_CHAIN_MAX 256
uint32_t topology_chain(const struct topology *t, uint32_t pci, uint32_t ret[TOPO_CHAIN_MAX]);
uint32_t topology_find_nic(const struct topology *t, const char *name);
uint32_t topology_find_netif(const struct topology *t, const char *name);
uint32_t topology_count_gpus(const struct topology *t, enum topo_vendor vendor);
/* The address of a PCI function; "?" if it has none. */
struct pci_addr_text topology_bus_id(const struct topology *t, uint32_t pci);
const struct topo_numa *topology_numa(const struct topology *t, int32_t index); /* or NULL */
/* Its own CPUs; those nearby if it has none. */
const struct cpuset *topo_numa_near(const struct topo_numa *n);
/* The highest port state, and the sum of the rates of its ACTIVE ports (of all ports if none is
 * ACTIVE). */
enum topo_port_state topo_nic_state(const struct topo_nic *n);
uint64_t topo_nic_rate_mbps(const struct topo_nic *n);
/* "b8e9:2403:00ba:a4c8"; 0: it is not a GUID. */
uint64_t topo_guid_parse(const char *text);
/* The names shown to people and used in JSON. */
extern const char *const topo_port_state_names[TOPO_PORT_ACTIVE + 1];
extern const char *const topo_netif_kind_names[TOPO_NETIF_OTHER + 1];
/* By the name of the driver that made it: IFLA_INFO_KIND (ip-link(8)), DEVTYPE in sysfs. OTHER: it
 * decides nothing. */
enum topo_netif_kind topo_netif_kind_of(const char *driver);
/* The set of CPUs near a device: those of its NUMA node, or all allowed CPUs if the node is not
 * known. */
void topology_near_cpus(const struct topology *t, int32_t numa, struct cpuset *ret);

/* ---- the NVLink domain ---- */

#define TOPO_DOMAIN_MAX 64
/* The name of this node's NVLink domain: "nvl-UUID.CLIQUE" if all its NVIDIA GPUs (except lost
 * ones) have joined this one; else "chassis-SERIAL" if they belong to a fabric of several machines
 * that is not complete. False, and "": it has none, or they are in two (topology_domain_split()).
 *
 * A fabric that has completed without a UUID ends at the machine (HGX); it is not a domain. */
bool topology_domain(const struct topology *t, char out[TOPO_DOMAIN_MAX]);
/* True: GPUs of this node are in two domains, as one sentence. */
bool topology_domain_split(const struct topology *t, char text[TOPO_TEXT_MAX]);
/* GPUs have NVLink-C2C to the CPU (Grace). */
bool topology_has_c2c(const struct topology *t);
/* A GPU is still joining its fabric: asked again later, the domain can be another one. */
bool topology_fabric_pending(const struct topology *t);
/* True: the fabric of GPUs is not healthy: "2 of 4 GPUs have a faulty NVLink fabric (GPU 1:
 * degraded bandwidth, a route is unhealthy)". By NVML's health mask, else by its summary. */
bool topology_fabric_degraded(const struct topology *t, struct strbuf *to);
/* "healthy, IMEX channel present": what else matters of a node that has a domain. */
void topology_fabric_text(const struct topology *t, struct strbuf *to);
