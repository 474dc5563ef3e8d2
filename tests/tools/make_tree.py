#!/usr/bin/python3
"""Writes a synthetic machine's /sys and /proc into a folder, for tests that take a root prefix.

    make_tree.py PRESET FOLDER [key=value ...]      a preset, with fields of Machine changed
    make_tree.py --list                             the presets

The folder stands for "/": it gets sys/devices/{pci...,system/{cpu,node},virtual/net}, sys/bus/pci, sys/class/{net,
infiniband,drm,pci_bus}, proc/{cpuinfo,meminfo,driver/nvidia,net/vlan}. All symlinks are relative, as the kernel's are.
It is enough for hwloc (HWLOC_FSROOT), for NCCL's walk over /sys/class/pci_bus and for torch.numa. Nothing in it was
recorded anywhere: the numbers are made up, their form is the kernel's. The same call writes the same bytes.

    from make_tree import make, PRESETS
    make("2s-8gpu-8nic", folder, cores=4)
"""
import dataclasses
import os
import pathlib
import struct
import sys

PCIE_GEN = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
ROOT_PORT, UPSTREAM, DOWNSTREAM, ENDPOINT = 4, 5, 6, 0  # types of port in the PCI Express capability


@dataclasses.dataclass
class Gpu:
    vendor: int = 0x10de
    device: int = 0x2330
    subvendor: int = 0x10de
    subdevice: int = 0x16c1
    class_id: int = 0x030200
    driver: str = "nvidia"
    gen: int = 5
    width: int = 16


def mi300x():
    return Gpu(0x1002, 0x74a1, 0x1002, 0x74a1, 0x120000, "amdgpu")


@dataclasses.dataclass
class Nic:
    """A PCI function of a network card: an RDMA device, an interface, or both."""
    rdma: str = ""                 # name below class/infiniband
    net: str = ""                  # name below class/net
    vendor: int = 0x15b3
    device: int = 0x1021
    class_id: int = 0x020700
    driver: str = "mlx5_core"
    link_layer: str = "InfiniBand"  # "" no state files, as EFA
    state: str = "4: ACTIVE"
    phys_state: str = "5: LinkUp"
    rate: str = "400 Gb/sec (4X NDR)"
    lid: int = 1
    gids: tuple = ()               # of (gid text, type text, netdev)
    speed: str = ""                # of the interface; "" the file cannot be read
    up: bool = True
    ports: int = 1
    gen: int = 5
    width: int = 16
    function_of_last: bool = False  # the next function of the card before it
    virtual_function: bool = False


def infiniband(i, **more):
    gid = f"fe80:0000:0000:0000:5c25:7303:00aa:{i:04x}"
    return Nic(rdma=f"mlx5_{i}", net=f"ib{i}", lid=i + 1, gids=((gid, "IB/RoCE v1", f"ib{i}"),), **more)


def mapped(a, b, c, d):
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def roce(i, v4=True, **more):
    net = f"eth{i + 1}"
    local = f"fe80:0000:0000:0000:5e25:73ff:feaa:{i:04x}"
    other = mapped(10, 1, i, 5) if v4 else f"fd00:0000:0000:{i:04x}:0000:0000:0000:0005"
    gids = tuple((gid, kind, net) for gid in (local, other) for kind in ("IB/RoCE v1", "RoCE v2"))
    return Nic(rdma=f"mlx5_{i}", net=net, class_id=0x020000, link_layer="Ethernet", lid=0, gids=gids,
               rate="400 Gb/sec (4X NDR)", speed="400000", **more)


def efa(i):
    gid = f"fe80:0000:0000:0000:0{i:03x}:bcff:fed8:0001"
    return Nic(rdma=f"rdmap{16 + i}s27", vendor=0x1d0f, device=0xefa1, class_id=0x020000, driver="efa",
               link_layer="", gids=((gid, "", ""),), gen=4)


