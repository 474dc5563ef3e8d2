"""A real Slurm on emulated hosts: the controller on one, a slurmd on each of the others, all from Debian's packages.

    with Slurm(4) as slurm:
        slurm.run("srun", "-N4", "hostname").stdout            # on the controller's host, as a user's shell would
        job = slurm.submit(folder, "srun hostname", "-N4")     # a batch script
        assert slurm.end(job)["JobState"] == "COMPLETED"
        slurm.power_off(2)                                     # node3 is silent, and every process of it is dead
        slurm.boot(2)                                          # it is back, empty

Host n is 10.88.1.(n+1) and fd88:1::(n+1), named node(n+1); the controller's is 10.88.1.254, named head. Each has its own
net, uts, ipc, mount and pid namespace, and its own /dev/shm; other files are shared, as on a cluster. There is no route
to the outside, and no name server. A program of the host is an ordinary process for the test, which may signal it.

Nothing is left, also if the test is killed: the first process of each pid namespace reads from us and ends with us, which
ends all others; a keeper in a session of its own, which ends in the same way, then removes folder and control groups.

With cgroup=True steps are held in control groups (version 1), with limits of CPUs and memory; then a host has as many
CPUs as this machine, and the names of hosts are unique, because the groups of all clusters lie side by side.

Times are short for tests: SlurmdTimeout 10 s (a lost host is `down*` after 10 to 20 s), KillWait 3 s. Exit status 75
requeues a job. Jobs of the partition `low`, which is the default, are preempted by `high` after a grace of 5 s.
"""
import contextlib
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from hosts import NoNamespaces

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged")
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
V1_GROUPS = ("cpuset", "freezer", "memory")

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
export SLURM_CONF="$1/slurm.conf"
"""
HEAD = r"""
munged --force --num-threads=2 --key-file="$1/munge/key" --socket="$1/munge/socket" --pid-file="$1/munge/pid" \
    --log-file="$1/log/munged" --seed-file="$1/munge/seed" < /dev/null >&2
