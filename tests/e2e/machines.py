"""Emulated hosts of a cluster, each with its own net, uts, ipc, mount and pid namespace, and its own /dev/shm; other files
are shared, as on a cluster. A bridge on a host of its own, the head, connects them; its user and its services are there.

Host n is 10.88.NET.(n+1) and fd88:NET::(n+1), the head .254. There is no route to the outside, and no name server. A
program of a host is an ordinary process for the test, which may signal it.

Nothing is left, also if the test is killed: the first process of each pid namespace reads from us and ends with us, which
ends all others; a keeper in a session of its own, which ends in the same way, then removes folder and control groups.
"""
import contextlib
import os
import pathlib
import select
import subprocess

import harness
from hosts import NoNamespaces

# $0 is the host's name, $1 the folder of the cluster, $2 what ip is to do.
BEGIN = r"""
set -e
echo up
read -r go
hostname "$0"
printf '%s\n' "$2" | ip -batch -
mount --bind "$1/hosts" /etc/hosts
mount --bind /dev/null /etc/resolv.conf
mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm
"""
# As the first process of the namespace it reaps what has lost its parent, and ends with the test.
STAY = "echo ready\nexec env --ignore-signal=CHLD cat > /dev/null\n"

# Hears the first process of each host, one a line. At the end of the test they end, and all of their namespaces with
# them; only then the rest can be removed.
KEEP = r"""
import contextlib, glob, os, select, shutil, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
folder, groups = sys.argv[1:]
hosts = []
for line in sys.stdin:
    with contextlib.suppress(ProcessLookupError):
        hosts.append(os.pidfd_open(int(line)))
for host in hosts:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(host, signal.SIGKILL)
for host in hosts:
    select.select([host], [], [], 30)
for top in glob.glob(groups) if groups else []:
    for path, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
shutil.rmtree(folder, ignore_errors=True)
"""