def ethernet(name, speed="25000", **more):
    kind = dict(net=name, vendor=0x8086, device=0x1593, class_id=0x020000, driver="ice", speed=speed, gen=4, width=8)
    return Nic(**{**kind, **more})


def hsn(i):
    return Nic(net=f"hsn{i}", vendor=0x17db, device=0x0501, class_id=0x020000, driver="cxi_ss1", speed="200000", gen=4)


@dataclasses.dataclass
class Place:
    """Where devices sit: below a switch ("switch"), each below a root port ("port"), on the root bus ("bus")."""
    node: int                      # NUMA node, or -1: numa_node says so
    devices: list = dataclasses.field(default_factory=list)
    how: str = "switch"
    domain: int = 0


@dataclasses.dataclass
class Virtual:
    """An interface without a device. type is ARPHRD_*; lower is the interface below (iflink)."""
    name: str
    kind: str                      # bridge, veth, vlan, bond, macvlan, tun, tunnel, vxlan, dummy, wireguard
    lower: str = ""


@dataclasses.dataclass
class Machine:
    sockets: int = 2
    nodes: int = 1                 # NUMA nodes per socket
    cores: int = 16                # per NUMA node
    smt: int = 2
    l3_cores: int = 8              # cores that share a last level cache
    node_ids: tuple = ()           # the kernel's numbers where they are not 0, 1, 2 ...
    possible: str = ""             # of node/possible where it is not the online ones
    memory_nodes: tuple = ()       # NUMA nodes without a CPU
    gpu_memory: bool = False       # memory_nodes are the memory of the GPUs, one each
    no_nodes: bool = False         # a kernel without NUMA: no node folder
    places: tuple = ()
    virtual: tuple = ()
    vendor_files: bool = True      # off: PCI folders without vendor, device and so on
    links: bool = True             # off: no link speeds and widths, as in many VMs
    arch: str = "x86_64"
    grace: bool = False            # 8 nodes per GPU, of which the first has memory


def two_sockets(devices_per_socket, **more):
    """`devices_per_socket[s]`: a list of lists, one per switch; and a network card on the first socket."""
    places = [Place(s, list(group)) for s, groups in enumerate(devices_per_socket) for group in groups]
    return Machine(places=(*places, Place(0, [ethernet("eno1")], "port")), **more)


def pairs(make_nic, gpu=Gpu, per_switch=2, switches=2):
    """Two sockets of `switches` switches, each with as many GPUs as NICs."""
    numbers = iter(range(64))
    return [[[d for i in [next(numbers) for _ in range(per_switch)] for d in (gpu(), make_nic(i))]
             for _ in range(switches)] for _ in range(2)]


def noise():
    virtual = [Virtual("docker0", "bridge"), Virtual("br-1a2b3c4d5e6f", "bridge"), Virtual("virbr0", "bridge"),
               Virtual("bond0", "bond"), Virtual("bond0.100", "vlan", "bond0"), Virtual("tun0", "tun"),
               Virtual("tunl0", "tunnel"), Virtual("flannel.1", "vxlan"), Virtual("wg0", "wireguard"),
               Virtual("macvlan0", "macvlan", "eno1"), Virtual("kube-ipvs0", "dummy")]
    return (*virtual, *(Virtual(f"veth{i:07x}", "veth") for i in range(8)),
            *(Virtual(f"cali{i:011x}", "veth") for i in range(8)))


def dual_port_roce():
    """Four GPUs, two cards of two ports each: two functions of one card, with the state of a real cluster."""
    card = [roce(0), roce(1, function_of_last=True)], [roce(2), roce(3, function_of_last=True, state="1: DOWN",
                                                                     phys_state="3: Disabled", up=False)]
    return [[[Gpu(), Gpu(), *card[0]]], [[Gpu(), Gpu(), *card[1]]]]


