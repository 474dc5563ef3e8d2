"""Faults of the links between emulated hosts: one way, separated, lossy, slow. For Hosts of hosts.py.

    links = Links(hosts)
    links.lacks("slow")            the program or kernel part that this machine lacks for it, or None
    links.part([0], [1, 2])        nothing passes between the two sides
    links.one_way([0], [1, 2])     nothing passes from the first side to the second
    links.lossy(1, 30, "in")       30 % of the frames to host 1 are lost ("out", "both")
    links.slow(1)                  frames from and to host 1 are delayed
    links.clear()                  undoes all of that

nftables drops frames on the bridge, which is in the namespace of the hosts' switch. tc slows links: with netem (a
delay) if the kernel has it, else with tbf (few bytes per second, so that frames queue).
"""
import shutil
import subprocess

TABLE = "bridge e2e"
DELAY = ["netem", "delay", "60ms", "20ms"]
PACE = ["tbf", "rate", "48kbit", "burst", "1600", "latency", "2s"]


class Links:
    def __init__(self, hosts):
        self.hosts = hosts
        self._slowed, self._how = set(), None
        self._no_nft = self._try_nft()

    def _on(self, where, *words):
        return subprocess.run([*where, *words], capture_output=True, text=True)

    def _switch(self, *words):
        return self._on(["nsenter", f"--target={self.hosts.switch}", "--net", "--"], *words)

    def _try_nft(self):
        if not shutil.which("nft"):
            return "nft (Debian: nftables)"
        tried = self._switch("nft", f"add table {TABLE}; add chain {TABLE} faults "
                                    "{ type filter hook forward priority 0; }; "
                                    f"add rule {TABLE} faults numgen random mod 100 < 0 accept; "
                                    f"flush chain {TABLE} faults")
        return f"nftables for bridges in the kernel: {tried.stderr.strip()}" if tried.returncode else None

    def lacks(self, kind):
        """What this machine lacks for this kind of fault; None if the fault can be made."""
        if kind in ("part", "one_way", "lossy"):
            return self._no_nft
        if kind != "slow":
            return None
        if not shutil.which("tc"):
            return "tc (Debian: iproute2)"
        for how in (DELAY, PACE):
            if self._switch("tc", "qdisc", "add", "dev", "lo", "root", *how).returncode == 0:
                self._switch("tc", "qdisc", "del", "dev", "lo", "root")
                self._how = how
                return None
        return "netem and tbf in the kernel"

    def _rule(self, *rules):
        done = self._switch("nft", "; ".join(f"add rule {TABLE} faults {rule}" for rule in rules))
        if done.returncode:
            raise OSError(f"nft: {done.stderr}")

    def one_way(self, from_hosts, to_hosts):
        self._rule(*(f"iifname p{a} oifname p{b} drop" for a in from_hosts for b in to_hosts))

    def part(self, side, other):
        self.one_way(side, other)
        self.one_way(other, side)

    def lossy(self, n, percent, way="both"):
        names = {"out": ["iifname"], "in": ["oifname"], "both": ["iifname", "oifname"]}[way]
        self._rule(*(f"{name} p{n} numgen random mod 100 < {percent} drop" for name in names))

    def slow(self, n):
        if self._how is None and self.lacks("slow"):
            raise OSError(self.lacks("slow"))
        for where, device in (([], f"p{n}"), (self.hosts.enter(n), "eth0")):
            words = ["tc", "qdisc", "replace", "dev", device, "root", *self._how]
            done = self._on(where, *words) if where else self._switch(*words)
            if done.returncode:
                raise OSError(f"tc: {done.stderr}")
        self._slowed.add(n)

    def clear(self):
        if self._no_nft is None:
            self._switch("nft", f"flush chain {TABLE} faults")
        for n in self._slowed:
            self._switch("tc", "qdisc", "del", "dev", f"p{n}", "root")
            self._on(self.hosts.enter(n), "tc", "qdisc", "del", "dev", "eth0", "root")
        self._slowed.clear()
