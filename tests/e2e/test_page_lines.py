"""The command lines of README and the pages run as they are written (page_lines.py has the few that others run, or no test).
On one machine: the agents of several nodes meet on loopback, shared paths are in a temporary folder, GPUs are those of a false
NVML, and docker runs the command without its image. muster, torchrun, etcd and sshd are the real ones."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import like
from etcd import EtcdCluster, etcd_or_skip
from harness import MUSTER, free_port, kill, nvml_env, processes_with
from page_lines import NOT_RUN, ROOT, faults, lines, listed
from sshd import sshd_or_skip

TRAIN = """\
import os
print("trained rank={RANK} world={WORLD_SIZE}".format(**os.environ), file=open(os.environ["E2E_EVENTS"], "w"), flush=True)
open("go").close()
"""
DOCKER = """\
#!/usr/bin/python3
import os, sys
at = sys.argv.index("IMAGE")
names = {sys.argv[n + 1] for n in range(at) if sys.argv[n] == "-e"} | {"PATH"}
env = {k: v for k, v in os.environ.items() if k in names or k.startswith(("E2E_", "MUSTER_RUN_DIR", "PYTHON_EXEC"))}
os.execvpe(sys.argv[at + 1], sys.argv[at + 1:], env)
"""
# As debugpy: it listens at a port of each rank's own, and runs the script.
DEBUGPY = """\
import os, runpy, sys
name, port, script = sys.argv[1:]
assert (name, port) == ("--listen", "567" + os.environ["LOCAL_RANK"]), sys.argv
runpy.run_path(script)
"""
LINES = [line for line in lines() if not listed(line)]


class Sandbox:
    """A folder with a train.py, in which the words that stand for a reader's own are true."""

    def __init__(self, job):
        self.job, self.bin = job, job.tmp / "bin"
        for folder in (self.bin, job.tmp / "shared" / "bin", job.tmp / "DIR"):
            folder.mkdir(parents=True)
        for name, program in (("muster", MUSTER), ("torchrun", like.TORCHRUN), ("python", "/usr/bin/python3")):
            (self.bin / name).symlink_to(program)
        (self.bin / "docker").write_text(DOCKER)
        (self.bin / "docker").chmod(0o755)
        (job.tmp / "train.py").write_text(TRAIN)
        (job.tmp / "debugpy.py").write_text(DEBUGPY)
        version = subprocess.run([MUSTER, "version"], check=True, capture_output=True, text=True).stdout.split()[1]
        shutil.copy(MUSTER, job.tmp / "DIR" / f"muster-{version}-linux-{os.uname().machine}")
        self.here = {"node1:29400": f"127.0.0.1:{free_port()}", "/shared/": f"{job.tmp}/shared/", " URL ": f" {ROOT} "}

    def start(self, text, count=1, env=None):
        """So many shells with this line."""
        for there, here in self.here.items():
            text = text.replace(there, here)
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHON_EXEC": "/usr/bin/python3", **(env or {})}
        return [self.job.agent(tag, text, program=["bash", "-ec"], env=env) for tag in "abcde"[:count]]

    def trains(self, agents, world):
        """Each rank runs once; then the script ends, and so do all agents, with 0."""
        found = self.job.events.wait("trained", world, 30, world=world)
        assert sorted(int(event.fields["rank"]) for event in found) == list(range(world)), [agent.said() for agent in agents]
        self.job.go()
        assert [agent.finish()[0] for agent in agents] == [0] * len(agents), [agent.said() for agent in agents]


@pytest.fixture
def sandbox(job):
    return Sandbox(job)


def test_there_are_lines_and_few_are_not_run():
    assert len(LINES) >= 15 and len(NOT_RUN) <= 3
    assert list(faults()) == []


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{line.page}: {line.text[:50]}",
                                               marks=[pytest.mark.torch] if line.text.startswith("torchrun") else [])
                                  for line in LINES])
def test_a_line(sandbox, line, tmp_path):
    text, env = line.text, {}
    if text.startswith("git ") and not (ROOT / ".git").exists():
        pytest.skip("no git repository here")
    with contextlib.ExitStack() as stack:
        if "=etcd://" in text:
            etcd_or_skip()
            cluster = stack.enter_context(EtcdCluster(3))
            sandbox.here["e1:2379,e2:2379,e3:2379"] = ",".join(cluster.endpoints)
        workers = re.search(r"--nproc-per-node=(\w+)", text)
        workers = 1 if not workers else 2 if workers[1] == "gpu" else int(workers[1])
        if "=gpu" in text:
            env = nvml_env(tmp_path, "hgx-h100-vm")
        if text.startswith(("exec docker", "muster notify")):  # for a worker
            (sandbox.job.tmp / "worker.sh").write_text(f"#!/bin/sh\n{text}\n")
            (sandbox.job.tmp / "worker.sh").chmod(0o755)
            text, workers = "muster run --nproc-per-node=2 --no-python ./worker.sh", 2
        if not line.text.endswith("train.py"):
            code, out, err = sandbox.start(text)[0].finish()
            assert code == 0 or (code == 1 and text == "muster check" and "\nfail " in out), (out, err)
        else:
            nodes = int((re.search(r"--nnodes=(?:\d+:)?(\d+)", text) or [0, 1])[1])
            spares = 1 if line.page == "reliability.md" else 0  # "Start one of these lines on five nodes"
            sandbox.trains(sandbox.start(text, nodes + spares, env), nodes * workers)
    for name in re.findall(r" (\w+\.(?:svg|xml))$| (\S+/bin/muster)$", text):
        assert (sandbox.job.tmp / "".join(name).lstrip("/")).stat().st_size > 100, name


def test_the_line_of_readme_over_ssh(sandbox):
    line, = [line.text for line in lines() if line.text.startswith("muster run -H") and line.page == "README.md"]
    sandbox.job.go()
    with sshd_or_skip(2) as cluster:
        env = sandbox.job.env("a", {"MUSTER_RUN_DIR": "/dev/shm/muster", "HOME": str(cluster.home("login")),
                                    "PYTHON_EXEC": "/usr/bin/python3", "PATH": f"{sandbox.bin}:{os.environ['PATH']}"})
        done = cluster.run("bash", "-ec", line, folder=sandbox.job.tmp, env=env, seconds=60)
    found = sandbox.job.events.all("trained", world=16)
    assert done.returncode == 0 and sorted(int(event.fields["rank"]) for event in found) == list(range(16)), done


def skeleton(status):
    """The words of a status that do not change from job to job: the names of its values, and the heads of its columns."""
    return [line.split() if line.isupper() else line.split()[0] for line in status.splitlines()
            if re.match(r"  \w+ ", line) or line.startswith(("job ", "NODE "))]


def test_the_status_in_readme(sandbox):
    """Of two nodes, one worker of which was killed: the same values and columns as README shows."""
    shown = re.search(r"^```\n\$ (muster status)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    agent, = sandbox.start("muster run --starter=local --nnodes=1:2 --nproc-per-node=2 --max-restarts=3 train.py")
    sandbox.job.events.wait("trained", 4)
    pid, = [pid for pid in processes_with(sandbox.job.mark.encode())
            if b"\0RANK=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()]
    kill(pid, signal.SIGSEGV)
    sandbox.job.events.wait("trained", 8)
    status = sandbox.start(shown[1])[0].finish()[1]
    assert skeleton(status) == skeleton(shown[2]), status
    sandbox.job.go()
    assert agent.finish()[0] == 0
