"""Real sshd's on emulated hosts, all from Debian's packages: what a user has who can log in to N machines without a password.

    with Sshd(4) as cluster:
        cluster.run("ssh", "node2", "hostname").stdout        # on the login host, as a user's shell would
        cluster.cut(1)                                        # node2 is silent, but alive
        assert not cluster.left()                             # no host has a process but its sshd

Host n is 10.88.2.(n+1) and fd88:2::(n+1), named node(n+1); the user's own is 10.88.2.254, named login. Each has its own
net, uts, ipc, mount and pid namespace, its own /dev/shm, /run, /etc/passwd and home folder; other files are shared, as on
a cluster. There is no route to the outside, and no name server. A program of a host is an ordinary process for the test.

Logins are by a key of the cluster's own. ssh finds it by the login host's ~/.ssh, where each host has its Host entry, and
known_hosts has the hosts' keys; it asks nothing (StrictHostKeyChecking). Nothing of the machine's own ~/.ssh and /etc/ssh
is read by sshd or written. Each host's sshd also answers on port 2222, and also knows the user `me`. Further entries,
for hosts that are bad: `refused` (a port without a listener), `liar` (another key than known_hosts says), `locked` (the
key of somebody else, so that only a password would do), `absent` (an address that nobody has), `nowhere` (not a name).

Nothing is left, also if the test is killed: see machines.py.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from hosts import NoNamespaces
from machines import Machines, pause

PROGRAMS = ("sshd", "ssh", "ssh-keygen")
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
SHELL = "/bin/bash"
# In the title that sshd gives itself where it waits for logins.
LISTENER = "[listener]"

# $0 is the host's name, $1 the folder of the cluster. sshd wants an empty folder of its own below /run.
COMMON = r"""
mount -t tmpfs -o size=16m,mode=755 run /run
mkdir /run/sshd
mount --bind "$1/passwd.$0" /etc/passwd
"""
START = '"$SSHD" -f "$1/sshd_config.$0" -E "$1/log/sshd.$0" < /dev/null >&2'
NODE = f"{COMMON}\nSSHD={SSHD}\n{START}\n"

SSHD_CONFIG = """\
Port 22
Port 2222
HostKey {folder}/keys/{name}
AuthorizedKeysFile {folder}/keys/user.pub
PidFile {folder}/sshd.{name}.pid
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
LogLevel VERBOSE
MaxStartups 100
"""
ENTRY = "Host {name}\n  HostName {address}\n  HostKeyAlias {alias}\n  IdentityFile {folder}/keys/{key}\n  Port {port}\n"
# The last one: what holds for every host.
EVERY_HOST = """\
Host *
  User root
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  UpdateHostKeys no
"""


class Sshd(Machines):
    NET, HEAD_NAME, HEAD, NODE = 2, "login", COMMON, NODE

    def __init__(self, count):
        super().__init__(count)
        self.names = [f"node{n + 1}" for n in range(count)]

    # ---- up ----

    def _up(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-sshd."))
        self._keep_all()
        self._write_files()
        self._begin()
        for n in range(self.count):
            self._wait_listening(n)

    def _write_files(self):
        for name in ("log", "keys", "home"):
            (self.folder / name).mkdir()
        keys = ["user", "stranger", *self.names]
        made = [subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", self.folder / "keys" / key])
                for key in keys]
        assert not any(key.wait() for key in made), "ssh-keygen failed"
        public = {key: (self.folder / "keys" / f"{key}.pub").read_text().strip() for key in keys}
        known = [f"{name} {public[name]}\n" for name in self.names]
        (self.folder / "known_hosts").write_text("".join(known) + f"liar {public['stranger']}\n")
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.88.2.254 login\n" + "".join(
            f"{self.address(n)} {name}\n" for n, name in enumerate(self.names)))
        for name in ("login", *self.names):
            self.home(name).mkdir()
            self.set_shell(name)
            (self.folder / f"sshd_config.{name}").write_text(SSHD_CONFIG.format(folder=self.folder, name=name))
        self._write_client()

    def _write_client(self):
        first = self.address(0)
        entries = [(name, self.address(n), name, "user", 22) for n, name in enumerate(self.names)]
        entries += [("refused", first, self.names[0], "user", 9), ("liar", first, "liar", "user", 22),
                    ("locked", first, self.names[0], "stranger", 22), ("absent", "10.88.2.200", "absent", "user", 22)]
        text = "".join(ENTRY.format(folder=self.folder, name=name, address=address, alias=alias, key=key, port=port)
                       for name, address, alias, key, port in entries)
        own = self.home("login") / ".ssh"
        own.mkdir(mode=0o700)
        (own / "config").write_text(text + EVERY_HOST.format(folder=self.folder))

    def home(self, name):
        return self.folder / "home" / name

    def set_shell(self, name, shell=SHELL):
        """The login shell of a host's users, from the next login on. Their home folders are theirs on this host alone."""
        path, home = self.folder / f"passwd.{name}", self.home(name)
        # Written in place: the host has this very file as its /etc/passwd.
        path.write_text("".join(f"{user}:x:0:0:{user}:{home}:{shell}\n" for user in ("root", "me")) +
                        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n")

    def _wait_listening(self, n):
        end = harness.deadline(20)
        while not self._listener(n):
            assert time.monotonic() < end, f"no sshd on {self.names[n]}:\n{self.logs()}"
            pause(0.02)

    def _listener(self, n):
        """The host's sshd that waits for logins, or None."""
        for pid in self.nodes[n].processes():
            if LISTENER in title_of(pid):
                return pid
        return None

    # ---- what a user does ----

    def env(self, more=None):
        """Our environment, and the home folder of the login host's user."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PET_", "SSH_"))}
        return {**kept, "HOME": str(self.home("login")), "USER": "root", "LOGNAME": "root", **(more or {})}

    # ---- what is there ----

    def started(self, n):
        """The processes of host n, but not its sshd that waits for logins."""
        return [pid for pid in self.nodes[n].processes() if pid != self._listener(n) and harness.alive(pid)]

    def left(self, without=()):
        """What runs on the hosts and on the login host beside their sshd, as {name: [title, …]}; {}: nothing. Titles that
        begin with a text of `without` don't count."""
        hosts = {os.readlink(f"/proc/{host.pid}/ns/pid"): host for host in (self.head, *self.nodes) if host.is_up()}
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                host = hosts.get(os.readlink(f"/proc/{pid}/ns/pid"))
                if host and int(pid) != host.pid and harness.alive(pid) and (title := title_of(pid)) \
                        and LISTENER not in title and not title.startswith(tuple(without)):
                    found.setdefault(host.name, []).append(title)
        return found

    def wait_left(self, seconds, without=(), since=None):
        """Waits until nothing runs, at most so many seconds since that time (None: now). Returns how many it took."""
        begin = time.monotonic() if since is None else since
        end = begin + seconds * harness.SLOWER
        while found := self.left(without):
            assert time.monotonic() < end, f"after {seconds} s still there: {found}"
            pause(0.02)
        return time.monotonic() - begin

    def logs(self):
        """The ends of the sshd's logs, for the message of a failed test."""
        said = []
        for path in sorted((self.folder / "log").iterdir()):
            said += [f"---- {path.name}", *path.read_text(errors="replace").splitlines()[-8:]]
        return "\n".join(said)

    def settle(self):
        """Makes the cluster as new for the next test: nothing runs, every host is there, and its user's shell is bash."""
        for n, node in enumerate(self.nodes):
            if not node.is_up():
                self.boot(n)
            self.heal(n)
            for pid in self.started(n):
                harness.kill(pid)
            if not self._listener(n):
                self.start_sshd(n)
            self.set_shell(self.names[n])
            for path in self.home(self.names[n]).iterdir():  # fish makes folders in it
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for pid in self.head.processes():
            harness.kill(pid)

    # ---- faults ----

    def start_sshd(self, n):
        self.run("sh", "-c", f"SSHD={SSHD}; {START}", self.names[n], self.folder, on=n)
        self._wait_listening(n)

    def kill_sshd(self, n, logins=True, listener=False):
        """The server's processes of the host die: those of its logins, the one that waits for them."""
        waiting = self._listener(n)
        for pid in self.nodes[n].processes():
            if title_of(pid).startswith("sshd") and (listener if pid == waiting else logins):
                harness.kill(pid, signal.SIGKILL)

    def boot(self, n):
        super().boot(n)
        self._wait_listening(n)


def title_of(pid):
    """Its command line; empty if it has gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@contextlib.contextmanager
def sshd_or_skip(count):
    """Skips the test where this machine can't have such hosts, and says why."""
    import pytest
    missing = [name for name in PROGRAMS if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here (Debian: openssh-server, openssh-client)")
    if os.geteuid() != 0:
        pytest.skip("needs root, for namespaces")
    try:
        with Sshd(count) as cluster:
            yield cluster
    except NoNamespaces as why:
        pytest.skip(f"no namespaces here: {why}")