class Host:
    """A set of namespaces, by the first process of its pid namespace, which ends with the pipe to us."""

    def __init__(self, cluster, name, script, addresses):
        self.name = name
        self.log = cluster.folder / "log" / f"{name}.start"
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
                 "-c", BEGIN + script + STAY, name, str(cluster.folder), "\n".join(addresses)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=cluster.env(), cwd="/")
        self.pid = 0

    def made(self):
        """Waits until the namespaces are there. Nothing runs in them yet."""
        if not self._hear(b"up\n"):
            raise NoNamespaces(self.log.read_text())
        self.pid = harness.children(self._process.pid)[0]

    def go(self):
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def ready(self):
        assert self._hear(b"ready\n"), f"{self.name} did not start: {self.log.read_text()}"

    def _hear(self, line):
        heard = select.select([self._process.stdout], [], [], 30 * harness.SLOWER)[0]
        return bool(heard) and self._process.stdout.readline() == line

    def processes(self):
        """Every process of the host, but not the one that keeps it."""
        if not self.is_up():
            return []
        own, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/pid") == own and int(name) != self.pid:
                    found.append(int(name))
        return found

    def titles(self):
        """The command lines of these processes."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                found.append(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        return found

    def is_up(self):
        return self._process.poll() is None

    def end(self):
        """Every process of the host is dead when this returns."""
        if self.is_up() and self.pid:
            harness.kill(self.pid)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Machines:
    """For slurm.py and sshd.py, which have: NET, HEAD_NAME, the scripts HEAD and NODE, `folder`, `names`, env(), logs() and
    _up(), which calls _keep_all() and _begin()."""

    def __init__(self, count):
        self.count = count
        self.nodes, self.head, self._keeper = [], None, None

    def __enter__(self):
        try:
            self._up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        if self._keeper:
            self._keeper.stdin.close()
            self._keeper.wait(60)
        for host in [*self.nodes, *([self.head] if self.head else [])]:
            host.end()
        self.nodes, self.head, self._keeper = [], None, None

    # ---- up ----

    def _keep_all(self, groups=""):
        """Starts the keeper, for the folder and the control groups of this pattern."""
        self._keeper = subprocess.Popen(["/usr/bin/python3", "-I", "-c", KEEP, str(self.folder), groups],
                                        stdin=subprocess.PIPE, start_new_session=True, cwd="/")

    def _begin(self):
        """Starts every host."""
        self.head = Host(self, self.HEAD_NAME, self.HEAD, [
            "link set lo up", f"link add br0 address 02:88:{self.NET:02x}:00:00:fe type bridge", "link set br0 up",
            *self._addresses(254, "br0")])
        self.nodes = [self._new_node(n) for n in range(self.count)]
        for host in (self.head, *self.nodes):
            host.made()
        self._keep(self.head, *self.nodes)
        self.head.go()
        self.head.ready()
        self._wire(range(self.count))
        for node in self.nodes:
            node.go()
        for node in self.nodes:
            node.ready()

    def address(self, n):
        return f"10.88.{self.NET}.{n + 1}"

    def _addresses(self, last, link):
        v6 = [f"addr add fd88:{self.NET}::{last:x}/64 dev {link} nodad"] if harness.has_ipv6() else []
        return [f"addr add 10.88.{self.NET}.{last}/24 dev {link}", *v6]

    def _new_node(self, n):
        return Host(self, self.names[n], self.NODE, ["link set lo up", *self._addresses(n + 1, "eth0"), "link set eth0 up"])

    def _keep(self, *hosts):
        self._keeper.stdin.write("".join(f"{host.pid}\n" for host in hosts).encode())
        self._keeper.stdin.flush()

    def _wire(self, numbers):
        """A fixed address, as hardware has: what others know of it stays true when the host comes back."""
        lines = []
        for n in numbers:
            mac = f"02:88:{self.NET:02x}:00:00:{n + 1:02x}"
            lines += [f"link add p{n} type veth peer name eth0 address {mac} netns {self.nodes[n].pid}",
                      f"link set p{n} master br0 up"]
        self._ip(*lines)

    def _ip(self, *lines, check=True):
        subprocess.run(["nsenter", f"--target={self.head.pid}", "--net", "--", "ip", "-batch", "-"], check=check, text=True,
                       input="\n".join(lines) + "\n", capture_output=True)

    # ---- what a user does ----

    def client(self, *words, folder="/", on=None):
        """The command line that runs this on the head, or on host number `on`."""
        host = self.head if on is None else self.nodes[on]
        return ["nsenter", f"--target={host.pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--", "sh", "-c",
                'cd "$0" && exec "$@"', str(folder), *map(str, words)]

    def run(self, *words, folder="/", on=None, env=None, check=True, seconds=30):
        done = subprocess.run(self.client(*words, folder=folder, on=on), env=env or self.env(), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds * harness.SLOWER)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    # ---- faults ----

    def crash(self, n):
        """Every process of the host dies; its kernel ends their connections."""
        self.nodes[n].end()

    def power_off(self, n):
        """The host is silent, and every process of it is dead."""
        self.cut(n)
        self.crash(n)

    def cut(self, n):
        """Frames to and from the host are lost, without any error for either side."""
        self._ip(f"link set p{n} nomaster")

    def heal(self, n):
        self._ip(f"link set p{n} master br0")

    def boot(self, n):
        """A host that was lost is back: the same name and addresses, and nothing runs on it but what NODE starts."""
        assert not self.nodes[n].is_up()
        self._ip(f"link del p{n}", check=False)  # else it goes only when the kernel has tidied up its namespace
        self.nodes[n] = self._new_node(n)
        self.nodes[n].made()
        self._keep(self.nodes[n])
        self._wire([n])
        self.nodes[n].go()
        self.nodes[n].ready()


def pause(seconds):
    """Between two looks at something that tells nobody when it changes."""
    select.select([], [], [], seconds)
