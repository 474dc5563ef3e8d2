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

Nothing is left, also if the test is killed: see machines.py.

With cgroup=True steps are held in control groups (version 1), with limits of CPUs and memory; then a host has as many
CPUs as this machine, and the names of hosts are unique, because the groups of all clusters lie side by side.

Times are short for tests: SlurmdTimeout 10 s (a lost host is `down*` after 10 to 20 s), KillWait 3 s. Exit status 75
requeues a job. Jobs of the partition `low`, which is the default, are preempted by `high` after a grace of 5 s.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
import time

import harness
from hosts import NoNamespaces
from machines import Machines, pause

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged")
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
V1_GROUPS = ("cpuset", "freezer", "memory")

HEAD = r"""
export SLURM_CONF="$1/slurm.conf"
munged --force --num-threads=2 --key-file="$1/munge/key" --socket="$1/munge/socket" --pid-file="$1/munge/pid" \
    --log-file="$1/log/munged" --seed-file="$1/munge/seed" < /dev/null >&2
slurmctld < /dev/null >&2
"""
NODE = 'export SLURM_CONF="$1/slurm.conf"\nslurmd < /dev/null >&2\n'
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


class Slurm(Machines):
    NET, HEAD_NAME, HEAD, NODE = 1, "head", HEAD, NODE

    def __init__(self, count, cpus=8, gpus=0, cgroup=False, conf=()):
        super().__init__(count)
        self.cgroup, self.gpus, self._more = cgroup, gpus, conf
        self.cpus = len(os.sched_getaffinity(0)) if cgroup else cpus

    # ---- up ----

    def _up(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-slurm."))
        # In a list of hosts, what follows the last letter is the number.
        prefix = f"x{os.urandom(4).hex()}n" if self.cgroup else "node"
        self.names = [f"{prefix}{n + 1}" for n in range(self.count)]
        groups = f"/sys/fs/cgroup/*/slurm_{prefix}*" if self.cgroup else ""
        self._keep_all(groups)
        self._write_files()
        self._begin()
        assert self.wait_idle(), f"hosts do not become idle: {self.states()}\n{self.logs()}"

    def _write_files(self):
        for name in ("log", "state", "spool", "munge", "dev"):
            (self.folder / name).mkdir()
        for name in (".", "munge"):  # clients of any user reach munged's socket
            (self.folder / name).chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        addresses = [f"{self.address(n)} {name}\n" for n, name in enumerate(self.names)]
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

    # ---- what a user does ----

    def env(self, more=None):
        """Our environment without what would make a client a part of another job."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_", "PET_"))}
        return {**env, **(more or {})}

    def client(self, *words, folder="/", on=None):
        """The command line that runs this on the controller's host, or on host number `on`."""
        return super().client("env", f"SLURM_CONF={self.conf}", *words, folder=folder, on=on)

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

    def kill_slurmd(self, n):
        """Slurm's own processes on the host die; the tasks live on."""
        for pid in self.nodes[n].processes():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("slurmd", "slurmstepd"):
                    os.kill(pid, signal.SIGKILL)

    def start_slurmd(self, n):
        self.run("slurmd", on=n)


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