PRESETS = {
    "2s-cpu": lambda: two_sockets([[], []]),
    "2s-8gpu-8nic": lambda: two_sockets(pairs(infiniband)),
    "1s-4gpu-1nic": lambda: Machine(sockets=1, places=(Place(0, [Gpu(), Gpu()]), Place(0, [Gpu(), Gpu(), infiniband(0)]),
                                                      Place(0, [ethernet("eth0")], "port"))),
    "docker-noise": lambda: two_sockets([[], []], virtual=noise()),
    "ipv6-only": lambda: two_sockets(pairs(lambda i: roce(i, v4=False), switches=1)),
    "roce-v2": lambda: two_sockets(dual_port_roce()),
    "efa": lambda: Machine(places=(
        *(Place(s, [Gpu(), Gpu(), efa(2 * s + w), Gpu(), Gpu()]) for s in (0, 1) for w in (0,)),
        *(Place(s, [efa(2 * s + 1)]) for s in (0, 1)),
        Place(0, [ethernet("ens32", "", vendor=0x1d0f, device=0xec20, driver="ena")], "bus"))),
    "slingshot": lambda: Machine(sockets=1, nodes=4, cores=8, places=tuple(
        Place(n, [mi300x(), hsn(n)]) for n in range(4))),
    "amd-8gpu": lambda: two_sockets(pairs(roce, mi300x)),
    "vm-flat": lambda: Machine(sockets=1, links=False, places=(
        Place(-1, [Gpu() for _ in range(4)], "bus"),
        Place(-1, [infiniband(i, virtual_function=True) for i in range(4)], "bus"),
        Place(-1, [ethernet("eth0", "-1", vendor=0x1af4, device=0x1041, driver="virtio-pci")], "bus"))),
    "vm-domains": lambda: Machine(sockets=2, places=tuple(
        Place(i // 2, [d], "bus", domain) for i in range(4)
        for domain, d in ((0x1000 + i, Gpu()), (0x10000 + i, infiniband(i, virtual_function=True))))),
    "snc4-gap": lambda: Machine(nodes=4, cores=4, l3_cores=4, node_ids=(0, 1, 2, 3, 8, 9, 10, 11), possible="0-15", places=tuple(
        Place(n, [Gpu(), infiniband(i)]) for i, n in enumerate((0, 2, 8, 11)))),
    "gpu-memory": lambda: Machine(cores=8, smt=4, arch="ppc64le", memory_nodes=(252, 253, 254, 255), gpu_memory=True,
                                  node_ids=(0, 8), possible="0-255", vendor_files=False,
                                  places=(Place(0, [Gpu(gen=3), Gpu(gen=3)], "port", 4),
                                          Place(8, [Gpu(gen=3), Gpu(gen=3)], "port", 0x35))),
    "gb200": lambda: Machine(sockets=2, cores=72, smt=1, l3_cores=72, arch="aarch64", memory_nodes=tuple(range(2, 34)), grace=True,
                             possible="0-33", places=(
        *(Place(s, [Gpu(device=0x2941)], "port", d) for s, d in ((0, 8), (0, 9), (1, 0x18), (1, 0x19))),
        *(Place(s, [infiniband(i)], "port", d) for i, (s, d) in enumerate(((0, 0), (0, 2), (1, 0x10), (1, 0x12)))))),
    "gh200": lambda: Machine(sockets=1, cores=72, smt=1, l3_cores=72, arch="aarch64", memory_nodes=tuple(range(1, 9)), grace=True,
                             possible="0-8", places=(Place(0, [Gpu(device=0x2342)], "port", 9), Place(0, [infiniband(0)], "port", 1))),
    "gh200-4": lambda: Machine(sockets=4, cores=72, smt=1, l3_cores=72, arch="aarch64", memory_nodes=tuple(range(4, 36)), grace=True,
                               possible="0-35", places=tuple(
        Place(s, [d], "port", 16 * s + domain) for s in range(4) for domain, d in ((9, Gpu(device=0x2342)), (1, infiniband(s))))),
    "gb10": lambda: Machine(sockets=1, cores=20, smt=1, l3_cores=10, arch="aarch64", places=(
        Place(-1, [Gpu(device=0x2e12)], "port", 15), Place(-1, [roce(0), roce(1, function_of_last=True)], "port"))),
    "graviton": lambda: Machine(sockets=1, cores=64, smt=1, l3_cores=64, arch="aarch64", places=(
        Place(0, [ethernet("ens5", "", vendor=0x1d0f, device=0xec20, driver="ena")], "bus"),)),
    "no-numa": lambda: Machine(sockets=1, cores=4, l3_cores=4, no_nodes=True, places=(Place(-1, [Gpu(), Gpu()], "port"),)),
}


# --- writing ---------------------------------------------------------------------------------------------------------

def ranges(numbers):
    """1,2,3,7 -> "1-3,7"."""
    runs = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


def mask(numbers, total):
    """The form of cpumap: words of 32 bits, the highest first."""
    words = [0] * max(1, (total + 31) // 32)
    for n in numbers:
        words[n // 32] |= 1 << (n % 32)
    return ",".join(f"{w:08x}" for w in reversed(words))


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.made = set()

    def folder(self, path):
        if path not in self.made:
            os.makedirs(self.root / path, exist_ok=True)
            self.made.add(path)

    def file(self, path, text):
        self.folder(os.path.dirname(path))
        with open(self.root / path, "wb") as f:
            f.write(text if isinstance(text, bytes) else f"{text}\n".encode())

    def link(self, path, target):
        """Both from the root; the link is written relative to where it lies."""
        self.folder(os.path.dirname(path))
        os.symlink(os.path.relpath(target, os.path.dirname(path)), self.root / path)


class Cpus:
    """The numbering of most machines: all first threads by socket and node, then all second ones."""

    def __init__(self, m):
        self.m = m
        self.n_nodes = m.sockets * m.nodes
        self.n_cores = self.n_nodes * m.cores
        self.total = self.n_cores * m.smt
        self.node_ids = list(m.node_ids) or list(range(self.n_nodes))

    def core(self, cpu):
        return cpu % self.n_cores

    def threads(self, cores):
        return [c + t * self.n_cores for t in range(self.m.smt) for c in cores]

    def node_cpus(self, place):
        return self.threads(range(place * self.m.cores, (place + 1) * self.m.cores))

    def socket(self, cpu):
        return self.core(cpu) // (self.m.cores * self.m.nodes)

    def socket_cpus(self, s):
        per = self.m.cores * self.m.nodes
        return self.threads(range(s * per, (s + 1) * per))

    def cache_cpus(self, cpu):
        first = self.core(cpu) // self.m.l3_cores * self.m.l3_cores
        return self.threads(range(first, min(first + self.m.l3_cores, self.n_cores)))


def write_cpus(t, m, cpus):
    base = "sys/devices/system/cpu"
    everyone = range(cpus.total)
    for name in ("online", "possible", "present"):
        t.file(f"{base}/{name}", ranges(everyone))
    for cpu in everyone:
        at = f"{base}/cpu{cpu}"
        groups = {"thread_siblings": cpus.threads([cpus.core(cpu)]), "core_siblings": cpus.socket_cpus(cpus.socket(cpu))}
        groups["core_cpus"], groups["package_cpus"] = groups["thread_siblings"], groups["core_siblings"]
        for name, members in groups.items():
            t.file(f"{at}/topology/{name}", mask(members, cpus.total))
            t.file(f"{at}/topology/{name}_list", ranges(members))
        t.file(f"{at}/topology/physical_package_id", cpus.socket(cpu))
        t.file(f"{at}/topology/core_id", cpus.core(cpu) % (m.cores * m.nodes))
        core, l3 = groups["thread_siblings"], cpus.cache_cpus(cpu)
        for i, (level, kind, size, members) in enumerate(((1, "Data", "48K", core), (1, "Instruction", "32K", core),
                                                         (2, "Unified", "2048K", core), (3, "Unified", "32768K", l3))):
            for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", 64),
                               ("shared_cpu_map", mask(members, cpus.total)), ("shared_cpu_list", ranges(members))):
                t.file(f"{at}/cache/index{i}/{name}", text)


def write_nodes(t, m, cpus):
    if m.no_nodes:
        return
    base = "sys/devices/system/node"
    online = sorted([*cpus.node_ids, *m.memory_nodes])
    t.file(f"{base}/online", ranges(online))
    t.file(f"{base}/possible", m.possible or ranges(online))
    t.file(f"{base}/has_cpu", ranges(cpus.node_ids))
    t.file(f"{base}/has_memory", ranges(online))
    socket = {n: i // m.nodes for i, n in enumerate(cpus.node_ids)}
    for n in online:
        members = cpus.node_cpus(cpus.node_ids.index(n)) if n in socket else []
        distance = [10 if n == o else 80 if n not in socket or o not in socket else
                    12 if socket[n] == socket[o] else 32 for o in online]
        if m.grace:
            n_cpu = len(cpus.node_ids)
            of = lambda k: k if k < n_cpu else (k - n_cpu) // 8 * n_cpu // max(1, len(m.memory_nodes) // 8)
            distance = [10 if n == o else (40 if n < n_cpu and o < n_cpu else 80 if of(n) == of(o) else 120) for o in online]
        t.file(f"{base}/node{n}/cpulist", ranges(members))
        t.file(f"{base}/node{n}/cpumap", mask(members, cpus.total))
        t.file(f"{base}/node{n}/distance", " ".join(map(str, distance)))
        kb = 67108864 if not m.grace or n in cpus.node_ids or (n - len(cpus.node_ids)) % 8 == 0 else 0
        t.file(f"{base}/node{n}/meminfo", f"Node {n} MemTotal:       {kb} kB\nNode {n} MemFree:        {kb // 2} kB")
        t.link(f"sys/bus/node/devices/node{n}", f"{base}/node{n}")
        for cpu in members:
            t.link(f"{base}/node{n}/cpu{cpu}", f"sys/devices/system/cpu/cpu{cpu}")


def write_proc(t, m, cpus):
    if m.arch == "x86_64":
        vendor, family, model, name = "GenuineIntel", 6, 143, "Intel(R) Xeon(R) of no particular kind"
        lines = (f"processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
                 f"model name\t: {name}\nstepping\t: 8\nphysical id\t: {cpus.socket(cpu)}\n" for cpu in range(cpus.total))
    elif m.arch == "aarch64":
        lines = (f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
                 f"CPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n" for cpu in range(cpus.total))
    else:
        lines = (f"processor\t: {cpu}\ncpu\t\t: POWER9, altivec supported\n" for cpu in range(cpus.total))
    t.file("proc/cpuinfo", "\n".join(lines))
    n = m.sockets * m.nodes + len(m.memory_nodes)
    t.file("proc/meminfo", f"MemTotal:       {n * 67108864} kB\nMemFree:        {n * 33554432} kB\nHugepagesize:       2048 kB")


def config_space(vendor, device, class_id, subsystem, port, buses, gen, width):
    """What hwloc reads of it: ids, header type, a bridge's buses, the PCI Express capability with the link."""
    b = bytearray(256)
    struct.pack_into("<HHHH", b, 0, vendor, device, 0x0406, 0x0010)  # command; status: it has capabilities
    b[9], b[10], b[11] = class_id & 0xff, class_id >> 8 & 0xff, class_id >> 16
    b[0x0e] = 1 if buses else 0
    if buses:
        b[0x18], b[0x19], b[0x1a] = buses
    else:
        struct.pack_into("<HH", b, 0x2c, *subsystem)
    b[0x34] = 0x40
    struct.pack_into("<BBH", b, 0x40, 0x10, 0, 2 | port << 4)
    struct.pack_into("<I", b, 0x4c, gen | width << 4)
    struct.pack_into("<H", b, 0x52, gen | width << 4)
    return bytes(b)


class Pci:
    """The PCI tree: each call writes one function and gives back its folder."""

    def __init__(self, t, m, cpus):
        self.t, self.m, self.cpus = t, m, cpus
        self.next_root = {}
        self.last_function = {}

    def root(self, place, buses):
        """A root bus of its own, `buses` numbers wide."""
        bus = self.next_root.get(place.domain, 0)
        self.next_root[place.domain] = bus + (buses + 15) // 16 * 16
        folder = f"sys/devices/pci{place.domain:04x}:{bus:02x}"
        self.bus(folder, place.domain, bus)
        return folder, bus

    def bus(self, folder, domain, bus):
        name = f"{domain:04x}:{bus:02x}"
        self.t.folder(f"{folder}/pci_bus/{name}")
        self.t.link(f"sys/class/pci_bus/{name}", f"{folder}/pci_bus/{name}")

    def function(self, parent, place, at, ids, class_id, port, gen, width, buses=None, driver=""):
        bdf = f"{place.domain:04x}:{at[0]:02x}:{at[1]:02x}.{at[2]}"
        folder = f"{parent}/{bdf}"
        vendor, device, subvendor, subdevice = ids
        files = {"class": f"0x{class_id:06x}", "numa_node": place.node}
        if self.m.vendor_files:
            files |= {"vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "revision": "0x00",
                      "subsystem_vendor": f"0x{subvendor:04x}", "subsystem_device": f"0x{subdevice:04x}"}
            self.t.file(f"{folder}/config", config_space(vendor, device, class_id, ids[2:], port, buses, gen, width))
        if self.m.links:
            files |= {"max_link_speed": PCIE_GEN[gen], "max_link_width": width,
                      "current_link_speed": PCIE_GEN[gen], "current_link_width": width}
        near = self.cpus.node_ids.index(place.node) if place.node in self.cpus.node_ids else -1
        members = self.cpus.node_cpus(near) if near >= 0 else range(self.cpus.total)
        files |= {"local_cpus": mask(members, self.cpus.total), "local_cpulist": ranges(members)}
        for name, text in files.items():
            self.t.file(f"{folder}/{name}", text)
        self.t.link(f"sys/bus/pci/devices/{bdf}", folder)
        if driver:
            self.t.folder(f"sys/bus/pci/drivers/{driver}")
            self.t.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        if buses:
            self.bus(folder, place.domain, buses[1])
        return folder, bdf

    def bridge(self, parent, place, at, port, secondary, last, gen=5):
        ids = (0x1000, 0xc030, 0x1000, 0x0001) if port != ROOT_PORT else (0x8086, 0x352a, 0x8086, 0x0000)
        return self.function(parent, place, at, ids, 0x060400, port, gen, 16, (at[0], secondary, last), "pcieport")[0]

    def device(self, parent, place, at, d):
        """A device of a place; ("gpu" or "nic", its folder, its address)."""
        ids = ((d.vendor, d.device, d.subvendor, d.subdevice) if isinstance(d, Gpu) else
               (d.vendor, d.device, d.vendor, 0x0001))
        return self.function(parent, place, at, ids, d.class_id, ENDPOINT, d.gen, d.width, None, d.driver)

    def cards(self, place):
        """Functions of one card together."""
        cards = []
        for d in place.devices:
            if getattr(d, "function_of_last", False):
                cards[-1].append(d)
            else:
                cards.append([d])
        return cards

    def place(self, place):
        """Yields each device with its folder and address."""
        cards = self.cards(place)
        root, bus = self.root(place, len(cards) + 3)
        if place.how == "bus":
            slots = [(root, bus, 1 + i) for i in range(len(cards))]
        elif place.how == "port":
            slots = [(self.bridge(root, place, (bus, 1 + i, 0), ROOT_PORT, bus + 1 + i, bus + 1 + i), bus + 1 + i, 0)
                     for i in range(len(cards))]
        else:
            last = bus + 2 + len(cards)
            port = self.bridge(root, place, (bus, 1, 0), ROOT_PORT, bus + 1, last)
            upstream = self.bridge(port, place, (bus + 1, 0, 0), UPSTREAM, bus + 2, last)
            slots = [(self.bridge(upstream, place, (bus + 2, i, 0), DOWNSTREAM, bus + 3 + i, bus + 3 + i), bus + 3 + i, 0)
                     for i in range(len(cards))]
        for (parent, on, slot), card in zip(slots, cards):
            for fn, d in enumerate(card):
                yield d, *self.device(parent, place, (on, slot, fn), d)


def write_gpu(t, m, i, gpu, folder, bdf):
    for name in (f"card{i}", f"renderD{128 + i}"):
        t.file(f"{folder}/drm/{name}/uevent", f"DEVNAME=dri/{name}")
        t.link(f"{folder}/drm/{name}/device", folder)
        t.link(f"sys/class/drm/{name}", f"{folder}/drm/{name}")
    if gpu.driver != "nvidia":
        t.file("dev/kfd", "")
        return
    t.file(f"dev/nvidia{i}", "")
    base = f"proc/driver/nvidia/gpus/{bdf}"
    t.file(f"{base}/information", f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t {100 + i}\n"
           f"GPU UUID: \t GPU-00000000-0000-0000-0000-{i:012x}\nBus Type: \t PCIe\nBus Location: \t {bdf}\n"
           f"Device Minor: \t {i}")
    if m.grace:
        t.file(f"{base}/numa_status", f"Node: {m.memory_nodes[8 * i]}\nStatus: online")
    if m.gpu_memory:
        t.file(f"{base}/numa_status", f"Node: {sorted(m.memory_nodes, reverse=True)[i]}\nStatus: online")
    t.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01")


def write_ports(t, folder, nic):
    for p in range(1, nic.ports + 1):
        at = f"{folder}/ports/{p}"
        if nic.link_layer:
            for name, text in (("state", nic.state), ("phys_state", nic.phys_state), ("rate", nic.rate),
                               ("link_layer", nic.link_layer), ("lid", f"0x{nic.lid:x}"), ("lid_mask_count", 0)):
                t.file(f"{at}/{name}", text)
        for i in range(max(16, len(nic.gids)) if nic.link_layer else len(nic.gids)):
            gid, kind, net = nic.gids[i] if i < len(nic.gids) else (":".join(["0000"] * 8), "", "")
            t.file(f"{at}/gids/{i}", gid)
            if kind:  # the kernel answers EINVAL for an empty place
                t.file(f"{at}/gid_attrs/types/{i}", kind)
                t.file(f"{at}/gid_attrs/ndevs/{i}", net)


def write_netif(t, folder, name, index, link=0, type_=1, flags=0x1003, operstate="up", speed="", mtu=1500, **more):
    files = dict(ifindex=index, iflink=link or index, type=type_, flags=f"0x{flags:x}", operstate=operstate, mtu=mtu,
                 address=f"02:00:00:00:{index >> 8:02x}:{index & 0xff:02x}", dev_id="0x0", dev_port=0,
                 uevent=f"INTERFACE={name}\nIFINDEX={index}", carrier=int(operstate == "up"))
    if speed:
        files["speed"] = speed
    for file, text in {**files, **more}.items():
        t.file(f"{folder}/{file}", text)
    t.link(f"sys/class/net/{name}", folder)


def write_nic(t, nic, folder, index):
    """Its RDMA device and its interface; whether the interface took `index`."""
    if nic.virtual_function:
        t.folder("sys/devices/physfn-of-the-host")
        t.link(f"{folder}/physfn", "sys/devices/physfn-of-the-host")
    if nic.rdma:
        at = f"{folder}/infiniband/{nic.rdma}"
        guid = f"5c25:7303:00aa:{index:04x}"
        t.file(f"{at}/node_guid", guid)
        t.file(f"{at}/sys_image_guid", guid)
        t.file(f"{at}/node_type", "1: CA")
        t.link(f"{at}/device", folder)
        t.link(f"sys/class/infiniband/{nic.rdma}", at)
        write_ports(t, at, nic)
    if not nic.net:
        return False
    at = f"{folder}/net/{nic.net}"
    t.link(f"{at}/device", folder)
    write_netif(t, at, nic.net, index, type_=32 if nic.link_layer == "InfiniBand" and nic.rdma else 1,
                flags=0x1003 if nic.up else 0x1002, operstate="up" if nic.up else "down",
                speed=nic.speed if nic.up else "")
    return True


TYPES = {"tunnel": 768, "tun": 65534, "wireguard": 65534}


def write_virtual(t, v, index, indices):
    at = f"sys/devices/virtual/net/{v.name}"
    link = indices.get(v.lower, index)
    more = {}
    if v.kind in ("bridge", "bond", "vlan", "vxlan", "wireguard"):
        more["uevent"] = f"DEVTYPE={v.kind}\nINTERFACE={v.name}\nIFINDEX={index}"
    if v.kind == "veth":
        link = 1000 + index  # its peer, in a container
    if v.kind == "tunnel":
        link = 0  # and 0 is what the kernel writes
    if v.kind == "tun":
        more["tun_flags"] = "0x1001"
    write_netif(t, at, v.name, index, link=link, type_=TYPES.get(v.kind, 1), speed="10000" if v.kind == "veth" else "",
                operstate="unknown" if v.kind in ("tunnel", "dummy", "tun") else "up",
                **({"iflink": 0} if v.kind == "tunnel" else {}), **more)
    if v.kind == "bridge":
        t.file(f"{at}/bridge/stp_state", 0)
    if v.kind == "bond":
        t.file(f"{at}/bonding/mode", "802.3ad 4")
    if v.kind == "vlan":
        t.file(f"proc/net/vlan/{v.name}", f"{v.name}  VID: 100\t REORDER_HDR: 1\nDevice: {v.lower}")
    if v.lower:
        t.link(f"{at}/lower_{v.lower}", f"sys/class/net/{v.lower}")


def make(preset, folder, **changes):
    m = dataclasses.replace(PRESETS[preset](), **changes)
    t = Tree(folder)
    cpus = Cpus(m)
    write_cpus(t, m, cpus)
    write_nodes(t, m, cpus)
    write_proc(t, m, cpus)
    t.folder("sys/class/net")
    write_netif(t, "sys/devices/virtual/net/lo", "lo", 1, type_=772, flags=0x9, operstate="unknown", mtu=65536)
    pci, indices, gpus = Pci(t, m, cpus), {"lo": 1}, 0
    for place in m.places:
        for device, at, bdf in pci.place(place):
            if isinstance(device, Gpu):
                write_gpu(t, m, gpus, device, at, bdf)
                gpus += 1
            elif write_nic(t, device, at, len(indices) + 1):
                indices[device.net] = len(indices) + 1
    for v in m.virtual:
        indices[v.name] = len(indices) + 1
        write_virtual(t, v, indices[v.name], indices)
    return m


def main(args):
    if args == ["--list"]:
        print("\n".join(PRESETS))
        return 0
    if len(args) < 2 or args[0] not in PRESETS:
        print(f"usage: make_tree.py PRESET FOLDER [key=value ...]\npresets: {' '.join(PRESETS)}", file=sys.stderr)
        return 2
    changes = {}
    for text in args[2:]:
        key, _, value = text.partition("=")
        kind = {f.name: type(f.default) for f in dataclasses.fields(Machine)}.get(key)
        if kind not in (int, bool, str):
            print(f"make_tree.py: no field {key} that a word can set", file=sys.stderr)
            return 2
        changes[key] = bool(int(value)) if kind is bool else kind(value)
    make(args[0], args[1], **changes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