slurmctld < /dev/null >&2
"""
NODE = "slurmd < /dev/null >&2\n"
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

CONF = """\
ClusterName=emu
SlurmctldHost=head(10.88.1.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
SlurmdParameters=config_overrides
SelectType=select/cons_tres
PropagateResourceLimits=NONE
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
TCPTimeout=2
KillWait=3
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5
JobRequeue=1
RequeueExit=75
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{plugins}
{gpus}
NodeName={names} CPUs={cpus} RealMemory=2000{gres} State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=5 MaxTime=60 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=60 State=UP
{more}
"""
LINUXPROC = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectTypeParameters=CR_CPU"
CGROUP = ("ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\nSelectTypeParameters=CR_CPU_Memory\n"
          "DefMemPerCPU=200")
CGROUP_CONF = ("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\nConstrainCores=yes\n"
               "ConstrainRAMSpace=yes\nConstrainSwapSpace=no\nConstrainDevices=no\n")


class Host:
    """A set of namespaces, by the first process of its pid namespace, which ends with the pipe to us."""

    def __init__(self, slurm, name, script, addresses):
        self.name = name
        self.log = slurm.folder / "log" / f"{name}.start"
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
                 "-c", BEGIN + script + STAY, name, str(slurm.folder), "\n".join(addresses)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=slurm.env(), cwd="/")
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


class Slurm:
    def __init__(self, count, cpus=8, gpus=0, cgroup=False, conf=()):
        self.count, self.cgroup, self.gpus, self._more = count, cgroup, gpus, conf
        self.cpus = len(os.sched_getaffinity(0)) if cgroup else cpus
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

    def _up(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-slurm."))
        # In a list of hosts, what follows the last letter is the number.
        prefix = f"x{os.urandom(4).hex()}n" if self.cgroup else "node"
        self.names = [f"{prefix}{n + 1}" for n in range(self.count)]
        groups = f"/sys/fs/cgroup/*/slurm_{prefix}*" if self.cgroup else ""
        self._keeper = subprocess.Popen(["/usr/bin/python3", "-I", "-c", KEEP, str(self.folder), groups],
                                        stdin=subprocess.PIPE, start_new_session=True, cwd="/")
        self._write_files()
        self.head = Host(self, "head", HEAD, ["link set lo up", "link add br0 address 02:88:01:00:00:fe type bridge", "link set br0 up",
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
        assert self.wait_idle(), f"hosts do not become idle: {self.states()}\n{self.logs()}"

    def _write_files(self):
        for name in ("log", "state", "spool", "munge", "dev"):
            (self.folder / name).mkdir()
        for name in (".", "munge"):  # clients of any user reach munged's socket
            (self.folder / name).chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        addresses = [f"10.88.1.{n + 1} {name}\n" for n, name in enumerate(self.names)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.88.1.254 head\n" + "".join(addresses))
        for n in range(self.gpus):
            os.mknod(self.folder / "dev" / f"gpu{n}", 0o20666, os.makedev(1, 3))  # as good as /dev/null
        if self.gpus:
            (self.folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={self.folder}/dev/gpu[0-{self.gpus - 1}]\n")
        if self.cgroup:
            (self.folder / "cgroup.conf").write_text(CGROUP_CONF)
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(
            folder=self.folder, plugins=CGROUP if self.cgroup else LINUXPROC, gpus="GresTypes=gpu" if self.gpus else "",
            gres=f" Gres=gpu:{self.gpus}" if self.gpus else "", names=",".join(self.names), cpus=self.cpus,
            more="\n".join(self._more)))

    @staticmethod
    def _addresses(last, link):
        v6 = [f"addr add fd88:1::{last:x}/64 dev {link} nodad"] if harness.has_ipv6() else []
        return [f"addr add 10.88.1.{last}/24 dev {link}", *v6]

    def _new_node(self, n):
        return Host(self, self.names[n], NODE, ["link set lo up", *self._addresses(n + 1, "eth0"), "link set eth0 up"])

    def _keep(self, *hosts):
        self._keeper.stdin.write("".join(f"{host.pid}\n" for host in hosts).encode())
        self._keeper.stdin.flush()

    def _wire(self, numbers):
        """A fixed address, as hardware has: what others know of it stays true when the host comes back."""
        lines = []
        for n in numbers:
            lines += [f"link add p{n} type veth peer name eth0 address 02:88:01:00:00:{n + 1:02x} netns {self.nodes[n].pid}",
                      f"link set p{n} master br0 up"]
        self._ip(*lines)

    def _ip(self, *lines, check=True):
        subprocess.run(["nsenter", f"--target={self.head.pid}", "--net", "--", "ip", "-batch", "-"], check=check, text=True,
                       input="\n".join(lines) + "\n", capture_output=True)

    # ---- what a user does ----

    def env(self, more=None):
        """Our environment without what would make a client a part of another job."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_", "PET_"))}
        return {**env, **(more or {})}

    def client(self, *words, folder="/", on=None):
        """The command line that runs this on the controller's host, or on host number `on`."""
        host = self.head if on is None else self.nodes[on]
        return ["nsenter", f"--target={host.pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--", "sh", "-c",
                'cd "$0" && exec "$@"', str(folder), "env", f"SLURM_CONF={self.conf}", *map(str, words)]

    def run(self, *words, folder="/", on=None, env=None, check=True, seconds=30):
        done = subprocess.run(self.client(*words, folder=folder, on=on), env=env or self.env(), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds * harness.SLOWER)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def submit(self, folder, script, *options, env=None):
        """Submits these lines as a batch script. Its output is in FOLDER/out-ID. Returns the job's id."""
        path = pathlib.Path(folder, "batch.sh")
        path.write_text(f"#!/bin/bash\n{script}\n")
        return self.run("sbatch", "--parsable", f"--output={folder}/out-%j", "--open-mode=append", *options, path,
                        folder=folder, env=env).stdout.strip()

    def jobs(self):
        """The ids of all jobs that have not ended."""
        return self.run("squeue", "--noheader", "--format=%A").stdout.split()

    def facts(self, job):
        """What `scontrol show job` tells of it: {"JobState": "RUNNING", …}."""
        said = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def until(self, job, seconds=30, **wanted):
        """Waits until these facts of the job are so. Returns all of its facts."""
        end = harness.deadline(seconds)
        while True:
            facts = self.facts(job)
            if all(facts.get(k) == v for k, v in wanted.items()):
                return facts
            assert time.monotonic() < end, f"no {wanted} in {seconds} s: {facts}\n{self.logs()}"
            pause(0.1)

    def end(self, job, seconds=30):
        """Waits until the job has ended. Returns its facts."""
        end = harness.deadline(seconds)
        while True:
            facts = self.facts(job)
            if facts.get("JobState") in ENDED:
                return facts
            assert time.monotonic() < end, f"job {job} does not end in {seconds} s: {facts}\n{self.logs()}"
            pause(0.1)

    def states(self):
        """{"node1": "idle", "node2": "down*", …}"""
        said = self.run("sinfo", "--noheader", "--Node", "--partition=low", "--format=%N %t", check=False).stdout
        return dict(line.split() for line in said.splitlines())

    def wait_idle(self, seconds=20):
        """Waits until every host is idle; false if they don't become it."""
        end = harness.deadline(seconds)
        while self.states() != dict.fromkeys(self.names, "idle"):
            if time.monotonic() > end:
                return False
            pause(0.05)
        return True

    def wait_state(self, n, state, seconds=30):
        end = harness.deadline(seconds)
        while self.states().get(self.names[n]) != state:
            assert time.monotonic() < end, f"{self.names[n]} is not {state}: {self.states()}\n{self.logs()}"
            pause(0.2)

    def settle(self):
        """Makes the cluster as new for the next test: no job, every host idle. Starts another if that does not help."""
        jobs = self.jobs() if self.head.is_up() else []
        if jobs:
            self.run("scancel", *jobs, check=False)
        lost = [n for n, node in enumerate(self.nodes) if not node.is_up()]
        if self.head.is_up():
            self._ip(*(f"link set p{n} master br0" for n in range(self.count) if n not in lost))
            for n in lost:
                self.boot(n)
        if not self.head.is_up() or not self.wait_idle(10):
            self.__exit__()
            self.__enter__()

    def logs(self):
        """The ends of the controller's and the hosts' logs, for the message of a failed test."""
        said = []
        for path in sorted((self.folder / "log").iterdir()):
            lines = path.read_text(errors="replace").splitlines()
            said += [f"---- {path.name}", *lines[-15:]]
        return "\n".join(said)

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

    def kill_slurmd(self, n):
        """Slurm's own processes on the host die; the tasks live on."""
        for pid in self.nodes[n].processes():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("slurmd", "slurmstepd"):
                    os.kill(pid, signal.SIGKILL)

    def start_slurmd(self, n):
        self.run("slurmd", on=n)

    def boot(self, n):
        """A host that was lost is back: the same name and addresses, and nothing runs on it but slurmd."""
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


@contextlib.contextmanager
def slurm_or_skip(count, **more):
    """Skips the test where this machine can't have such a cluster, and says why."""
    import pytest
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on PATH (Debian: slurmctld, slurmd, slurm-client, munge)")
    if os.geteuid() != 0:
        pytest.skip("needs root, for namespaces")
    if more.get("cgroup") and not all(os.access(f"/sys/fs/cgroup/{name}/cgroup.procs", os.W_OK) for name in V1_GROUPS):
        pytest.skip("no control groups of version 1 here")
    try:
        with Slurm(count, **more) as slurm:
            yield slurm
    except NoNamespaces as why:
        pytest.skip(f"no namespaces here: {why}")
