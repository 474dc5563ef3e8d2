"""Emulated hosts: network namespaces, connected by a bridge in a namespace of its own.

    with Hosts(2) as hosts:
        job.agent("a", …, prefix=hosts.enter(0))
        hosts.cut(1)                                   # its link goes down: it is silent, but alive

Host n is 10.88.0.(n+1) and fd88::(n+1), named host(n+1); no resolver, and no route to the outside. Each has its own
net, uts and mount namespace. The namespaces have no names outside: they live as long as the processes that hold them.

Hosts(3, far=2): hosts 3 and 4 are behind a second bridge, so that cut_from_near(0) leaves host 0 only the far ones.
Faults of a whole host: crash (its processes die, its kernel closes their connections), power_off (it is silent, and its
processes are dead), freeze (all its processes stop; its kernel still answers), and thaw.
"""
import contextlib
import os
import pathlib
import signal
import subprocess

HOLD = ("import os, sys, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n")  # until the test closes our standard input, or ends


class NoNamespaces(Exception):
    """This machine or user can't create namespaces."""


class Hosts:
    def __init__(self, count, ipv4=True, ipv6=True, far=0, names=False):
        self.near, self.count, self.ipv4, self.ipv6, self.names = count, count + far, ipv4, ipv6, names
        self._holders, self._nets = [], {}

    def __enter__(self):
        if os.geteuid() != 0:
            raise NoNamespaces("needs root")
        try:
            self.switch = self._hold()
            self._ip(self.switch, "link add br0 type bridge", "link set br0 up", "link set lo up")
            if self.count > self.near:
                # A port that is isolated on br1 reaches only the far hosts: the near bridge, and near hosts that are
                # cut from it.
                self._ip(self.switch, "link add br1 type bridge", "link set br1 up",
                         "link add up0 type veth peer name up1", "link set up0 master br0 up",
                         "link set up1 master br1 up", "link set up1 type bridge_slave isolated on")
            self.pids = [self._hold() for _ in range(self.count)]
            for n, pid in enumerate(self.pids):
                self._wire(n, pid)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise NoNamespaces(f"{error} {getattr(error, 'stderr', '')}") from error
        return self

    def __exit__(self, *exc):
        for holder in self._holders:
            holder.stdin.close()
            holder.wait(10)
            holder.stdout.close()

    def _hold(self):
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "/usr/bin/python3", "-c", HOLD],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._holders.append(holder)
        if holder.stdout.readline() != b"up\n":
            raise OSError("unshare failed")
        return holder.pid

    def _in(self, pid, *words):
        subprocess.run(["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--", *words], check=True,
                       capture_output=True, text=True)

    def _ip(self, pid, *lines):
        for line in lines:
            self._in(pid, "ip", *line.split())

    def _wire(self, n, pid):
        self._ip(self.switch, f"link add p{n} type veth peer name eth0 netns {pid}",
                 f"link set p{n} master {self._bridge(n)} up")
        self._ip(pid, "link set lo up")
        if self.ipv4:
            self._ip(pid, f"addr add 10.88.0.{n + 1}/24 dev eth0")
        if self.ipv6:
            self._ip(pid, f"-6 addr add fd88::{n + 1}/64 dev eth0 nodad")
        else:
            self._in(pid, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6")
        self._ip(pid, "link set eth0 up")
        self._in(pid, "hostname", f"host{n + 1}")
        # No name service: an empty hosts file, and a resolver that does not exist. With names, the file has the hosts,
        # and no other source is asked, because torchrun looks names up all the time.
        known = "".join(f"{self.address(i)} host{i + 1}\\n" for i in range(self.count)) if self.names else ""
        self._in(pid, "sh", "-c", f"printf '127.0.0.1 localhost\\n{known}' > /run/hosts.$$; mount --bind /run/hosts.$$ "
                                  "/etc/hosts; rm -f /run/hosts.$$; mount --bind /dev/null /etc/resolv.conf")
        if self.names:
            self._in(pid, "sh", "-c", "printf 'passwd: files\\ngroup: files\\nhosts: files\\n' > /run/nss.$$;"
                                      "mount --bind /run/nss.$$ /etc/nsswitch.conf; rm -f /run/nss.$$")

    def enter(self, n):
        """The command line prefix that runs a command on host n."""
        return ["nsenter", f"--target={self.pids[n]}", "--net", "--uts", "--mount", "--"]

    def address(self, n):
        return f"10.88.0.{n + 1}" if self.ipv4 else f"fd88::{n + 1}"

    def _bridge(self, n):
        return "br0" if n < self.near else "br1"

    def cut(self, n):
        """Frames to and from host n are lost, without any error for either side."""
        self._ip(self.switch, f"link set p{n} nomaster")

    def cut_from_near(self, n):
        """From now on the near host n reaches only the far hosts, and they reach it."""
        self._ip(self.switch, f"link set p{n} master br1", f"link set p{n} type bridge_slave isolated on")

    def heal(self, n):
        self._ip(self.switch, f"link set p{n} master {self._bridge(n)}")

    def processes(self, n):
        """The processes of host n, oldest first, without the one that holds its namespaces."""
        if n not in self._nets:
            self._nets[n] = os.readlink(f"/proc/{self.pids[n]}/ns/net")
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/net") == self._nets[n]:
                    found.append(int(name))
        return sorted(pid for pid in found if pid != self.pids[n])

    def _signal(self, n, signo, done):
        """Sends a signal to all processes of host n, until every one has received it."""
        reached = set()
        while True:
            left = [pid for pid in self.processes(n) if state(pid) not in done and pid not in reached]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signo)
            reached.update(left)

    def crash(self, n):
        """Every process of host n dies; its kernel ends their connections."""
        self._signal(n, signal.SIGKILL, "ZX")

    def power_off(self, n):
        """Host n is silent, and every process of it is dead."""
        self.cut(n)
        self.crash(n)

    def freeze(self, n):
        """Every process of host n stops; its kernel still answers."""
        self._signal(n, signal.SIGSTOP, "ZXT")

    def thaw(self, n):
        self._signal(n, signal.SIGCONT, "ZX")


def state(pid):
    """The letter of its state in /proc/PID/stat; X if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


@contextlib.contextmanager
def hosts_or_skip(count, **more):
    import pytest
    try:
        with Hosts(count, **more) as hosts:
            yield hosts
    except NoNamespaces as why:
        pytest.skip(f"no network namespaces here: {why}")
